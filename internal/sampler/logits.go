package sampler

import (
	"context"
	"fmt"

	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// Row is one row of a model's output: position Pos of sequence Batch.
type Row struct{ Batch, Pos int }

// Pass is what a sampler asks of the model in one denoising step.
type Pass struct {
	// IDs [B][n] are the sequences. Under classifier-free guidance they are 2B: row B+b
	// is the unconditional copy of row b and shares its padding mask.
	IDs [][]int32
	// Rows are the rows of logits that will be read, sorted by (Batch, Pos), without
	// duplicates. Under guidance the second half are the first half's unconditional
	// copies. A sampler for a cache reads active rows, and in the first pass of a block
	// maybe the row before them.
	//
	// Rows is empty at a step that commits nothing. Such a step counts: the reference
	// implementations run the model there, and schedules include it. A Forward may skip
	// the computation, as no logits are read, but only if nothing else depends on it: a
	// column refresh due at that step has to happen then or at the next step.
	Rows  []Row
	Block Block
}

// Block is the block of positions that is being filled. The rows [First, End) of every
// sequence are active in it: those of its tokens, and for a model whose row i predicts
// token i+1 the one before.
type Block struct {
	Index      int // from 0
	First, End int
}

// Forward runs the model on p.IDs and returns the logits of the selected rows: row r of
// the result belongs to p.Rows[r]. The result must stay valid until the next call; the
// sampler does not write to it. p is the sampler's: valid during the call and not to be
// changed.
type Forward func(ctx context.Context, p Pass) (lmhead.Logits, error)

// chunkBytes bounds the rows that are read at once. It is enough work for every thread and
// little memory compared with a model. Tests change it.
var chunkBytes = 256 << 20

// propose runs the model and sets token and confidence of the proposals by r. Each
// proposal names its row of logits; these ascend.
func (g *generation) propose(ctx context.Context, p Pass, proposals []proposal, r *rule) error {
	logits, err := g.logits(ctx, p)
	if err != nil || len(proposals) == 0 {
		return err
	}
	if a, ok := logits.(lmhead.RuleApplier); ok && r.onDevice() {
		choices, err := a.ApplyRule(&r.Rule)
		if err != nil {
			return g.failed(err)
		}
		return g.applyChoices(proposals, func(i int) lmhead.Choice { return choices[proposals[i].row] })
	}
	most := max(1, chunkBytes/(4*g.vocab))
	for len(proposals) > 0 {
		first, n := proposals[0].row, 1
		for n < len(proposals) && proposals[n].row < first+most {
			n++
		}
		if err := g.proposeChunk(logits, proposals[:n], len(p.Rows)/2, r); err != nil {
			return err
		}
		proposals = proposals[n:]
	}
	return nil
}

// proposeChunk is propose for rows that are copied. Under guidance the unconditional
// copy of row i is row i + offset.
func (g *generation) proposeChunk(logits lmhead.Logits, proposals []proposal, offset int, r *rule) error {
	first := proposals[0].row
	count := proposals[len(proposals)-1].row + 1 - first
	from := []int{first}
	if r.Guidance != 0 {
		from = append(from, first+offset)
	}
	rows, err := logits.Rows(count, from...)
	if err != nil {
		return g.failed(err)
	}
	for i, row := range rows {
		if len(row) != g.vocab {
			return g.failed(fmt.Errorf("row %d of the logits has %d entries, earlier rows %d", first+i, len(row), g.vocab))
		}
	}
	choices := make([]lmhead.Choice, len(proposals))
	g.forEach(len(proposals), func(w *worker, i int) {
		p := &proposals[i]
		var u []float32
		if r.Guidance != 0 {
			u = rows[count+p.row-first]
		}
		g.stream(w, drawToken, p.Row)
		choices[i] = r.apply(w, rows[p.row-first], u)
	})
	return g.applyChoices(proposals, func(i int) lmhead.Choice { return choices[i] })
}

// applyChoices sets token and confidence of every proposal. The error is that of the
// first proposal with one.
func (g *generation) applyChoices(proposals []proposal, choice func(i int) lmhead.Choice) error {
	for i := range proposals {
		p, c := &proposals[i], choice(i)
		if err := choiceError(c); err != nil {
			return g.failed(fmt.Errorf("batch row %d, position %d: %w", p.Batch, p.Pos, err))
		}
		p.token, p.confidence = c.Token, c.Confidence
	}
	return nil
}

// logits runs the model, unless ctx is done, and checks the sizes of its logits.
func (g *generation) logits(ctx context.Context, p Pass) (lmhead.Logits, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sampler: stopped after step %d of %d: %w", g.steps, g.total, err)
	}
	logits, err := g.forward(ctx, p)
	if err != nil {
		return nil, g.failed(err)
	}
	g.forwards++
	var got, vocab int
	if logits != nil {
		got, vocab = logits.Size()
	}
	switch {
	case got != len(p.Rows):
		return nil, g.failed(fmt.Errorf("asked for %d rows of logits, got %d", len(p.Rows), got))
	case got == 0:
		return nil, nil
	case g.vocab == 0:
		g.vocab = vocab
		for _, s := range g.special {
			if int(s.id) >= g.vocab {
				return nil, fmt.Errorf("sampler: %s %d: want less than the %d entries of the model's logits", s.option, s.id, g.vocab)
			}
		}
	case vocab != g.vocab:
		return nil, g.failed(fmt.Errorf("the logits have %d entries a row, earlier ones %d", vocab, g.vocab))
	}
	return logits, nil
}

// failed adds the current step to err.
func (g *generation) failed(err error) error {
	return fmt.Errorf("sampler: step %d of %d: %w", g.steps+1, g.total, err)
}
