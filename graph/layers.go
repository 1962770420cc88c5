package graph

import (
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// Projection is a linear map and its place in the checkpoint.
type Projection struct {
	Path   string
	Weight op.Weight // [outputs, inputs]
	Bias   []float32 // [outputs]; nil for none
}

// Norm is the weight of an RMSNorm and its place in the checkpoint.
type Norm struct {
	Path   string
	Weight []float32 // [D]
	Eps    float64
}

// Embed looks token ids [B,N] int32 up in table [V,D]: [B,N,D]. It is where a model
// begins, and so it says on which device, and on a GPU by the table's Precision what
// values are rounded to: the layers behind it follow their input.
func Embed(path string, ids *gorgonia.Node, table op.Weight, device pulsecol.Device) (*gorgonia.Node, error) {
	o := op.NewEmbed(path, table)
	if device != pulsecol.CUDA {
		return op.Apply(o, ids)
	}
	return applyOnGPU(o, table.Precision, ids)
}

// apply adds a layer to the graph, on the device and with the precision of its
// first input.
func apply(o gorgonia.Op, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	if inputs[0] != nil {
		if p, ok := op.TwinPrecision(inputs[0].Op()); ok {
			return applyOnGPU(o, p, inputs...)
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

// Linear is x Wᵀ + bias: x [B,N,inputs] -> [B,N,outputs].
func Linear(x *gorgonia.Node, p Projection) (*gorgonia.Node, error) {
	o, err := op.NewLinear(p.Path, p.Weight, p.Bias)
	if err != nil {
		return nil, err
	}
	return apply(o, x)
}

// RMSNorm normalises the features of each token: [B,N,D] -> [B,N,D].
func RMSNorm(x *gorgonia.Node, n Norm) (*gorgonia.Node, error) {
	return apply(op.NewRMSNorm(n.Path, n.Weight, n.Eps), x)
}

// RoPE splits x [B,N,heads*dim] into heads and rotates them by positions [B,N]
// int32: [B,heads,N,dim].
func RoPE(path string, x, positions *gorgonia.Node, heads, dim int, theta float64) (*gorgonia.Node, error) {
	o, err := op.NewRoPE(path, heads, dim, theta)
	if err != nil {
		return nil, err
	}
	return apply(o, x, positions)
}

// SplitHeads is RoPE without the rotation: [B,N,heads*dim] -> [B,heads,N,dim].
func SplitHeads(path string, x *gorgonia.Node, heads, dim int) (*gorgonia.Node, error) {
	o, err := op.NewSplitHeads(path, heads, dim)
	if err != nil {
		return nil, err
	}
	return apply(o, x)
}

// MergeHeads undoes SplitHeads: [B,H,N,D] -> [B,N,H*D].
func MergeHeads(path string, x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply(op.NewMergeHeads(path), x)
}

// SwiGLU is silu(gate) * up, element by element.
func SwiGLU(path string, gate, up *gorgonia.Node) (*gorgonia.Node, error) {
	return apply(op.NewSwiGLU(path), gate, up)
}

// Add is the residual connection a + b.
func Add(path string, a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return apply(op.NewAdd(path), a, b)
}

// Logits is the language model head for chosen rows: x [B,N,D], rows [R] int32
// holding b*N+i or -1 for none -> [R,V].
func Logits(path string, x, rows *gorgonia.Node, head op.Weight) (*gorgonia.Node, error) {
	return apply(op.NewLogits(path, head), x, rows)
}
