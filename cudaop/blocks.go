//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
)

// blocks is what a selection ranks in place of single keys: blocks of consecutive
// keys and, for SparseD, once more those of the generation, by a softmax over its
// keys alone. A row of sums has one after the other.
type blocks struct {
	size int // keys in a block
	all  int // blocks
	last int // the first block of the generation; all if it is not ranked apart
}

func blocksOf(sel op.Selection, n int) blocks {
	b := blocks{size: sel.Block, all: groups(n, sel.Block)}
	b.last = b.all
	if sel.Kind == op.SelectSparseD {
		b.last = sel.GenerationBlock(n)
	}
	return b
}

// behind is the number of blocks that are ranked apart.
func (b blocks) behind() int { return b.all - b.last }

// width is the length of a row of sums.
func (b blocks) width() int { return b.all + b.behind() }

// collectBlocks queues full attention and the sums of its scores over blocks of keys.
func (c *call) collectBlocks(h *heads, sel op.Selection, group int, out, sums cu.DevicePtr) error {
	rows := int64(h.batch*h.heads) * int64(h.n)
	lse, err := c.room(4 * rows)
	if err != nil {
		return err
	}
	if err := c.dense(h, out, lse, c.o.dtype()); err != nil {
		return err
	}
	b, ranked := blocksOf(sel, h.n), *h
	pitch, kind, size := c.scoreForm(h.n)
	groups := h.batch * h.heads * groups(h.n, group)
	scores, err := c.room(int64(groups) * int64(pitch) * size)
	if err != nil {
		return err
	}
	// sum makes the sums of the keys from the first on elements at, at+1, ... of each row.
	sum := func(first, at int) error {
		if err := c.scores(&ranked, lse, scores, group, pitch, kind); err != nil {
			return err
		}
		k, err := c.kernel("blocks", "block_sums")
		if err != nil {
			return err
		}
		return k.launch(groups, address(scores), address(sums), integer(h.n), integer(first), integer(b.size),
			integer(pitch), integer(kind), integer(b.width()), integer(at))
	}
	if sel.ScoreScale == 0 && b.behind() == 0 {
		return sum(0, 0)
	}
	// The other softmaxes; what attention they give nobody wants.
	unused, err := c.room(rows * int64(h.dim) * int64(c.o.dtype().Size()))
	if err != nil {
		return err
	}
	if sel.ScoreScale != 0 {
		ranked.scale = sel.ScoreScale
		if err := c.dense(&ranked, unused, lse, c.o.dtype()); err != nil {
			return err
		}
	}
	if err := sum(0, 0); err != nil || b.behind() == 0 {
		return err
	}
	first, behind := b.last*b.size, ranked
	behind.start, err = c.perRow(h.batch, func(row int) int { return max(first, h.n-h.keys[row]) })
	if err != nil {
		return err
	}
	if err := c.dense(&behind, unused, lse, c.o.dtype()); err != nil {
		return err
	}
	return sum(first, b.all)
}

// chooseBlocks queues the choice of the best blocks of each group by the layer's sums,
// and fills its table with their keys.
func (c *call) chooseBlocks(l *layer, sel op.Selection, start cu.DevicePtr, keys []int) error {
	b, u := blocksOf(sel, l.n), groups(l.n, l.group)
	quota := sel.Keep
	padding := func(row int) int { return (l.n - keys[row]) / b.size } // blocks without a real key
	if sel.Kind == op.SelectSparseD {
		quota = sel.Quota
		padding = func(int) int { return 0 } // as in the published code, they take part
	}
	choose := func(sums cu.DevicePtr, n int) (chosen cu.DevicePtr, err error) {
		keep, err := c.perRow(l.batch, func(int) int { return quota(n) })
		if err != nil {
			return 0, err
		}
		from, err := c.perRow(l.batch, padding)
		if err != nil {
			return 0, err
		}
		if chosen, err = c.room(4 * int64(l.batch*l.heads*u*words(n))); err != nil {
			return 0, err
		}
		return chosen, c.topk(sums, chosen, keep, from, l.batch, l.heads, u, n, b.width(), scoresFloat)
	}
	chosen, err := choose(l.scores, b.all)
	if err != nil {
		return err
	}
	var behind cu.DevicePtr
	if b.behind() > 0 {
		if behind, err = choose(l.scores+cu.DevicePtr(4*b.all), b.behind()); err != nil {
			return err
		}
	}
	k, err := c.kernel("blocks", "expand_blocks")
	if err != nil {
		return err
	}
	return k.launch(l.batch*l.heads*u, address(chosen), address(behind), address(start), address(l.bits),
		integer(l.heads*u), integer(l.n), integer(b.size), integer(b.last), integer(words(b.all)), integer(words(b.behind())))
}
