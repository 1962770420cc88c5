//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Attention of some rows over cached keys. A prefill computes all rows by the kernels for
// that, except the active ones in a step that selects their columns.

const (
	// cachedBlocks bounds the blocks of a launch, whose partial results are in memory.
	cachedBlocks = 448
	// fewestRows is the smallest tile of rows of the kernels.
	fewestRows = 32
)

// cachedMemory is the memory of the kernels of attention over cached keys.
type cachedMemory struct{ partials, arrived cu.DevicePtr }

// counters says which counters an operator has set to zero. Kernels leave them so.
type counters struct {
	plan *exec.Plan
	at   cu.DevicePtr
}

// countersKey is the key of counters of the given size: all operators of a graph use the
// same.
type countersKey struct{ bytes int64 }

// cachedMemory requests the memory for attention of h's rows, in groups.
func (c *call) cachedMemory(h *heads, group int, zero *counters) (m cachedMemory, err error) {
	rows, dim := 64, h.dim
	if h.dt == tensor.Float32 {
		rows, dim = 32, gpu.MaxHeadDim
	}
	if m.partials, err = c.scratch(4 * 2 * cachedBlocks * int64(rows) * int64(dim+2)); err != nil {
		return m, err
	}
	bytes := 4 * int64(h.batch) * int64(h.heads) * int64(h.rows/fewestRows+1+groups(h.rows, group))
	if m.arrived, err = c.keep(countersKey{bytes}, bytes, exec.Activations); err != nil || c.isPlan() {
		return m, err
	}
	var plan *exec.Plan
	if from, ok := c.source.(*planned); ok {
		plan = from.plan
	}
	if now := (counters{plan, m.arrived}); *zero != now {
		*zero = now
		err = c.queue.fill(m.arrived, 0, bytes/4)
	}
	return m, err
}

// cachedKeys are the keys that rows attend to: those of lists, or by position, or all.
type cachedKeys struct {
	lists  *columnLists
	window bool
	reach  int
	sinks  int
}

// attendCached queues attention of the rows h.from .. h.to-1 to some of the cached keys. out.at
// or lse may be 0.
func (c *call) attendCached(h *heads, m cachedMemory, out output, lse cu.DevicePtr, keys cachedKeys) error {
	first, err := c.firstRow()
	if err != nil {
		return err
	}
	l, start, share := keys.lists, h.start, h.heads/h.kvHeads
	reach, sinks := 0, h.n
	if keys.window {
		reach, sinks = min(keys.reach, h.n), min(keys.sinks, h.n)
	}
	if l == nil {
		l = &columnLists{group: 1, width: 1}
	} else {
		start, share = 0, l.share
	}
	file, dim, tile := "cachedattn_sm80", h.dim, 64
	if h.dt == tensor.Float32 {
		file, dim, tile = "cachedattn_"+exact, gpu.MaxHeadDim, 32
	}
	k, err := c.kernel(file, fmt.Sprintf("%s_d%d", file, dim))
	if err != nil {
		return err
	}
	args := []uint64{
		address(h.q), address(h.k), address(h.v), address(out.at), address(lse), address(start), address(first), integer(reach), integer(sinks),
		address(l.keys), address(l.members), address(l.tiles), integer(l.capacity), address(m.partials), address(m.arrived),
		integer(h.batch), integer(h.heads), integer(h.kvHeads), integer(h.n), integer(h.rows), integer(h.from), integer(h.to),
		integer(share), integer(l.group), integer(l.width), float(h.scale), elementType(out.dt), flag(out.bnhd),
	}
	if h.dt == tensor.Float32 {
		args = append(args, integer(h.dim))
	}
	work := h.batch * (h.heads / share) * (((h.to-h.from)*share-1)/tile + 1) * ((h.n-1)/64 + 1)
	return k.launch(min(work, cachedBlocks), args...)
}

// cached is the operator over cached keys, except where ScoreCollect hands its output over.
func (r *columnSparseAttn) cached(c *call, mode exec.Mode, l *layer) (gorgonia.Value, error) {
	st, q := r.p.State, c.in[0].Shape()
	whole, static, reuse := q[2] == r.p.Cached, r.p.Selection.Kind == exec.SelectStatic, mode == exec.Reuse
	switch {
	case whole && !reuse:
		return denseResult(c, r.p)
	case whole && static:
		return r.window(c)
	}
	find := c.heads
	if whole {
		find = c.selected
	}
	h, err := find(r.p)
	if err != nil {
		return nil, err
	}
	v, out, err := c.attentionResult()
	if err != nil {
		return nil, err
	}
	m, err := c.cachedMemory(h, r.p.Group, &r.counters)
	if err != nil {
		return nil, err
	}
	var pass exec.Pass
	if !c.isPlan() {
		pass = st.Step().Pass()
	}
	switch {
	case !reuse:
		return v, c.attendCached(h, m, out, 0, cachedKeys{})
	case static:
		return v, c.attendCached(h, m, out, 0, cachedKeys{window: true, reach: r.p.Selection.Reach, sinks: r.p.Selection.Sinks(h.n)})
	case pass.Kind == exec.Prefill:
		return v, r.reusePrefill(c, h, m, out, l)
	}
	at, err := c.listMemory(h, r.p, h.rows)
	if err != nil {
		return nil, err
	}
	if c.isPlan() {
		return v, c.attendCached(h, m, out, 0, cachedKeys{})
	}
	if l == nil || l.runner != c.runner || !st.BlockBuilt() || l.block == nil || l.block.addresses() != at {
		return nil, fmt.Errorf("%w: of the block", op.ErrStale)
	}
	return v, c.attendCached(h, m, out, 0, cachedKeys{lists: l.block})
}

// reusePrefill attends to the columns of the layer's table, and from the active rows to all
// keys where the step selects their columns.
func (r *columnSparseAttn) reusePrefill(c *call, h *heads, m cachedMemory, out output, l *layer) error {
	if l == nil || l.runner != c.runner || !r.p.State.Built() {
		return op.ErrStale
	}
	if err := c.sparse(h, table{l.bits, l.batch, l.heads}, out, r.p.Group); err != nil {
		return err
	}
	pass := r.p.State.Step().Pass()
	if !pass.Select {
		return nil
	}
	active := *h
	active.from, active.to = pass.From, pass.To
	return c.attendCached(&active, m, out, 0, cachedKeys{})
}
