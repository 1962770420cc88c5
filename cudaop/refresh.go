//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
	"gorgonia.org/tensor"
)

// scoreBytes bounds the scores in memory at a time, unless one head has more. All scores of a
// long sequence would take more memory than the model. The bound is enough work for any GPU.
var scoreBytes int64 = 1 << 30

// refresh queues full attention to out and, from its scores, the selection of a column
// table to bits.
func (c *call) refresh(h *heads, p exec.Attention, out output, bits cu.DevicePtr) error {
	lse, err := c.scratch(4 * int64(h.batch*h.heads*h.n))
	if err != nil {
		return err
	}
	if err := c.dense(h, out, lse); err != nil {
		return err
	}
	ranked := *h
	if scale := p.Selection.ScoreScale; scale != 0 {
		ranked.scale = scale
		if err := c.logSumExp(&ranked, lse); err != nil {
			return err
		}
	}
	return c.selectKeys(&ranked, p, lse, bits)
}

// selectKeys queues the selection of the keys of each group to bits, from their scores. lse is
// the log-sum-exp of full attention, and has any contents afterwards.
func (c *call) selectKeys(h *heads, p exec.Attention, lse, bits cu.DevicePtr) error {
	if p.Selection.Kind != exec.SelectColumns {
		return c.topBlocks(h, p, lse, bits)
	}
	keep, err := c.keepCounts(p, h.keys)
	if err != nil {
		return err
	}
	u, w := groups(h.to-h.from, p.Group), words(h.n)
	return c.scoresInParts(h, lse, p.Group, func(p part, scores cu.DevicePtr, pitch, kind int) error {
		return c.topk(scores, bits+cu.DevicePtr(4*p.before*u*w), keep+cu.DevicePtr(4*p.row), p.h.start, p.h.batch, p.h.heads, u, h.n, pitch, kind)
	})
}

// logSumExp queues the log-sum-exp of attention. Its results are dropped.
func (c *call) logSumExp(h *heads, lse cu.DevicePtr) error {
	dt := c.o.dtype()
	unused, err := c.scratch(int64(h.batch*h.heads*h.n) * int64(h.dim) * int64(dt.Size()))
	if err != nil {
		return err
	}
	return c.dense(h, output{at: unused, dt: dt}, lse)
}

// part is some heads of a layer: all, or some of one batch row.
type part struct {
	h      *heads
	row    int // the first batch row
	before int // heads before these, over all batch rows
}

// scoresInParts queues the scores of a layer, part by part, and calls use after each part.
// scoreForm has the layout of the rows.
func (c *call) scoresInParts(h *heads, lse cu.DevicePtr, group int, use func(p part, scores cu.DevicePtr, pitch, kind int) error) error {
	pitch, kind, size := c.o.scoreForm(h.n)
	bytes := func(rows int) int64 { return int64(groups(rows, group)) * int64(pitch) * size } // of a head
	largest := h.parts(int(max(1, scoreBytes/bytes(h.rows))))[0].h
	memory := bytes(h.rows) * int64(largest.batch*largest.heads) // whatever rows count in the step
	parts := h.parts(int(memory / bytes(h.to-h.from)))
	scores, err := c.source.take(exec.KindScratch, nil, memory, exec.Scores)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := c.scores(p.h, lse+cu.DevicePtr(4*p.before*h.rows), scores, group, pitch, kind); err != nil {
			return err
		}
		if err := use(p, scores, pitch, kind); err != nil {
			return err
		}
	}
	return nil
}

// parts divides a layer into parts of at most so many heads, of which the first is
// the largest. A part has either all heads of its key heads or some heads of one key head.
func (h *heads) parts(most int) (parts []part) {
	if most >= h.batch*h.heads {
		return []part{{h, 0, 0}}
	}
	ratio := h.heads / h.kvHeads
	if most > ratio {
		most -= most % ratio
	}
	for row := range h.batch {
		for head := 0; head < h.heads; {
			count := min(most, h.heads-head)
			if count < ratio {
				count = min(count, ratio-head%ratio)
			}
			parts = append(parts, part{h.slice(row, head, count), row, row*h.heads + head})
			head += count
		}
	}
	return parts
}

// slice is count heads of a batch row, with their key heads.
func (h *heads) slice(row, head, count int) *heads {
	ratio := h.heads / h.kvHeads
	size := h.dim * int(h.dt.Size())
	kv := cu.DevicePtr(size * h.n * (row*h.kvHeads + head/ratio))
	s := *h
	s.batch, s.heads, s.kvHeads, s.keys = 1, count, max(1, count/ratio), h.keys[row:row+1]
	s.q, s.k, s.v = h.q+cu.DevicePtr(size*h.rows*(row*h.heads+head)), h.k+kv, h.v+kv
	if h.start != 0 {
		s.start = h.start + cu.DevicePtr(4*row)
	}
	return &s
}

// scoreForm is the layout of rows of n scores: the distance between rows in elements, and the
// elements' type and size. For inputs rounded to 8 bits scores within 0.07 % suffice.
func (o *deviceOp) scoreForm(n int) (pitch, kind int, size int64) {
	if o.dtype() == tensor.Float32 {
		return scorePitch(n), scoresFloat, 4
	}
	return scorePitch(n), scoresLog16, 2
}

// scorePitch is the distance between rows of n scores, in elements.
func scorePitch(n int) int { return (n + 7) &^ 7 }
