//go:build cuda

package cudaop

import (
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// scoreCollect runs op.ScoreCollect. With a State it goes on to what GroupTopK does
// with scores, as soon as it has some of them, and leaves full attention's output and
// the next column table with the layer.
type scoreCollect struct{ p op.AttentionParams }

func (r *scoreCollect) shape(in []tensor.Shape) error { return checkAttention(in) }
func (r *scoreCollect) ownsResult() bool              { return r.p.State != nil }

func (r *scoreCollect) run(c *call) (gorgonia.Value, error) {
	if r.p.State == nil {
		return r.pure(c)
	}
	mode, err := c.begin(r.p.State, op.Score)
	if err != nil {
		return nil, err
	}
	defer r.p.State.Spend(mode, time.Now())
	if mode != op.Refresh || r.p.Selection.Unchanging() {
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
	if l.out, err = c.handOff(outKey{r.p.State}, int64(h.batch*h.heads*h.n)*int64(h.dim)*int64(c.o.dtype().Size()), exec.Activations); err != nil {
		return nil, err
	}
	if l.fresh, err = c.handOff(nextKey{r.p.State}, l.bytes(), exec.Columns); err != nil {
		return nil, err
	}
	return placeholder(), c.refresh(h, r.p.Selection, r.p.Group, output{l.out, c.o.dtype(), true}, l.fresh)
}

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
