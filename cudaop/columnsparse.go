//go:build cuda

package cudaop

import (
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(s exec.ColumnSparseAttn) (implementation, error) {
		return &columnSparseAttn{p: s.Attention}, checkParams(s.Attention)
	})
}

// columnSparseAttn runs op.NewColumnSparseAttn.
type columnSparseAttn struct {
	layerOp
	p        exec.Attention
	counters counters
}

func (r *columnSparseAttn) shape(in []tensor.Shape) error { return checkAttention(in) }

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
	mode, err := c.begin(st, exec.Attend)
	if err != nil {
		return nil, err
	}
	defer c.addTime(st, mode, time.Now())
	l, _ := st.Device().(*layer)
	if r.p.Cached > 0 && (mode != exec.Refresh || r.p.Selection.Unchanging() || c.in[0].Shape()[2] < r.p.Cached) {
		return r.cached(c, mode, l)
	}
	switch static := r.p.Selection.Kind == exec.SelectStatic; {
	case c.isPlan() && mode == exec.Refresh && !static:
		return r.handOver(c, 0)
	case mode == exec.Refresh && l != nil && l.runner == c.runner && l.out != 0:
		out := l.out
		l.out = 0
		return r.handOver(c, out)
	case mode == exec.Reuse && static:
		return r.window(c)
	case mode == exec.Reuse && c.isPlan():
		return r.reuse(c, table{})
	case mode == exec.Reuse:
		if l == nil || l.runner != c.runner || !st.Built() {
			return nil, op.ErrStale
		}
		return r.reuse(c, table{l.bits, l.batch, l.heads})
	}
	return denseResult(c, r.p)
}

// handOver makes the output that ScoreCollect has computed the result.
func (r *columnSparseAttn) handOver(c *call, at cu.DevicePtr) (gorgonia.Value, error) {
	shape := c.in[0].Shape()
	out := newDeviceTensor(c.o.dtype(), shape)
	out.at, out.bnhd = at, true
	c.adopt(outKey{r.p.State})
	if c.o.Placement().PlannedResult() {
		return out, nil
	}
	v, to, err := c.machineResult(tensor.Float32, shape...)
	if err != nil {
		return nil, err
	}
	return v, c.toBHND(out, to, tensor.Float32)
}

// window attends to the keys of a static pattern.
func (r *columnSparseAttn) window(c *call) (gorgonia.Value, error) {
	h, err := c.selected(r.p)
	if err != nil {
		return nil, err
	}
	v, out, err := c.attentionResult()
	if err != nil {
		return nil, err
	}
	return v, c.window(h, out, r.p.Selection.Reach, r.p.Selection.Sinks(h.n))
}

// reuse attends to the columns of a table.
func (r *columnSparseAttn) reuse(c *call, t table) (gorgonia.Value, error) {
	p := r.p
	p.Masked = false // tables have no padding keys
	h, err := c.selected(p)
	if err != nil {
		return nil, err
	}
	v, out, err := c.attentionResult()
	if err != nil {
		return nil, err
	}
	return v, c.sparse(h, t, out, p.Group)
}
