package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// RMSNorm is y = w * x / sqrt(mean(x²) + eps) over the features of each token:
// x [B,N,D] -> [B,N,D].
type RMSNorm struct {
	base
	weight []float32 // [D]
	eps    float32
}

// NewRMSNorm returns the normalisation named by path.
func NewRMSNorm(path string, weight []float32, eps float64) *RMSNorm {
	return &RMSNorm{newBase("RMSNorm", path, []hm.Type{float3}, float3, len(weight), eps), weight, float32(eps)}
}

func (o *RMSNorm) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if s[0][2] != len(o.weight) {
		return nil, fmt.Errorf("%s: %w: input %v has %d features, weight %d", o, ErrShape, s[0], s[0][2], len(o.weight))
	}
	return s[0].Clone(), nil
}

func (o *RMSNorm) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	out, y, err := o.result(ts[0].Shape()...)
	if err != nil {
		return nil, err
	}
	o.team().RMSNorm(y, float32s(ts[0]), o.weight, o.eps)
	return o.finish(out)
}

func (o *RMSNorm) mergesWith(other gorgonia.Op) bool {
	n, ok := other.(*RMSNorm)
	return ok && sameFloats(o.weight, n.weight)
}

var _ gorgonia.SDOp = (*RMSNorm)(nil)
