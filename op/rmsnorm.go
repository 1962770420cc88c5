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
// arXiv 1910.07467). It is differentiable in x.
func NewRMSNorm(path string, weight []float32, eps float64) gorgonia.Op {
	b := newBase("RMSNorm", path, []hm.Type{float3}, float3, len(weight), eps)
	b.slopes = []slope{{reads: []int{0}, compute: func(r *slopeRun) error {
		r.team.RMSNormGrad(r.dx, nil, r.dy, float32s(r.in[0]), weight, float32(eps))
		return nil
	}}}
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

type trainedRMSNorm struct {
	base
	eps float32
}

// NewTrainedRMSNorm is NewRMSNorm with the weight as an input: x [B,N,D], weight [D] ->
// [B,N,D]. It is differentiable in both, and runs on the CPU only.
func NewTrainedRMSNorm(path string, eps float64) gorgonia.Op {
	b := newBase("TrainedRMSNorm", path, []hm.Type{float3, float1}, float3, eps)
	both := []int{0, 1}
	b.slopes = []slope{
		{reads: both, compute: func(r *slopeRun) error {
			r.team.RMSNormGrad(r.dx, nil, r.dy, float32s(r.in[0]), float32s(r.in[1]), float32(eps))
			return nil
		}},
		{reads: both, compute: func(r *slopeRun) error {
			r.team.RMSNormGrad(nil, r.dx, r.dy, float32s(r.in[0]), float32s(r.in[1]), float32(eps))
			return nil
		}},
	}
	return &trainedRMSNorm{b, float32(eps)}
}

// Spec is nil: there is no implementation on a device.
func (o *trainedRMSNorm) Spec() any { return nil }

func (o *trainedRMSNorm) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if s[0][2] != s[1][0] {
		return nil, fmt.Errorf("%s: %w: input %v has %d features, weight %d", o, ErrShape, s[0], s[0][2], s[1][0])
	}
	return s[0].Clone(), nil
}

func (o *trainedRMSNorm) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	out, y, err := o.result(ts[0].Shape()...)
	if err != nil {
		return nil, err
	}
	o.team().RMSNorm(y, float32s(ts[0]), float32s(ts[1]), o.eps)
	return o.finish(out)
}

var _ exec.Operator = (*trainedRMSNorm)(nil)
