package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type swiGLU struct {
	base
	spec exec.SwiGLU
}

// NewSwiGLU returns the gated layer named by path,
//
//	y = silu(gate of x) * up of x with silu(z) = z / (1 + exp(-z))
//
// element by element (Shazeer, "GLU Variants Improve Transformer", arXiv 2002.05202):
// x [B,N,in] -> [B,N,out]. The outputs of the two projections are in no memory of the
// graph; the gradient, with respect to x, computes them again. Weights of different shapes, or a bias of another length, are
// an ErrShape, an unknown precision is an ErrValue.
func NewSwiGLU(path string, gate, up Projection) (gorgonia.Op, error) {
	for i, p := range []*Projection{&gate, &up} {
		if err := checkProjection(p, gate.Weight.Cols); err != nil {
			return nil, fmt.Errorf("op: SwiGLU %q: %s: %w", path, []string{"gate", "up"}[i], err)
		}
	}
	if gate.Weight.Rows != up.Weight.Rows {
		return nil, fmt.Errorf("op: SwiGLU %q: %w: gate has %d outputs, up %d", path, ErrShape, gate.Weight.Rows, up.Weight.Rows)
	}
	params := append(projectionParams(&gate), projectionParams(&up)...)
	o := &swiGLU{newBase("SwiGLU", path, []hm.Type{float3}, float3, params...), exec.SwiGLU{Gate: gate.spec(), Up: up.spec()}}
	o.slopes = []slope{{reads: []int{0}, compute: o.inputGrad, scratch: func(dy tensor.Shape) int { return 2 * dy.TotalSize() }}}
	return o, nil
}

// inputGrad is the gradient with respect to x. The outputs of both projections, which it
// computes again, become their gradients.
func (o *swiGLU) inputGrad(r *slopeRun) error {
	x, rows, n := float32s(r.in[0]), r.shape[0]*r.shape[1], len(r.dy)
	outputs := [][]float32{r.scratch[:n], r.scratch[n:]}
	parts := []*kernel.Projection{&o.spec.Gate, &o.spec.Up}
	for i, p := range parts {
		r.team.Linear(outputs[i], x, rows, &p.Weight, p.Bias)
	}
	r.team.GateGrad(outputs[0], outputs[1], r.dy, outputs[0], outputs[1])
	for i, p := range parts {
		w := &p.Weight
		r.team.MatMul(kernel.MatMul{
			M: rows, N: w.Cols, K: w.Rows,
			A: outputs[i], LDA: w.Rows, W: w, C: r.dx, LDC: w.Cols, Scale: 1, Add: i > 0,
		})
	}
	return nil
}

func (o *swiGLU) Spec() any { return o.spec }

func (o *swiGLU) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkFeatures(o, s[0], &o.spec.Gate.Weight); err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], s[0][1], o.spec.Gate.Weight.Rows}, nil
}

func (o *swiGLU) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	s := ts[0].Shape()
	out, y, err := o.result(s[0], s[1], o.spec.Gate.Weight.Rows)
	if err != nil {
		return nil, err
	}
	o.team().SwiGLU(y, float32s(ts[0]), s[0]*s[1], o.spec.Gate, o.spec.Up)
	return o.finish(out)
}

func (o *swiGLU) MergesWith(other gorgonia.Op) bool {
	g, ok := other.(*swiGLU)
	return ok && sameProjection(&o.spec.Gate, &g.spec.Gate) && sameProjection(&o.spec.Up, &g.spec.Up)
}

var _ exec.Operator = (*swiGLU)(nil)
