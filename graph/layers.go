package graph

import (
	"strings"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// Projection is a linear map and its place in the checkpoint.
type Projection struct {
	Path   string
	Weight op.Weight // [outputs, inputs]
	Bias   []float32 // [outputs]; nil for none

	Trained Trained // in place of them, or added to them
}

// Norm is the weight of an RMSNorm and its place in the checkpoint.
type Norm struct {
	Path   string
	Weight []float32 // [D]
	Eps    float64

	Trained *gorgonia.Node // [D], in place of Weight; nil for none
}

// Embed looks token ids [B,N] int32 up in table [V,D]: [B,N,D]. A model begins with it. It
// sets the device and, by the table's Precision, what values are rounded to on a GPU: later
// layers follow their input.
//
// On a GPU a step copies the inputs that the graph has before Embed to the GPU when it
// begins. A later input is copied when a layer reads it, and the copy waits for the GPU.
func Embed(path string, ids *gorgonia.Node, table op.Weight, device pulsecol.Device) (*gorgonia.Node, error) {
	o := op.NewEmbed(path, table)
	if device != pulsecol.CUDA || ids == nil {
		return op.Apply(o, ids)
	}
	o, inputs := exec.Preload(o.(exec.Preloader), ids)
	return applyOnGPU(o, table.Precision, inputs...)
}

// apply adds a layer to the graph, on the device and with the precision of its
// first input.
func apply(o gorgonia.Op, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	if inputs[0] != nil {
		if d, ok := inputs[0].Op().(exec.DeviceOp); ok {
			return applyOnGPU(o, d.Precision(), inputs...)
		}
	}
	return op.Apply(o, inputs...)
}

func applyOnGPU(o gorgonia.Op, p op.Precision, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	o, err := cudaop.Wrap(o, p)
	if err != nil {
		return nil, err
	}
	return op.Apply(o, inputs...)
}

// projections returns the weights of p in the form of package op, and a path that joins
// theirs.
func projections(p []Projection) (path string, parts []op.Projection) {
	var paths []string
	for _, p := range p {
		paths = append(paths, p.Path)
		parts = append(parts, op.Projection{Weight: p.Weight, Bias: p.Bias})
	}
	return strings.Join(paths, "+"), parts
}

// Linear is x Wᵀ + bias: x [B,N,inputs] -> [B,N,outputs]. The outputs of several
// projections follow one another; they take one product on a GPU. A projection with Trained
// parameters has a layer of its own.
func Linear(x *gorgonia.Node, p ...Projection) (*gorgonia.Node, error) {
	switch trained, err := single(p); {
	case err != nil:
		return nil, err
	case trained != nil:
		return trained.linear(x)
	}
	path, parts := projections(p)
	o, err := op.NewLinear(path, parts...)
	if err != nil {
		return nil, err
	}
	return apply(o, x)
}

// AddLinear is residual + x Wᵀ + bias: a linear layer and the residual connection that it
// ends. residual has the result's shape.
func AddLinear(residual, x *gorgonia.Node, p ...Projection) (*gorgonia.Node, error) {
	switch trained, err := single(p); {
	case err != nil:
		return nil, err
	case trained != nil:
		y, err := trained.linear(x)
		if err != nil {
			return nil, err
		}
		return Add(trained.Path+".residual", residual, y)
	}
	path, parts := projections(p)
	o, err := op.NewAddLinear(path, parts...)
	if err != nil {
		return nil, err
	}
	return apply(o, x, residual)
}

// RMSNorm normalises the features of each token: [B,N,D] -> [B,N,D].
func RMSNorm(x *gorgonia.Node, n Norm) (*gorgonia.Node, error) {
	if n.Trained != nil {
		return apply(op.NewTrainedRMSNorm(n.Path, n.Eps), x, n.Trained)
	}
	return apply(op.NewRMSNorm(n.Path, n.Weight, n.Eps), x)
}

// RoPE takes heads out of the features of x [B,N,F] and rotates them by positions
// [B,N] int32: [B,heads.Count,N,heads.Dim].
func RoPE(path string, x, positions *gorgonia.Node, heads op.Heads, theta float64) (*gorgonia.Node, error) {
	o, err := op.NewRoPE(path, heads, theta)
	if err != nil {
		return nil, err
	}
	return apply(o, x, positions)
}

// SplitHeads is RoPE without the rotation: [B,N,F] -> [B,heads.Count,N,heads.Dim].
func SplitHeads(path string, x *gorgonia.Node, heads op.Heads) (*gorgonia.Node, error) {
	o, err := op.NewSplitHeads(path, heads)
	if err != nil {
		return nil, err
	}
	return apply(o, x)
}

// MergeHeads undoes SplitHeads: [B,H,N,D] -> [B,N,H*D].
func MergeHeads(path string, x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply(op.NewMergeHeads(path), x)
}

// SwiGLU is silu(gate of x) * up of x, element by element: x [B,N,inputs] ->
// [B,N,outputs].
func SwiGLU(x *gorgonia.Node, gate, up Projection) (*gorgonia.Node, error) {
	path, parts := projections([]Projection{gate, up})
	if gate.Trained.any() || up.Trained.any() {
		g, err := Linear(x, gate)
		if err != nil {
			return nil, err
		}
		u, err := Linear(x, up)
		if err != nil {
			return nil, err
		}
		return apply(op.NewGate(path), g, u)
	}
	o, err := op.NewSwiGLU(path, parts[0], parts[1])
	if err != nil {
		return nil, err
	}
	return apply(o, x)
}

// Add is a + b, a residual connection that does not end with a linear layer.
func Add(path string, a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return apply(op.NewAdd(path), a, b)
}

// GatherRows selects tokens of a batch: x [B,N,D], rows [R] int32 holding
// b*N+i or -1 for none, which gives zeros -> [1,R,D].
func GatherRows(path string, x, rows *gorgonia.Node) (*gorgonia.Node, error) {
	return apply(op.NewGatherRows(path), x, rows)
}

// Logits is the language model head for the tokens that rows has selected:
// x [1,R,D], rows [R] int32 -> [R,V]. Rows where it holds -1 are undefined.
func Logits(path string, x, rows *gorgonia.Node, head op.Weight) (*gorgonia.Node, error) {
	return apply(op.NewLMHead(path, head), x, rows)
}
