package op

import (
	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type trainedLMHead struct{ base }

// NewTrainedLMHead is NewLMHead with the weight as an input: x [1,R,D], rows [R] int32,
// weight [V,D] -> logits [R,V]. It is differentiable in x and the weight, and runs on the CPU
// only.
func NewTrainedLMHead(path string) gorgonia.Op {
	b := newBase("TrainedLMHead", path, []hm.Type{float3, int1, float2}, float2)
	b.slopes = []slope{
		{reads: []int{1, 2}, compute: func(r *slopeRun) error {
			w, d := r.in[2].Shape(), r.shape[2]
			clear(r.dx)
			for first, end := range selectedRuns(int32s(r.in[1])) {
				r.team.MatMul(times(r.dx[first*d:], r.dy[first*w[0]:], float32s(r.in[2]), end-first, w, 1))
			}
			return nil
		}},
		{},
		{reads: []int{0, 1}, compute: func(r *slopeRun) error {
			vocab, d := r.shape[0], r.shape[1]
			clear(r.dx)
			for first, end := range selectedRuns(int32s(r.in[1])) {
				p := outer(r.dx, r.dy[first*vocab:], float32s(r.in[0])[first*d:end*d], end-first, r.shape, 1)
				p.Add = true
				r.team.MatMul(p)
			}
			return nil
		}},
	}
	return &trainedLMHead{b}
}

// Spec is nil: there is no implementation on a device.
func (o *trainedLMHead) Spec() any { return nil }

func (o *trainedLMHead) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkTrained(o, s[0], s[2]); err != nil {
		return nil, err
	}
	if err := checkSelected(o, s[0], s[1]); err != nil {
		return nil, err
	}
	return tensor.Shape{s[1][0], s[2][0]}, nil
}

func (o *trainedLMHead) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	if err := checkSelected(o, ts[0].Shape(), ts[1].Shape()); err != nil {
		return nil, err
	}
	x, rows, w := float32s(ts[0]), int32s(ts[1]), ts[2].Shape()
	out, y, err := o.result(len(rows), w[0])
	if err != nil {
		return nil, err
	}
	for first, end := range selectedRuns(rows) {
		o.team().MatMul(timesTransposed(y[first*w[0]:], x[first*w[1]:end*w[1]], float32s(ts[2]), end-first, w, 1))
	}
	return o.finish(out)
}

var _ exec.Operator = (*trainedLMHead)(nil)
