//go:build cuda

package cudaop

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// groupTopK runs op.GroupTopK. With a State the table is the layer's.
type groupTopK struct {
	o *op.GroupTopK
	p op.AttentionParams
	n int
}

func (r *groupTopK) shape([]tensor.Shape) error { return nil }
func (r *groupTopK) ownsResult() bool           { return r.p.State != nil }

func (r *groupTopK) run(c *call) (gorgonia.Value, error) {
	st := r.p.State
	if st == nil {
		return r.pure(c)
	}
	mode, err := st.Begin(c.o, op.Rank)
	if err != nil {
		return nil, err
	}
	defer st.Spend(mode, time.Now())
	if r.p.Selection.Kind == op.SelectStatic {
		r.o.Static()
		return placeholder(), nil
	}
	if mode == op.Reuse && !st.Built() {
		return nil, op.ErrStale
	}
	if mode == op.Refresh {
		if err := r.rebuild(c); err != nil {
			return nil, err
		}
	}
	return placeholder(), nil // ColumnSparseAttn finds the table at the layer
}

// rebuild makes the table that ScoreCollect has left the layer's.
func (r *groupTopK) rebuild(c *call) error {
	l, ok := r.p.State.Memory().(*layer)
	if !ok || l.device != c.device || l.fresh == 0 {
		return fmt.Errorf("%w: no scores", op.ErrOrder)
	}
	had := r.p.State.Built()
	r.p.State.Rebuilding()
	old := l.bits
	l.bits, l.fresh = l.fresh, 0
	defer c.memory.put(old)
	kept, added, err := c.compare(l, old)
	if err != nil {
		return err
	}
	churn := 0.0
	if had && kept > 0 {
		churn = float64(added) / float64(kept)
	}
	r.p.State.Rebuilt(float64(kept)/(float64(l.batch*l.heads)*float64(l.n)*float64(l.n)), churn)
	return nil
}

// compare counts the query-key pairs that a layer's table keeps, and those of them
// that the old table did not.
func (c *call) compare(l *layer, old cu.DevicePtr) (kept, added int64, err error) {
	at, err := c.room(16)
	if err != nil {
		return 0, 0, err
	}
	k, err := c.kernel("table", "compare_tables")
	if err != nil {
		return 0, 0, err
	}
	var pairs [2]int64
	if err := cu.MemcpyHtoD(at, unsafe.Pointer(&pairs), 16); err != nil {
		return 0, 0, fmt.Errorf("cudaop: pairs: %w", err)
	}
	u := groups(l.n, l.group)
	if err := k.launch(l.batch*l.heads*u, address(l.bits), address(old), address(at), integer(u), integer(l.n), integer(l.group)); err != nil {
		return 0, 0, err
	}
	if err := cu.MemcpyDtoH(unsafe.Pointer(&pairs), at, 16); err != nil {
		return 0, 0, fmt.Errorf("cudaop: pairs: %w", err)
	}
	return pairs[0], pairs[1], nil
}

// pure is the operator without a State: a table for the machine.
func (r *groupTopK) pure(c *call) (gorgonia.Value, error) {
	s := c.in[0].Shape()
	v, bits, err := c.machineResult(tensor.Uint32, s[0], s[1], s[2], words(r.n))
	if err != nil {
		return nil, err
	}
	scores, err := c.at(0, tensor.Float32)
	if err != nil {
		return nil, err
	}
	keep, err := c.keep(r.p.Selection, slices.Repeat([]int{r.n}, s[0]))
	if err != nil {
		return nil, err
	}
	return v, c.topk(scores, bits, keep, 0, s[0], s[1], s[2], r.n, r.n, scoresFloat)
}
