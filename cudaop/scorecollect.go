//go:build cuda

package cudaop

import (
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(s exec.ScoreCollect) (implementation, error) {
		return &scoreCollect{p: s.Attention}, checkParams(s.Attention)
	})
}

// scoreCollect runs op.NewScoreCollect. In a controller's layer it does GroupTopK's work too,
// for some heads at a time, so that all scores are never in memory together. It hands full
// attention's output and the next column table to the next operators.
type scoreCollect struct {
	p        exec.Attention
	counters counters
}

func (r *scoreCollect) shape(in []tensor.Shape) error { return checkAttention(in) }
func (r *scoreCollect) ownsResult() bool              { return r.p.State != nil }

func (r *scoreCollect) run(c *call) (gorgonia.Value, error) {
	if r.p.State == nil {
		return r.pure(c)
	}
	mode, err := c.begin(r.p.State, exec.CollectScores)
	if err != nil {
		return nil, err
	}
	defer c.addTime(r.p.State, mode, time.Now())
	refreshes := mode == exec.Refresh && !r.p.Selection.Unchanging() && (r.p.Cached == 0 || r.p.Cached == c.in[0].Shape()[2])
	selects := c.selectsBlock(r.p)
	if !refreshes && !selects {
		return placeholder(), nil
	}
	h, err := c.heads(r.p)
	if err != nil {
		return nil, err
	}
	if refreshes {
		if err := r.refresh(c, h); err != nil {
			return nil, err
		}
	}
	if selects {
		return placeholder(), c.selectBlock(h, r.p, &r.counters)
	}
	return placeholder(), nil
}

// refresh computes the layer's next column table, and the output of full attention.
func (r *scoreCollect) refresh(c *call, h *heads) error {
	l, err := c.layer(r.p.State, h.batch, h.heads, h.n, r.p.Group)
	if err != nil {
		return err
	}
	l.Drop()
	if l.out, err = c.handOff(outKey{r.p.State}, int64(h.batch*h.heads*h.n)*int64(h.dim)*int64(c.o.dtype().Size()), exec.Activations); err != nil {
		return err
	}
	if l.fresh, err = c.handOff(nextKey{r.p.State}, l.bytes(), exec.Columns); err != nil {
		return err
	}
	return c.refresh(h, r.p, output{l.out, c.o.dtype(), true}, l.fresh)
}

// pure is the operator outside a controller's layer: scores for the machine.
func (r *scoreCollect) pure(c *call) (gorgonia.Value, error) {
	h, err := c.heads(r.p)
	if err != nil {
		return nil, err
	}
	v, scores, err := c.machineResult(tensor.Float32, h.batch, h.heads, groups(h.n, r.p.Group), h.n)
	if err != nil {
		return nil, err
	}
	out, err := c.scratch(int64(h.batch*h.heads*h.n) * int64(h.dim) * int64(c.o.dtype().Size()))
	if err != nil {
		return nil, err
	}
	lse, err := c.scratch(4 * int64(h.batch*h.heads*h.n))
	if err != nil {
		return nil, err
	}
	if err := c.dense(h, output{at: out, dt: c.o.dtype()}, lse); err != nil {
		return nil, err
	}
	return v, c.scores(h, lse, scores, r.p.Group, h.n, scoresFloat)
}
