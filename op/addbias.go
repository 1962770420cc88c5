package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type addBias struct{ base }

// NewAddBias returns the addition, named by path, of one vector to the features of each token:
// x [B,N,D], bias [D] -> [B,N,D]. It is differentiable in both. The bias of a Linear whose
// weights are constants is a constant in that operator.
func NewAddBias(path string) gorgonia.Op {
	b := newBase("AddBias", path, []hm.Type{float3, float1}, float3)
	b.slopes = []slope{{same: true}, {compute: sumRows}}
	return &addBias{b}
}

// sumRows is the gradient with respect to the bias.
func sumRows(r *slopeRun) error {
	clear(r.dx)
	for i := 0; i < len(r.dy); i += len(r.dx) {
		addFloats(r.dx, r.dy[i:])
	}
	return nil
}

// Spec is nil: there is no implementation on a device.
func (o *addBias) Spec() any { return nil }

func (o *addBias) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if s[0][2] != s[1][0] {
		return nil, fmt.Errorf("%s: %w: input %v has %d features, bias %d", o, ErrShape, s[0], s[0][2], s[1][0])
	}
	return s[0].Clone(), nil
}

func (o *addBias) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	x, bias := float32s(ts[0]), float32s(ts[1])
	if ts[0].Shape()[2] != len(bias) {
		return nil, fmt.Errorf("%s: %w: input %v, bias %d", o, ErrShape, ts[0].Shape(), len(bias))
	}
	out, y, err := o.result(ts[0].Shape()...)
	if err != nil {
		return nil, err
	}
	copy(y, x)
	for i := 0; i < len(y); i += len(bias) {
		addFloats(y[i:i+len(bias)], bias)
	}
	return o.finish(out)
}

var _ exec.Operator = (*addBias)(nil)
