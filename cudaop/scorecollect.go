//go:build cuda

package cudaop

import (
	"time"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// scoreCollect runs op.ScoreCollect. With a State it leaves full attention's output
// and the scores with the layer.
type scoreCollect struct{ p op.AttentionParams }

func (r *scoreCollect) shape(in []tensor.Shape) error { return checkAttention(in) }
func (r *scoreCollect) ownsResult() bool              { return r.p.State != nil }

func (r *scoreCollect) run(c *call) (gorgonia.Value, error) {
	if r.p.State == nil {
		return r.pure(c)
	}
	mode, err := r.p.State.Begin(c.o, op.Score)
	if err != nil {
		return nil, err
	}
	defer r.p.State.Spend(mode, time.Now())
	if mode != op.Refresh || r.p.Selection.Kind == op.SelectStatic {
		return placeholder(), nil
	}
	h, err := c.heads(r.p)
	if err != nil {
		return nil, err
	}
	l, err := c.layer(r.p.State, h.batch, h.heads, h.n, r.p.Group)
	if err != nil {
		return nil, err
	}
	l.Drop()
	if l.out, err = c.memory.get(int64(h.batch*h.heads*h.n) * int64(h.dim) * int64(c.o.dtype().Size())); err != nil {
		return nil, err
	}
	rows := int64(h.batch * h.heads * groups(h.n, r.p.Group))
	if r.p.Selection.Kind != op.SelectColumns {
		if l.scores, err = c.memory.get(4 * rows * int64(blocksOf(r.p.Selection, h.n).width())); err != nil {
			return nil, err
		}
		return placeholder(), c.collectBlocks(h, r.p.Selection, r.p.Group, l.out, l.scores)
	}
	pitch, kind, size := c.scoreForm(h.n)
	if l.scores, err = c.memory.get(rows * int64(pitch) * size); err != nil {
		return nil, err
	}
	return placeholder(), r.collect(c, h, l.out, l.scores, pitch, kind)
}

// scoreForm is how rows of n scores lie between operators: the distance from one to
// the next in elements, and the elements' type and size. What rounds inputs to 8 bits
// is served by scores within 0.07 %.
func (c *call) scoreForm(n int) (pitch, kind int, size int64) {
	if c.o.precision == op.Float32 {
		return scorePitch(n), scoresFloat, 4
	}
	return scorePitch(n), scoresLog16, 2
}

// scorePitch is the distance between rows of n scores, in elements.
func scorePitch(n int) int { return (n + 7) &^ 7 }

// pure is the operator without a State: scores for the machine.
func (r *scoreCollect) pure(c *call) (gorgonia.Value, error) {
	h, err := c.heads(r.p)
	if err != nil {
		return nil, err
	}
	v, scores, err := c.machineResult(tensor.Float32, h.batch, h.heads, groups(h.n, r.p.Group), h.n)
	if err != nil {
		return nil, err
	}
	out, err := c.room(int64(h.batch*h.heads*h.n) * int64(h.dim) * int64(c.o.dtype().Size()))
	if err != nil {
		return nil, err
	}
	return v, r.collect(c, h, out, scores, h.n, scoresFloat)
}

// collect runs full attention, whose log-sum-exp the scores need.
func (r *scoreCollect) collect(c *call, h *heads, out, scores cu.DevicePtr, pitch, kind int) error {
	lse, err := c.room(4 * int64(h.batch*h.heads*h.n))
	if err != nil {
		return err
	}
	if err := c.dense(h, out, lse, c.o.dtype()); err != nil {
		return err
	}
	return c.scores(h, lse, scores, r.p.Group, pitch, kind)
}
