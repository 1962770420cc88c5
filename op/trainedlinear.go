package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type trainedLinear struct {
	base
	scale float32
}

// NewTrainedLinear returns the linear layer named by path whose weight is an input, so that a
// solver can change it:
//
//	y = scale * x Wᵀ
//
// x [B,N,in], weight [out,in] -> [B,N,out]. Products are float32. It is differentiable in
// both. It runs on the CPU only, as all of training does.
func NewTrainedLinear(path string, scale float64) gorgonia.Op {
	b := newBase("TrainedLinear", path, []hm.Type{float3, float2}, float3, scale)
	o := &trainedLinear{b, float32(scale)}
	o.slopes = []slope{{reads: []int{1}, compute: o.inputGrad}, {reads: []int{0}, compute: o.weightGrad}}
	return o
}

// Spec is nil: there is no implementation on a device.
func (o *trainedLinear) Spec() any { return nil }

func (o *trainedLinear) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkTrained(o, s[0], s[1]); err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], s[0][1], s[1][0]}, nil
}

// checkTrained checks that x [B,N,in] has the features that a weight [out,in] takes.
func checkTrained(o fmt.Stringer, x, w tensor.Shape) error {
	if x[2] != w[1] {
		return fmt.Errorf("%s: %w: input %v has %d features, weight %v takes %d", o, ErrShape, x, x[2], w, w[1])
	}
	return nil
}

func (o *trainedLinear) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	x, w := ts[0].Shape(), ts[1].Shape()
	if err := checkTrained(o, x, w); err != nil {
		return nil, err
	}
	out, y, err := o.result(x[0], x[1], w[0])
	if err != nil {
		return nil, err
	}
	o.team().MatMul(timesTransposed(y, float32s(ts[0]), float32s(ts[1]), x[0]*x[1], w, o.scale))
	return o.finish(out)
}

// timesTransposed is y = scale * x wᵀ for rows rows of x.
func timesTransposed(y, x, w []float32, rows int, shape tensor.Shape, scale float32) kernel.MatMul {
	out, in := shape[0], shape[1]
	return kernel.MatMul{M: rows, N: out, K: in, A: x, LDA: in, B: w, TransB: true, C: y, LDC: out, Scale: scale}
}

// times is dx = scale * dy w for rows rows of dy.
func times(dx, dy, w []float32, rows int, shape tensor.Shape, scale float32) kernel.MatMul {
	out, in := shape[0], shape[1]
	return kernel.MatMul{M: rows, N: in, K: out, A: dy, LDA: out, B: w, C: dx, LDC: in, Scale: scale}
}

// outer is dw = scale * dyᵀ x for rows rows of dy and x.
func outer(dw, dy, x []float32, rows int, shape tensor.Shape, scale float32) kernel.MatMul {
	out, in := shape[0], shape[1]
	return kernel.MatMul{M: out, N: in, K: rows, A: dy, LDA: out, TransA: true, B: x, C: dw, LDC: in, Scale: scale}
}

func (o *trainedLinear) inputGrad(r *slopeRun) error {
	r.team.MatMul(times(r.dx, r.dy, float32s(r.in[1]), r.shape[0]*r.shape[1], r.in[1].Shape(), o.scale))
	return nil
}

func (o *trainedLinear) weightGrad(r *slopeRun) error {
	x := r.in[0].Shape()
	r.team.MatMul(outer(r.dx, r.dy, float32s(r.in[0]), x[0]*x[1], r.shape, o.scale))
	return nil
}

var _ exec.Operator = (*trainedLinear)(nil)
