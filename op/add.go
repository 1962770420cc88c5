package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type add struct{ base }

// NewAdd returns the residual connection named by path: two [B,N,D] -> their sum, also in
// place of Gorgonia's own addition, which may write its result over an input that a
// Workspace has placed. It is differentiable.
func NewAdd(path string) gorgonia.Op {
	b := newBase("Add", path, []hm.Type{float3, float3}, float3)
	b.slopes = []slope{{same: true}, {same: true}}
	return &add{b}
}

func (o *add) Spec() any { return exec.Add{} }

func (o *add) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if !sameShape(s[0], s[1]) {
		return nil, fmt.Errorf("%s: %w: inputs %v and %v differ", o, ErrShape, s[0], s[1])
	}
	return s[0].Clone(), nil
}

func (o *add) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	out, y, err := o.resultInPlace(ts[0].Shape()...)
	if err != nil {
		return nil, err
	}
	o.team().Add(y, float32s(ts[0]), float32s(ts[1]))
	return o.finish(out)
}

// PlanMemory lets the sum take the memory of an input that nothing else reads.
func (o *add) PlanMemory(r *exec.Run) error { return o.planInPlace(r) }

var _ exec.Operator = (*add)(nil)
