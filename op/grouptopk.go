package op

import (
	"fmt"
	"time"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type groupTopK struct {
	base
	spec exec.GroupTopK
}

// NewGroupTopK returns the second operator of PulseCol, named by path, for a sequence of n
// tokens: the keys each query group keeps, the max(1, floor((1-sparsity)*N)) with the
// highest scores, ties to the smaller index:
//
//	scores [B,H,U,N] -> columns [B,H,U,ceil(N/32)] uint32, key j being bit j%32 of word j/32
//
// With a padding mask [B,N] as second input padding keys are never kept and N counts the
// others. Other selections keep blocks or a static pattern in the same form.
//
// In a controller's layer the result is the layer's column table: rebuilt in a refresh
// step, kept in others. It has no gradient. Parameters out of range are an ErrValue, an n
// below 1 is an ErrShape.
func NewGroupTopK(path string, n int, p AttentionParams) (gorgonia.Op, error) {
	const kind = "GroupTopK"
	a, err := p.spec(kind, path)
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("op: %s %q: %w: %d tokens, want at least 1", kind, path, ErrShape, n)
	}
	o := &groupTopK{newBase(kind, path, withMask(&a, float4), bits4, append(hashed(&a), n)...), exec.GroupTopK{Attention: a, Len: n}}
	if a.State != nil {
		o.Bind(a.State.Step())
	}
	return o, nil
}

func (o *groupTopK) Spec() any { return o.spec }

func (o *groupTopK) Layer() *exec.State { return o.spec.State }

func (o *groupTopK) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	n := o.spec.Len
	u, w := kernel.Groups(n, o.spec.Group), o.spec.Selection.ScoreWidth(n)
	if o.spec.Cached > 0 { // scores may be of any rows
		u = min(u, s[0][2])
	}
	if s[0][2] != u || s[0][3] != w {
		return nil, fmt.Errorf("%s: %w: scores %v, want [B H %d %d] for %d tokens", o, ErrShape, s[0], u, w, n)
	}
	if o.spec.Masked && !sameShape(s[1], tensor.Shape{s[0][0], n}) {
		return nil, fmt.Errorf("%s: %w: padding mask %v, want [%d %d]", o, ErrShape, s[1], s[0][0], n)
	}
	return tensor.Shape{s[0][0], s[0][1], s[0][2], kernel.Words(n)}, nil
}

func (o *groupTopK) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	var mask []float32
	if o.spec.Masked {
		mask = float32s(ts[1])
	}
	if o.spec.State != nil {
		return o.update(ts[0], mask)
	}
	s := ts[0].Shape()
	b, h, u, w := s[0], s[1], s[2], kernel.Words(o.spec.Len)
	words := make([]uint32, b*h*u*w)
	for i := range b * h {
		o.topK(words[i*u*w:(i+1)*u*w], float32s(ts[0]), mask, h, u, i)
	}
	return o.finish(tensor.New(tensor.WithShape(b, h, u, w), tensor.WithBacking(words)))
}

// update returns the layer's column table, rebuilt if this step is a refresh.
func (o *groupTopK) update(scores *tensor.Dense, mask []float32) (gorgonia.Value, error) {
	st := o.spec.State
	mode, err := st.Begin(o, exec.SelectKeys)
	if err != nil {
		return nil, err
	}
	defer st.AddTime(mode, time.Now())
	pass := st.Step().Pass()
	if pass.Select {
		if err := o.selectBlock(mask); err != nil {
			return nil, err
		}
	}
	switch s := scores.Shape(); {
	case o.spec.Selection.Unchanging() && pass.Rows < pass.Len:
		return o.finish(st.NoColumns) // ColumnSparseAttn takes those of its rows
	case o.spec.Selection.Unchanging():
		o.spec.MakeTable()
	case mode == Reuse && pass.Kind == exec.BlockStep:
		if !st.BlockBuilt() {
			return nil, fmt.Errorf("%s: %w: of the block", o, ErrStale)
		}
		return o.finish(st.NoColumns)
	case mode == Refresh:
		topK := func(rows []uint32, head int) { o.topK(rows, float32s(scores), mask, s[1], s[2], head) }
		if err := st.Refresh(s[0], s[1], o.spec.Len, o.spec.Group, topK, o.Stopped); err != nil {
			return nil, err
		}
	case mode == Dense && !st.Built():
		return o.finish(st.NoColumns)
	case !st.Built():
		return nil, fmt.Errorf("%s: %w", o, ErrStale)
	}
	return o.finish(st.Value())
}

// selectBlock selects the columns of the step's block.
func (o *groupTopK) selectBlock(mask []float32) error {
	b := o.spec.State.BlockScores()
	return o.spec.State.SelectBlock(o.spec.Group, func(rows []uint32, head int) {
		o.topK(rows, b.Scores, mask, b.Heads, b.Groups, head)
	}, o.Stopped)
}

// topK fills the rows of one of heads heads, whose index counts over all batch rows, from
// the scores of rows groups of each.
func (o *groupTopK) topK(words []uint32, all, mask []float32, heads, rows, head int) {
	sel, n := o.spec.State.Selected(o.spec.Selection), o.spec.Len
	size := rows * sel.ScoreWidth(n)
	scores, keys := all[head*size:(head+1)*size], n
	var valid []float32
	if mask != nil {
		b := head / heads
		valid, keys = mask[b*n:(b+1)*n], 0
		for _, v := range valid {
			if v != 0 {
				keys++
			}
		}
	}
	switch sel.Kind {
	case SelectBlocks:
		o.team().BlockTopKRows(words, scores, rows, n, sel.Block, o.spec.Keep(kernel.Groups(n, sel.Block)), valid)
	case SelectSparseD:
		last, blocks := sel.GenerationBlock(n), kernel.Groups(n, sel.Block)
		o.team().SparseDRows(words, scores, rows, n, sel.Block, last, sel.Quota(blocks), sel.Quota(blocks-last))
		clearPadding(words, valid, rows, n)
	default:
		o.team().TopKRows(words, scores, rows, n, o.spec.Keep(keys), valid)
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

func (o *groupTopK) MergesWith(other gorgonia.Op) bool {
	g, ok := other.(*groupTopK)
	return ok && g.spec.State == o.spec.State
}

var _ exec.Operator = (*groupTopK)(nil)
