package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Add is the residual connection: two [B,N,D] -> their sum. Gorgonia's own
// addition may write its result over an input, which a Workspace could not see.
type Add struct{ base }

// NewAdd returns the sum named by path.
func NewAdd(path string) *Add {
	return &Add{newBase("Add", path, []hm.Type{float3, float3}, float3)}
}

func (o *Add) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	return o.elementwise(ds)
}

func (o *Add) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
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
func (o *Add) PlanMemory(r *exec.Run) error { return o.planInPlace(r) }

// elementwise infers the shape of an operator of two inputs of one shape.
func (b *base) elementwise(ds []gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := b.shapes(ds)
	if err != nil {
		return nil, err
	}
	if !sameShape(s[0], s[1]) {
		return nil, fmt.Errorf("%s: %w: inputs %v and %v differ", b, ErrShape, s[0], s[1])
	}
	return s[0].Clone(), nil
}

var _ gorgonia.SDOp = (*Add)(nil)
