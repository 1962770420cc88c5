package op

import (
	"fmt"
	"time"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// GroupTopK is the second operator of PulseCol: the keys each query group keeps,
// the max(1, floor((1-sparsity)*N)) with the highest scores, ties to the smaller
// index: scores [B,H,U,N] -> columns [B,H,U,ceil(N/32)] uint32, key j being bit
// j%32 of word j/32. With a padding mask [B,N] as second input padding keys are
// never kept and N counts the others. Other selections keep blocks or a static
// pattern in the same form.
//
// With a State the result is the layer's column table: rebuilt in a refresh
// step, kept in others.
type GroupTopK struct {
	base
	p     AttentionParams
	n     int
	state *State
}

// NewGroupTopK returns the operator named by path for a sequence of n tokens.
func NewGroupTopK(path string, n int, p AttentionParams) (*GroupTopK, error) {
	const kind = "GroupTopK"
	if err := p.validate(kind, path); err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("op: %s %q: %w: %d tokens, want at least 1", kind, path, ErrShape, n)
	}
	b := newBase(kind, path, p.masked(float4), bits4, append(p.params(), n)...)
	o := &GroupTopK{b, p, n, p.State}
	if p.State != nil {
		o.bind(p.State.step)
	}
	return o, nil
}

func (o *GroupTopK) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if u, w := kernel.Groups(o.n, o.p.Group), o.p.Selection.scoreWidth(o.n); s[0][2] != u || s[0][3] != w {
		return nil, fmt.Errorf("%s: %w: scores %v, want [B H %d %d] for %d tokens", o, ErrShape, s[0], u, w, o.n)
	}
	if o.p.Masked && !sameShape(s[1], tensor.Shape{s[0][0], o.n}) {
		return nil, fmt.Errorf("%s: %w: padding mask %v, want [%d %d]", o, ErrShape, s[1], s[0][0], o.n)
	}
	return tensor.Shape{s[0][0], s[0][1], s[0][2], kernel.Words(o.n)}, nil
}

func (o *GroupTopK) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	var mask []float32
	if o.p.Masked {
		mask = float32s(ts[1])
	}
	if o.state != nil {
		return o.update(ts, mask)
	}
	s := ts[0].Shape()
	b, h, u, w := s[0], s[1], s[2], kernel.Words(o.n)
	words := make([]uint32, b*h*u*w)
	for i := range b * h {
		o.choose(words[i*u*w:(i+1)*u*w], o.headScores(ts[0], i), maskRow(mask, i/h, o.n))
	}
	return o.finish(tensor.New(tensor.WithShape(b, h, u, w), tensor.WithBacking(words)))
}

// TableBytes is the size of the column table behind a result of shape s.
func (o *GroupTopK) TableBytes(s tensor.Shape) int64 {
	switch o.p.Selection.Kind {
	case SelectStatic: // one row for all batch rows and heads
		return 4 * int64(s[2]) * int64(s[3])
	case SelectFixed: // not the layer's own
		return 0
	}
	return 4 * int64(s.TotalSize())
}

// headScores returns the scores of one batch row and head, i = b*H+h.
func (o *GroupTopK) headScores(scores *tensor.Dense, i int) []float32 {
	s := scores.Shape()
	size := s[2] * s[3]
	return float32s(scores)[i*size : (i+1)*size]
}

// maskRow returns a batch row of the padding mask, nil without one.
func maskRow(mask []float32, b, n int) []float32 {
	if mask == nil {
		return nil
	}
	return mask[b*n : (b+1)*n]
}

// choose fills the bits of one batch row and head from its scores.
func (o *GroupTopK) choose(words []uint32, scores, valid []float32) {
	sel, n := o.p.Selection, o.n
	rows := kernel.Groups(n, o.p.Group)
	keys := n
	if valid != nil {
		keys = 0
		for _, v := range valid {
			if v != 0 {
				keys++
			}
		}
	}
	switch sel.Kind {
	case SelectBlocks:
		o.team().BlockTopKRows(words, scores, rows, n, sel.Block, sel.keep(kernel.Groups(n, sel.Block)), valid)
	case SelectSparseD:
		last, blocks := sel.generationBlock(n), kernel.Groups(n, sel.Block)
		o.team().SparseDRows(words, scores, rows, n, sel.Block, last, sel.quota(blocks), sel.quota(blocks-last))
		clearPadding(words, valid, rows, n)
	default:
		o.team().TopKRows(words, scores, rows, n, sel.keep(keys), valid)
	}
}

