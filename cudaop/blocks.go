//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
)

// blocks describes the blocks of consecutive keys that a selection ranks instead of single
// keys. SparseD ranks the blocks of the generation a second time, by a softmax over its keys
// alone. A row of sums has the sums of the first ranking, then those of the second.
type blocks struct {
	size int // keys in a block
	all  int // blocks
	last int // the first block of the generation; all if there is no second ranking
}

func blocksOf(sel exec.Selection, n int) blocks {
	b := blocks{size: sel.Block, all: groups(n, sel.Block)}
	b.last = b.all
	if sel.Kind == exec.SelectSparseD {
		b.last = sel.GenerationBlock(n)
	}
	return b
}

// generation is the number of blocks of the second ranking.
func (b blocks) generation() int { return b.all - b.last }

// width is the length of a row of sums.
func (b blocks) width() int { return b.all + b.generation() }

// topBlocks queues the selection of the best blocks of each group, by the sums of their
// keys' scores, and fills a column table with their keys. lse is the log-sum-exp of
// full attention, and afterwards that of attention to the generation.
func (c *call) topBlocks(h *heads, p exec.Attention, lse, bits cu.DevicePtr) error {
	sel, group := p.Selection, p.Group
	b, u := blocksOf(sel, h.n), groups(h.to-h.from, group)
	rows := h.batch * h.heads * u
	sums, err := c.scratch(4 * int64(rows) * int64(b.width()))
	if err != nil {
		return err
	}
	// Blocks without a real key are not selected, except by SparseD: its published code
	// ignores padding.
	quota, padding := p.Keep, func(row int) int { return (h.n - h.keys[row]) / b.size }
	if sel.Kind == exec.SelectSparseD {
		quota, padding = sel.Quota, func(int) int { return 0 }
	}
	// rank selects among n blocks from key first on, whose sums are elements at, at+1, ... of
	// each row.
	rank := func(n, first, at int) (selected cu.DevicePtr, err error) {
		if err := c.sumBlocks(h, lse, sums, group, first, b, at); err != nil {
			return 0, err
		}
		keep, err := c.perRow(h.batch, func(int) int { return quota(n) })
		if err != nil {
			return 0, err
		}
		from, err := c.perRow(h.batch, padding)
		if err != nil {
			return 0, err
		}
		if selected, err = c.scratch(4 * int64(rows) * int64(words(n))); err != nil {
			return 0, err
		}
		return selected, c.topk(sums+cu.DevicePtr(4*at), selected, keep, from, h.batch, h.heads, u, n, b.width(), scoresFloat)
	}
	selected, err := rank(b.all, 0, 0)
	if err != nil {
		return err
	}
	var second cu.DevicePtr
	if b.generation() > 0 {
		first, generation := b.last*b.size, *h
		if generation.start, err = c.perRow(h.batch, func(row int) int { return max(first, h.n-h.keys[row]) }); err != nil {
			return err
		}
		if err := c.logSumExp(&generation, lse); err != nil {
			return err
		}
		if second, err = rank(b.generation(), first, b.all); err != nil {
			return err
		}
	}
	k, err := c.kernel("blocktopk", "expand_blocks")
	if err != nil {
		return err
	}
	return k.launch(rows, address(selected), address(second), address(h.start), address(bits),
		integer(h.heads*u), integer(h.n), integer(b.size), integer(b.last), integer(words(b.all)), integer(words(b.generation())))
}

// sumBlocks queues the sums of scores over blocks of keys from the first on. They are
// elements at, at+1, ... of each row of sums.
func (c *call) sumBlocks(h *heads, lse, sums cu.DevicePtr, group, first int, b blocks, at int) error {
	k, err := c.kernel("blocktopk", "block_sums")
	if err != nil {
		return err
	}
	u := groups(h.to-h.from, group)
	return c.scoresInParts(h, lse, group, func(p part, scores cu.DevicePtr, pitch, kind int) error {
		return k.launch(p.h.batch*p.h.heads*u, address(scores), address(sums+cu.DevicePtr(4*p.before*u*b.width())),
			integer(h.n), integer(first), integer(b.size), integer(pitch), integer(kind), integer(b.width()), integer(at))
	})
}
