package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type rmsNorm struct {
	base
	spec exec.RMSNorm
}

// NewRMSNorm returns the normalisation named by path,
//
//	y = weight * x / sqrt(mean(x²) + eps)
//
// over the features of each token: x [B,N,D] -> [B,N,D], weight [D] (Zhang and Sennrich,
// arXiv 1910.07467). It has no gradient.
func NewRMSNorm(path string, weight []float32, eps float64) gorgonia.Op {
	b := newBase("RMSNorm", path, []hm.Type{float3}, float3, len(weight), eps)
	return &rmsNorm{b, exec.RMSNorm{Weight: weight, Eps: float32(eps)}}
}

func (o *rmsNorm) Spec() any { return o.spec }

func (o *rmsNorm) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if w := o.spec.Weight; s[0][2] != len(w) {
		return nil, fmt.Errorf("%s: %w: input %v has %d features, weight %d", o, ErrShape, s[0], s[0][2], len(w))
	}
	return s[0].Clone(), nil
}

func (o *rmsNorm) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	out, y, err := o.result(ts[0].Shape()...)
	if err != nil {
		return nil, err
	}
	o.team().RMSNorm(y, float32s(ts[0]), o.spec.Weight, o.spec.Eps)
	return o.finish(out)
}

func (o *rmsNorm) MergesWith(other gorgonia.Op) bool {
	n, ok := other.(*rmsNorm)
	return ok && sameFloats(o.spec.Weight, n.spec.Weight)
}

var _ exec.Operator = (*rmsNorm)(nil)
