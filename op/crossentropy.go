package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type crossEntropy struct{ base }

// NewCrossEntropy returns the loss named by path of each row of logits,
//
//	loss = log(sum of exp(logits)) - logits[target]
//
// logits [R,V], targets [R] int32 -> [R]. The loss of a negative target is 0, and so is the
// gradient of its row. A target from V on is an ErrValue of the run. It is differentiable in
// the logits.
func NewCrossEntropy(path string) gorgonia.Op {
	b := newBase("CrossEntropy", path, []hm.Type{float2, int1}, float1)
	b.slopes = []slope{{reads: []int{0, 1}, compute: func(r *slopeRun) error {
		r.team.CrossEntropyGrad(r.dx, r.dy, float32s(r.in[0]), int32s(r.in[1]))
		return nil
	}}, {}}
	return &crossEntropy{b}
}

// Spec is nil: there is no implementation on a device.
func (o *crossEntropy) Spec() any { return nil }

func (o *crossEntropy) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if s[0][0] != s[1][0] {
		return nil, fmt.Errorf("%s: %w: logits %v of %d rows for %d targets", o, ErrShape, s[0], s[0][0], s[1][0])
	}
	return s[1].Clone(), nil
}

func (o *crossEntropy) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	targets, vocab := int32s(ts[1]), ts[0].Shape()[1]
	for r, target := range targets {
		if int(target) >= vocab {
			return nil, fmt.Errorf("%s: %w: targets[%d] is %d, the logits are of %d tokens", o, ErrValue, r, target, vocab)
		}
	}
	out, loss, err := o.result(len(targets))
	if err != nil {
		return nil, err
	}
	o.team().CrossEntropy(loss, float32s(ts[0]), targets)
	return o.finish(out)
}

var _ exec.Operator = (*crossEntropy)(nil)