// clearPadding unsets padding keys, which a kept block may contain.
func clearPadding(words []uint32, valid []float32, rows, n int) {
	w := kernel.Words(n)
	for j, v := range valid {
		if v == 0 {
			for r := range rows {
				columns.Clear(words[r*w:], j)
			}
		}
	}
}

// update returns the layer's column table, rebuilt if this step is a refresh.
func (o *GroupTopK) update(ts []*tensor.Dense, mask []float32) (gorgonia.Value, error) {
	st := o.state
	mode, err := st.begin(o, &st.ranked, &st.scored)
	if err != nil {
		return nil, err
	}
	defer st.clock(mode, time.Now())
	switch {
	case o.p.Selection.Unchanging():
		o.static()
	case mode == Refresh:
		if err := o.rebuild(ts[0], mask); err != nil {
			return nil, err
		}
	case mode == Dense && !st.built:
		return o.finish(st.noColumns)
	case !st.built:
		return nil, fmt.Errorf("%s: %w", o, ErrStale)
	}
	return o.finish(st.value)
}

// static makes the table of a pattern that never changes, once.
func (o *GroupTopK) static() {
	st, sel := o.state, o.p.Selection
	if sel.Kind == SelectFixed {
		st.useGiven()
		return
	}
	st.reserve(1, 1, o.n, kernel.Table{
		Group: o.p.Group, SharedBatch: true, SharedHeads: true,
		Reach: sel.Reach, Sinks: sel.sinks(o.n),
	})
	if st.built {
		return
	}
	sel.fillStatic(st.table.Bits, o.n, o.p.Group)
	st.stats.Density = sel.staticDensity(o.n)
	st.built = true
}

// useGiven makes the table that was given the layer's.
func (s *State) useGiven() {
	g := s.given
	if s.value == nil {
		s.batch, s.heads, s.n, s.table = g.Batch, g.Heads, g.Len, g.table()
		s.value = &held{tensor.New(tensor.WithShape(g.Batch, g.Heads, kernel.Groups(g.Len, g.Group), kernel.Words(g.Len)), tensor.WithBacking(g.Bits))}
		s.stats.Density = g.columns().Density()
	}
	s.built = true
}

// rebuild makes a new table from the scores of all heads.
func (o *GroupTopK) rebuild(scores *tensor.Dense, mask []float32) error {
	st, s := o.state, scores.Shape()
	st.reserve(s[0], s[1], o.n, kernel.Table{Group: o.p.Group, Reach: -1})
	had := st.built
	st.built = false // until all of it is new
	if size := s[2] * kernel.Words(o.n); len(st.rows) != size {
		st.rows = make([]uint32, size)
	}
	rows := st.rows
	var kept, replaced int
	for i := range s[0] * s[1] {
		o.choose(rows, o.headScores(scores, i), maskRow(mask, i/s[1], o.n))
		now := columns.Table{Heads: 1, Len: o.n, Group: o.p.Group, Bits: rows}
		old := now
		old.Bits = st.head(i)
		kept += now.Pairs()
		replaced += now.NewPairs(&old)
		copy(old.Bits, rows)
	}
	if err := o.stopped(); err != nil {
		return err
	}
	st.built, st.uncounted = true, false
	st.stats.Refreshes++
	st.stats.Density = float64(kept) / (float64(s[0]*s[1]) * float64(o.n) * float64(o.n))
	st.stats.Churn = 0
	if had && kept > 0 {
		st.stats.Churn = float64(replaced) / float64(kept)
	}
	return nil
}

func (o *GroupTopK) mergesWith(other gorgonia.Op) bool {
	g, ok := other.(*GroupTopK)
	return ok && g.state == o.state
}

var _ gorgonia.SDOp = (*GroupTopK)(nil)
