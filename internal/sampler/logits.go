package sampler

import (
	"context"
	"fmt"
)

// Row names one row of a model's output: position Pos of sequence Batch.
type Row struct{ Batch, Pos int }

// Forward runs the model on ids [B][n] and returns the logits of the asked rows:
// row r of the result belongs to rows[r]. The result must stay valid until the next
// call; the sampler does not write to it. ids and rows are the sampler's: valid
// during the call and not to be changed.
//
// rows is sorted by (Batch, Pos), without duplicates, and holds exactly the rows
// that will be read. Under classifier-free guidance ids has 2B rows: row B+b is
// the unconditional copy of row b and shares its padding mask, and the second half
// of rows are the first half's unconditional copies.
//
// rows is empty at a step that commits nothing (a quota of zero). Such a step is
// still a step: the reference implementations run the model there, and schedules
// count it. The callback may skip the computation, as no logits are read, but
// only if nothing else hangs on it; a column refresh due at that step, for
// example, has to happen or be passed on to the next.
type Forward func(ctx context.Context, ids [][]int32, rows []Row) (Logits, error)

// Logits are a model's logits of the rows that a sampler asked for, wherever they
// are. Those that are a Chooser too are not asked for rows unless tokens are drawn
// or distributions truncated.
type Logits interface {
	// Size returns the number of rows, and of entries in each: one for every token of
	// the vocabulary.
	Size() (rows, vocab int)
	// Rows returns count rows from each of the given ones on, one after the other. They
	// may be read until the next call.
	Rows(count int, from ...int) ([][]float32, error)
}

// Chooser is what Logits are that can apply a Rule where they are, so that a row of
// a hundred thousand numbers need not come from there.
type Chooser interface {
	// Choose returns Rule.Choose of each row, or with guidance of each row in the first
	// half and the row of the same place in the second, bit for bit.
	Choose(*Rule) ([]Choice, error)
}

// Host are logits in memory.
type Host [][]float32

func (h Host) Size() (rows, vocab int) {
	if len(h) == 0 {
		return 0, 0
	}
	return len(h), len(h[0])
}

func (h Host) Rows(count int, from ...int) ([][]float32, error) {
	if len(from) == 1 {
		return h[from[0]:][:count], nil
	}
	var rows [][]float32
	for _, r := range from {
		rows = append(rows, h[r:][:count]...)
	}
	return rows, nil
}

// chunkBytes bounds the rows that are asked for at once: enough work for every
// thread, and little beside a model. Tests change it.
var chunkBytes = 256 << 20

// propose runs the model on ids and sets token and confidence of the proposals as
// rule says. Each is made of the row that it names; those ascend.
func (g *generation) propose(ctx context.Context, ids [][]int32, rows []Row, proposals []proposal, rule *Rule) error {
	logits, err := g.logits(ctx, ids, rows)
	if err != nil || len(proposals) == 0 {
		return err
	}
	if c, ok := logits.(Chooser); ok && rule.sampling == nil {
		choices, err := c.Choose(rule)
		if err != nil {
			return g.failed(err)
		}
		return g.settle(proposals, func(i int) Choice { return choices[proposals[i].row] })
	}
	most := max(1, chunkBytes/(4*g.vocab))
	for len(proposals) > 0 {
		first, n := proposals[0].row, 1
		for n < len(proposals) && proposals[n].row < first+most {
			n++
		}
		if err := g.proposeChunk(logits, proposals[:n], len(rows)/2, rule); err != nil {
			return err
		}
		proposals = proposals[n:]
	}
	return nil
}

// proposeChunk is propose for rows that are copied here. Under guidance the
// unconditional copy of a row is the given number of rows behind it.
func (g *generation) proposeChunk(logits Logits, proposals []proposal, behind int, rule *Rule) error {
	first := proposals[0].row
	count := proposals[len(proposals)-1].row + 1 - first
	from := []int{first}
	if rule.Guidance != 0 {
		from = append(from, first+behind)
	}
	rows, err := logits.Rows(count, from...)
	if err != nil {
		return g.failed(err)
	}
	for r, row := range rows {
		if len(row) != g.vocab {
			return g.failed(fmt.Errorf("row %d of the logits has %d entries, earlier rows %d", first+r, len(row), g.vocab))
		}
	}
	choices := make([]Choice, len(proposals))
	g.forEach(len(proposals), func(w *worker, i int) {
		p := &proposals[i]
		var u []float32
		if rule.Guidance != 0 {
			u = rows[count+p.row-first]
		}
		g.stream(w, drawToken, p.Row)
		choices[i] = rule.choose(w, rows[p.row-first], u)
	})
	return g.settle(proposals, func(i int) Choice { return choices[i] })
}

// settle gives every proposal its choice. The error is that of the first in order.
func (g *generation) settle(proposals []proposal, choice func(i int) Choice) error {
	for i := range proposals {
		p, c := &proposals[i], choice(i)
		if err := c.err(); err != nil {
			return g.failed(fmt.Errorf("batch row %d, position %d: %w", p.Batch, p.Pos, err))
		}
		p.token, p.confidence = c.Token, c.Confidence
	}
	return nil
}

// logits calls the model, unless ctx is done, and checks the form of what it
// returns.
func (g *generation) logits(ctx context.Context, ids [][]int32, rows []Row) (Logits, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sampler: stopped after step %d of %d: %w", g.steps, g.total, err)
	}
	logits, err := g.forward(ctx, ids, rows)
	if err != nil {
		return nil, g.failed(err)
	}
	g.forwards++
	var got, vocab int
	if logits != nil {
		got, vocab = logits.Size()
	}
	switch {
	case got != len(rows):
		return nil, g.failed(fmt.Errorf("asked for %d rows of logits, got %d", len(rows), got))
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

// failed says in which step err came up.
func (g *generation) failed(err error) error {
	return fmt.Errorf("sampler: step %d of %d: %w", g.steps+1, g.total, err)
}
