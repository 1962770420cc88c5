package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type gate struct{ base }

// NewGate returns the gate of a SwiGLU whose projections are layers of their own, named by
// path:
//
//	y = silu(gate) * up with silu(z) = z / (1 + exp(-z))
//
// element by element: gate [B,N,D], up [B,N,D] -> [B,N,D]. It is differentiable in both.
func NewGate(path string) gorgonia.Op {
	b := newBase("Gate", path, []hm.Type{float3, float3}, float3)
	both := []int{0, 1}
	b.slopes = []slope{
		{reads: both, compute: func(r *slopeRun) error {
			r.team.GateGrad(r.dx, nil, r.dy, float32s(r.in[0]), float32s(r.in[1]))
			return nil
		}},
		{reads: both, compute: func(r *slopeRun) error {
			r.team.GateGrad(nil, r.dx, r.dy, float32s(r.in[0]), float32s(r.in[1]))
			return nil
		}},
	}
	return &gate{b}
}

// Spec is nil: there is no implementation on a device.
func (o *gate) Spec() any { return nil }

func (o *gate) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if !sameShape(s[0], s[1]) {
		return nil, fmt.Errorf("%s: %w: gate %v and up %v differ", o, ErrShape, s[0], s[1])
	}
	return s[0].Clone(), nil
}

func (o *gate) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	out, y, err := o.result(ts[0].Shape()...)
	if err != nil {
		return nil, err
	}
	o.team().Gate(y, float32s(ts[0]), float32s(ts[1]))
	return o.finish(out)
}

var _ exec.Operator = (*gate)(nil)
