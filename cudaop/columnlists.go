//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
)

// columnLists are the keys that the active rows of a block keep: bitmaps of all groups, and
// lists of the keys of some heads and groups together, which attention reads.
type columnLists struct {
	bits                 cu.DevicePtr // [batch, heads, groups, words]
	keys, members, tiles cu.DevicePtr // see kernels/README.md
	count, capacity      int          // lists, and the keys of each
	share, group, width  int          // heads of a list, rows of a group, groups of a list
	sizes                [4]int64     // in bytes, of bits, keys, members and tiles
}

// listsKey is the key of a part of a layer's lists.
type listsKey struct {
	s    *exec.State
	part int
}

const (
	mostMembers = 32 // heads and groups that a list tells apart
	keyTile     = 64 // keys that attention reads at a time
)

// listsOf returns the lists of so many active rows, of which some are in the block, without
// their memory. Lists serve all query heads of a key head where that is faster: one reads
// keys once, and multiplies all of its rows by each of them.
func (h *heads) listsOf(p exec.Attention, active, block int) *columnLists {
	ratio, keep := h.heads/h.kvHeads, p.Keep(h.n)
	if p.Selection.Kind == exec.SelectBlocks {
		keep = p.Keep(groups(h.n, p.Selection.Block)) * p.Selection.Block
	}
	l := &columnLists{share: 1, group: min(p.Group, active)}
	if keep*ratio > 2*h.n {
		for l.share = min(ratio, mostMembers); ratio%l.share != 0; {
			l.share--
		}
	}
	u := groups(active, p.Group)
	l.width = min(u, mostMembers/l.share)
	l.count = h.batch * (h.heads / l.share) * groups(u, l.width)
	l.capacity = groups(min(h.n, keep*l.share*l.width+block), keyTile) * keyTile
	entries := 4 * int64(l.count) * int64(l.capacity)
	l.sizes = [4]int64{4 * int64(h.batch*h.heads*u) * int64(words(h.n)), entries, entries, 4 * int64(l.count+1)}
	return l
}

// addresses are those of the bits, keys, members and tiles of lists.
type addresses [4]cu.DevicePtr

func (l *columnLists) addresses() addresses { return addresses{l.bits, l.keys, l.members, l.tiles} }

// listMemory returns the memory of a layer's lists of so many active rows. That of a graph of
// some rows is planned, for all of them active and the sparsity that the layer has at first. A
// graph of all rows, of which the step says how many are active, takes what the graphs have
// that read the lists.
func (c *call) listMemory(h *heads, p exec.Attention, active int) (at addresses, err error) {
	first := p
	first.State = nil // without its sparsity
	if h.rows < h.n {
		active = h.rows
	}
	for i, bytes := range h.listsOf(first, active, active).sizes { // the block's end is not known to a plan
		switch key := (listsKey{p.State, i}); {
		case h.rows < h.n:
			at[i], err = c.ofLayer(key, bytes)
		case !c.isPlan():
			at[i], err = c.runner.loose(key, bytes)
		}
		if err != nil {
			return at, err
		}
	}
	return at, nil
}

// columnLists is listsOf with memory, more of it than is planned where a lower sparsity needs
// that.
func (c *call) columnLists(h *heads, p exec.Attention, active, block int) (*columnLists, error) {
	at, err := c.listMemory(h, p, active)
	if err != nil {
		return nil, err
	}
	l := h.listsOf(p, active, block)
	for i, to := range []*cu.DevicePtr{&l.bits, &l.keys, &l.members, &l.tiles} {
		if *to = at[i]; c.isPlan() {
			continue
		}
		if *to, err = c.runner.loose(listsKey{p.State, i}, l.sizes[i]); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// alwaysDense reports whether a layer attends to all keys in every step.
func alwaysDense(s *exec.State) bool { return s.ModeIn(exec.Reuse) == exec.Dense }

// selectsBlock reports whether the step selects the columns of the active rows, or while memory
// is planned, whether a step may.
func (c *call) selectsBlock(p exec.Attention) bool {
	switch {
	case p.Cached == 0 || alwaysDense(p.State):
		return false
	case c.isPlan():
		return !p.Selection.Unchanging() && p.State.Selected(p.Selection).Sparsity > 0
	}
	return p.State.Step().Pass().Select
}

// selectBlock queues the selection of the columns of the step's active rows.
func (c *call) selectBlock(all *heads, p exec.Attention, zero *counters) error {
	pass, h := exec.Pass{To: all.rows, End: all.rows}, *all
	if !c.isPlan() {
		pass = p.State.Step().Pass()
	}
	h.from, h.to = pass.From-pass.First, pass.To-pass.First
	m, err := c.cachedMemory(&h, p.Group, zero)
	if err != nil {
		return err
	}
	lse, err := c.scratch(4 * int64(h.batch*h.heads*h.rows))
	if err != nil {
		return err
	}
	l, err := c.columnLists(&h, p, h.to-h.from, pass.End-pass.From)
	if err != nil {
		return err
	}
	if err := c.attendCached(&h, m, output{}, lse, cachedKeys{}); err != nil {
		return err
	}
	if err := c.selectKeys(&h, p, lse, l.bits); err != nil || c.isPlan() {
		return err
	}
	k, err := c.kernel("columnlists", "columnlists")
	if err != nil {
		return err
	}
	if err := k.launch(l.count, address(l.bits), address(l.keys), address(l.members), address(l.tiles),
		integer(h.batch), integer(h.heads), integer(groups(h.to-h.from, p.Group)), integer(h.n), integer(l.share), integer(l.width),
		integer(pass.From), integer(pass.End), integer(l.capacity)); err != nil {
		return err
	}
	if k, err = c.kernel("columnlists", "columnlists_tiles"); err != nil {
		return err
	}
	on, ok := p.State.Device().(*layer)
	if !ok || on.runner != c.runner {
		return fmt.Errorf("%w: no prefill has refreshed the columns", op.ErrStale)
	}
	on.block = l
	return k.launch(1, address(l.tiles), integer(l.count))
}

// selectedBlock records that the columns of the step's active rows are selected.
func (c *call) selectedBlock(p exec.Attention) error {
	if alwaysDense(p.State) {
		p.State.SelectedBlock(0, 0, p.Group, 0)
		return nil
	}
	l, ok := p.State.Device().(*layer)
	if !ok || l.runner != c.runner || l.block == nil {
		return fmt.Errorf("%w: no scores", op.ErrOrder)
	}
	var bytes int64
	for _, size := range l.block.sizes {
		bytes += size
	}
	p.State.SelectedBlock(l.batch, l.heads, p.Group, bytes)
	return nil
}
