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
	if mode != op.Refresh {
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
	if l.out, err = c.memory.get(2 * int64(h.batch*h.heads*h.n) * int64(h.dim)); err != nil {
		return nil, err
	}
	pitch := logPitch(h.n)
	if l.scores, err = c.memory.get(2 * int64(h.batch*h.heads*groups(h.n, r.p.Group)) * int64(pitch)); err != nil {
		return nil, err
	}
	if err := r.collect(c, h, l.out, l.scores, pitch, scoresLog16); err != nil {
		return nil, err
	}
	return placeholder(), nil
}

// logPitch is the distance between rows of log16 scores, in elements.
func logPitch(n int) int { return (n + 7) &^ 7 }

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
	out, err := c.room(2 * int64(h.batch*h.heads*h.n) * int64(h.dim))
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
	if err := c.dense(h, out, lse, false); err != nil {
		return err
	}
	return c.scores(h, lse, scores, r.p.Group, pitch, kind)
}
