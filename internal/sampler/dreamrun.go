package sampler

import (
	"context"
	"slices"
)

// dreamRun is one generation.
type dreamRun struct {
	Dream
	generation
	block  Block
	lo, hi int // positions whose masks the block fills
}

// fill runs all steps of the block of length positions from start on.
func (r *dreamRun) fill(ctx context.Context, index, start, length int) error {
	r.block = Block{index, max(start-1, 0), start + length}
	r.lo, r.hi = start, start+length
	if r.blocks() == 1 {
		r.lo = 0 // with the masks inside the prompt
	}
	if r.FirstTokenAtPrefill {
		r.block.First = start
		if err := r.fillFirst(ctx, start); err != nil {
			return err
		}
	}
	switch r.Alg {
	case Origin, "":
		return r.reveal(ctx)
	case ConfidenceThreshold:
		return r.thresholded(ctx)
	}
	return r.scheduled(ctx)
}

// fillFirst commits the token at start, in a step of its own.
func (r *dreamRun) fillFirst(ctx context.Context, start int) error {
	proposals := r.open(start, start+1)
	if err := r.propose(ctx, proposals); err != nil {
		return err
	}
	r.commit(r.block.Index, proposals)
	return nil
}

// full reports whether the block ends before its last step, given its proposals.
func (r *dreamRun) full(proposals []proposal) bool { return r.Cached && len(proposals) == 0 }

// timestep returns t[i] of linspace(1, eps, steps+1), with the steps of a block, in
// float32, as PyTorch computes it: from the start in the first half, from the end in the
// second.
func (o *Dream) timestep(i int) float32 {
	end, steps := float32(o.Eps), o.blockSteps()
	d := (end - 1) / float32(steps)
	if i < (steps+1)/2 {
		return 1 + float32(d*float32(i))
	}
	return end - float32(d*float32(steps-i))
}

// share returns the share of its masks that step i of a block fills.
func (o *Dream) share(i int) float32 {
	if i == o.blockSteps()-1 {
		return 1
	}
	return 1 - o.timestep(i+1)/o.timestep(i)
}

// transfers returns how many positions step i commits in each row of a batch that
// has masks masks. It is computed in float32 because it is truncated: steps that
// divide evenly on paper give one less.
func (o *Dream) transfers(i, masks, batch int) int {
	return int(float32(masks) / float32(batch) * o.share(i))
}

// reveal runs all steps of a block under Origin.
func (r *dreamRun) reveal(ctx context.Context) error {
	w := newWorker(0)
	for i := range r.blockSteps() {
		proposals := r.openBlock()
		if r.full(proposals) {
			return nil
		}
		p := float64(r.share(i))
		revealed := slices.DeleteFunc(proposals, func(c proposal) bool {
			r.stream(w, drawReveal, c.Row)
			return w.uniform() >= p
		})
		if err := r.propose(ctx, revealed); err != nil {
			return err
		}
		r.commit(r.block.Index, revealed)
	}
	return nil
}

// scheduled runs all steps of a block under MaskgitPlus, TopkMargin and Entropy.
func (r *dreamRun) scheduled(ctx context.Context) error {
	w := newWorker(0)
	first := 0
	if r.FirstTokenAtPrefill {
		first = 1
	}
	for i := first; i < r.blockSteps(); i++ {
		proposals := r.openBlock()
		if r.full(proposals) {
			return nil
		}
		k := r.transfers(i, len(proposals), len(r.ids))
		if i == r.blockSteps()-1 {
			k = len(r.ids[0])
		}
		if k == 0 {
			proposals = nil
		}
		if err := r.propose(ctx, proposals); err != nil {
			return err
		}
		if r.AlgTemp > 0 {
			// The k largest sums of log-weight and Gumbel noise are k draws without
			// replacement, and no weight can underflow.
			for j, p := range proposals {
				r.stream(w, drawPlace, p.Row)
				proposals[j].confidence = p.confidence/r.AlgTemp + gumbel(w.uniform())
			}
		}
		r.commit(r.block.Index, topByConfidence(proposals, func(int, []proposal) int { return k }))
	}
	return nil
}

// thresholded runs all steps of a block under ConfidenceThreshold.
func (r *dreamRun) thresholded(ctx context.Context) error {
	steps := r.blockSteps()
	if r.FirstTokenAtPrefill {
		steps = 1 // the first quota is all masks
	}
	base := make([]int, len(r.ids)) // quota of a step
	for b, row := range r.ids {
		base[b] = count(row[r.lo:r.hi], r.mask) / steps
	}
	refused := make([]int, len(r.ids)) // part of the quota that earlier steps did not use
	for i := 0; ; i++ {
		proposals := r.openBlock()
		if len(proposals) == 0 {
			return nil
		}
		if i == steps {
			clear(base)
		}
		if err := r.propose(ctx, proposals); err != nil {
			return err
		}
		r.commit(r.block.Index, topByConfidence(proposals, func(b int, ordered []proposal) int {
			n := 1
			for n < base[b]+refused[b] && ordered[n].confidence >= r.Threshold {
				n++
			}
			refused[b] += base[b] - n
			return n
		}))
	}
}

// openBlock returns the masked positions that the block fills.
func (r *dreamRun) openBlock() []proposal { return r.open(r.lo, r.hi) }

// propose runs the model and sets token and confidence of the proposals.
func (r *dreamRun) propose(ctx context.Context, proposals []proposal) error {
	var rows []Row
	for i, p := range proposals {
		row := Row{p.Batch, max(p.Pos-1, 0)}
		// Positions 0 and 1 share row 0; otherwise no two share one.
		if len(rows) == 0 || rows[len(rows)-1] != row {
			rows = append(rows, row)
		}
		proposals[i].row = len(rows) - 1
	}
	return r.generation.propose(ctx, Pass{r.ids, rows, r.block}, proposals, r.rule())
}
