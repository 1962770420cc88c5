//go:build cuda

package cudaop

import (
	"slices"
	"time"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// columnSparseAttn runs op.ColumnSparseAttn.
type columnSparseAttn struct{ p op.AttentionParams }

func (r *columnSparseAttn) shape(in []tensor.Shape) error { return checkAttention(in) }
func (r *columnSparseAttn) ownsResult() bool              { return false }

func (r *columnSparseAttn) run(c *call) (gorgonia.Value, error) {
	st := r.p.State
	if st == nil {
		bits, err := c.at(3, tensor.Uint32)
		if err != nil {
			return nil, err
		}
		s := c.in[3].Shape()
		return r.reuse(c, table{bits, s[0], s[1]})
	}
	mode, err := st.Begin(c.o, op.Attend)
	if err != nil {
		return nil, err
	}
	defer st.Spend(mode, time.Now())
	l, _ := st.Memory().(*layer)
	switch {
	case mode == op.Refresh && l != nil && l.device == c.device && l.out != 0:
		return r.handOver(c, l)
	case mode == op.Reuse && r.p.Selection.Kind == op.SelectStatic:
		return r.window(c)
	case mode == op.Reuse:
		if l == nil || l.device != c.device || !st.Built() {
			return nil, op.ErrStale
		}
		return r.reuse(c, table{l.bits, l.batch, l.heads})
	}
	return denseResult(c, r.p)
}

// handOver makes the output that ScoreCollect left the result.
func (r *columnSparseAttn) handOver(c *call, l *layer) (gorgonia.Value, error) {
	shape := c.in[0].Shape()
	_, readers := c.o.Planned()
	out := &resident{at: l.out, sh: slices.Clone(shape), dt: c.o.dtype(), byTokens: true, readers: readers}
	l.out = 0
	if readers > 0 {
		return out, nil
	}
	c.scratch = append(c.scratch, out.at)
	v, at, err := c.machineResult(tensor.Float32, shape...)
	if err != nil {
		return nil, err
	}
	return v, c.byHeads(out, at, tensor.Float32)
}

// window attends to the keys of a static pattern.
func (r *columnSparseAttn) window(c *call) (gorgonia.Value, error) {
	h, err := c.wanted(r.p)
	if err != nil {
		return nil, err
	}
	v, out, err := c.attended()
	if err != nil {
		return nil, err
	}
	return v, c.window(h, out, r.p.Selection.Reach, r.p.Selection.Sinks(h.n))
}

// reuse attends to the columns of a table.
func (r *columnSparseAttn) reuse(c *call, t table) (gorgonia.Value, error) {
	p := r.p
	p.Masked = false // padding is in no table
	h, err := c.wanted(p)
	if err != nil {
		return nil, err
	}
	v, out, err := c.attended()
	if err != nil {
		return nil, err
	}
	return v, c.sparse(h, t, out, p.Group)
}
