package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Linear is y = x Wᵀ + bias: x [B,N,in] -> [B,N,out]. The weight belongs to the
// operator and stays in its storage type; products are of the weight's precision
// and accumulate in float32.
type Linear struct {
	base
	weight Weight    // [out, in]
	bias   []float32 // [out], or nil
}

// NewLinear returns the linear layer named by path. bias may be nil; otherwise
// it has one element for each row of weight.
func NewLinear(path string, weight Weight, bias []float32) (*Linear, error) {
	if bias != nil && len(bias) != weight.Rows {
		return nil, fmt.Errorf("op: Linear %q: %w: bias has %d elements, weight %d rows", path, ErrShape, len(bias), weight.Rows)
	}
	if err := weight.Precision.Validate(); err != nil {
		return nil, fmt.Errorf("op: Linear %q: %w: %v", path, ErrValue, err)
	}
	b := newBase("Linear", path, []hm.Type{float3}, float3, weight.Rows, weight.Cols, bias != nil, weight.Precision.String())
	return &Linear{b, weight, bias}, nil
}

func (o *Linear) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if s[0][2] != o.weight.Cols {
		return nil, fmt.Errorf("%s: %w: input %v has %d features, weight [%d %d] takes %d", o, ErrShape, s[0], s[0][2], o.weight.Rows, o.weight.Cols, o.weight.Cols)
	}
	return tensor.Shape{s[0][0], s[0][1], o.weight.Rows}, nil
}

func (o *Linear) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.values(in)
	if err != nil {
		return nil, err
	}
	s := ts[0].Shape()
	out, y := o.result(s[0], s[1], o.weight.Rows)
	o.team().Linear(y, float32s(ts[0]), s[0]*s[1], &o.weight, o.bias)
	return o.finish(out, ts)
}

func (o *Linear) mergesWith(other gorgonia.Op) bool {
	l, ok := other.(*Linear)
	return ok && sameWeight(&o.weight, &l.weight) && sameFloats(o.bias, l.bias)
}

var _ gorgonia.SDOp = (*Linear)(nil)
