package op

import (
	"fmt"
	"time"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ColumnSparseAttn is the third operator of PulseCol: attention in which every
// query of a group sees exactly the keys its group keeps,
//
//	y = softmax(scale * q kᵀ over the kept keys) v
//
// for q [B,H,N,D], k and v [B,Hkv,N,D] and columns [B,H,U,ceil(N/32)] uint32 as
// GroupTopK returns them: y [B,H,N,D]. Query head h reads key head h/(H/Hkv). A
// query without any key gets zeros.
//
// With a State it does what the step's mode says: full attention (Dense), the
// output that ScoreCollect left (Refresh), or the kept columns (Reuse).
//
// Where only some tokens are wanted, as behind a model's last attention, it takes
// rows [R] int32 as TakeRows has them, after the columns. It may then leave out
// queries before the first of these tokens and behind the last, over all batch
// rows; what it returns for them is meaningless.
//
// It is differentiable in q, k and v, for the keys that were kept, but not with
// rows.
type ColumnSparseAttn struct {
	base
	p     AttentionParams
	state *State
}

// NewColumnSparseAttn returns the operator named by path.
func NewColumnSparseAttn(path string, p AttentionParams) (*ColumnSparseAttn, error) {
	const kind = "ColumnSparseAttn"
	if err := p.validate(kind, path); err != nil {
		return nil, err
	}
	in := []hm.Type{float4, float4, float4, bits4}
	if p.Rows {
		in = append(in, int1)
	}
	b := newBase(kind, path, p.masked(in...), float4, append(p.params(), p.Rows)...)
	o := &ColumnSparseAttn{b, p, p.State}
	if p.State != nil {
		p.State.sparse = o
		o.bind(p.State.step)
	}
	return o, nil
}

func (o *ColumnSparseAttn) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	sh, err := attentionShape(o, s[0], s[1], s[2], maskOf(o.p.Masked, s))
	if err != nil {
		return nil, err
	}
	if want := o.tableShape(sh); !sameShape(s[3], want) {
		return nil, fmt.Errorf("%s: %w: columns %v, want %v", o, ErrShape, s[3], want)
	}
	return s[0].Clone(), nil
}

func (o *ColumnSparseAttn) tableShape(s kernel.Shape) tensor.Shape {
	return tensor.Shape{s.Batch, s.Heads, kernel.Groups(s.Len, o.p.Group), kernel.Words(s.Len)}
}

func (o *ColumnSparseAttn) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	a, err := operands(o, &o.p, ts[0], ts[1], ts[2], maskOf(o.p.Masked, ts))
	if err != nil {
		return nil, err
	}
	from, to := 0, a.Len
	if o.p.Rows {
		if from, to, err = span(o, int32s(ts[4]), a.Batch, a.Len); err != nil {
			return nil, err
		}
	}
	mode := Reuse
	if st := o.state; st != nil {
		if mode, err = st.begin(o, &st.attended, &st.ranked); err != nil {
			return nil, err
		}
		st.observed(mode, &a)
		defer st.clock(mode, time.Now())
		if st.drift != nil && st.built {
			st.drift.measure(o.team(), mode, &a, &st.table)
		}
		if out := st.out; out != nil {
			st.out = nil
			return o.handOver(out)
		}
	}
	table, err := o.table(mode, a.Shape, ts[3])
	if err != nil {
		return nil, err
	}
	out, y, err := o.result(ts[0].Shape()...)
	if err != nil {
		return nil, err
	}
	a.From, a.To = from, to
	switch {
	case from == to: // nobody wants anything
	case table == nil:
		o.team().Dense(y, nil, &a)
	default:
		o.team().ColumnSparse(y, nil, &a, table)
	}
	return o.finish(out)
}

// PlanMemory takes over ScoreCollect's output in a refresh, and else asks for a result.
func (o *ColumnSparseAttn) PlanMemory(r *exec.Run) error {
	if o.state == nil || r.Mode != Refresh || o.p.Selection.Unchanging() {
		return o.place.PlanMemory(r)
	}
	if r.Adopt(o.state); o.placement.KeptResult() {
		return o.place.PlanMemory(r)
	}
	return nil
}

// handOver makes the output that ScoreCollect left the operator's result.
func (o *ColumnSparseAttn) handOver(out tensor.Tensor) (gorgonia.Value, error) {
	if !o.placement.KeptResult() {
		return o.finish(out)
	}
	kept, y, err := o.result(out.Shape()...)
	if err != nil {
		return nil, err
	}
	copy(y, out.(*held).Float32s())
	return o.finish(kept)
}

// span returns the range of tokens that rows ask for, over all batch rows of n.
func span(o fmt.Stringer, rows []int32, batch, n int) (from, to int, err error) {
	from = n
	for r, at := range rows {
		if at < 0 {
			continue
		}
		if int(at) >= batch*n {
			return 0, 0, fmt.Errorf("%s: %w: rows[%d] is %d, the input has %d rows", o, ErrValue, r, at, batch*n)
		}
		from, to = min(from, int(at)%n), max(to, int(at)%n+1)
	}
	return min(from, to), to, nil
}

// table returns the keys to attend to in a step of the given mode; nil for all.
func (o *ColumnSparseAttn) table(mode Mode, s kernel.Shape, columns *tensor.Dense) (*kernel.Table, error) {
	switch {
	case mode != Reuse:
		return nil, nil
	case o.state == nil:
		return o.given(s, columns)
	case !o.state.built:
		return nil, fmt.Errorf("%s: %w", o, ErrStale)
	}
	return &o.state.table, nil
}

// given is the table of an operator without a State: its input, which may come
// from anywhere.
func (o *ColumnSparseAttn) given(s kernel.Shape, columns *tensor.Dense) (*kernel.Table, error) {
	if want := o.tableShape(s); !sameShape(columns.Shape(), want) {
		return nil, fmt.Errorf("%s: %w: columns %v, want %v", o, ErrValue, columns.Shape(), want)
	}
	bits, w := uint32s(columns), kernel.Words(s.Len)
	if rest := s.Len % 32; rest != 0 {
		for i := w - 1; i < len(bits); i += w {
			if extra := bits[i] >> rest; extra != 0 {
				return nil, fmt.Errorf("%s: %w: word %d of columns sets keys beyond the last of %d", o, ErrValue, i, s.Len)
			}
		}
	}
	return &kernel.Table{Bits: bits, Group: o.p.Group, Reach: -1}, nil
}

// DiffWRT: q, k and v; the kept columns and the padding mask are held fixed.
func (o *ColumnSparseAttn) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range min(3, inputs) {
		wrt[i] = true
	}
	return wrt
}

func (o *ColumnSparseAttn) SymDiff(inputs gorgonia.Nodes, y, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if o.p.Rows {
		return o.base.SymDiff(inputs, y, grad)
	}
	return attentionGrads(o.path, o.p, o.table, true, inputs, grad)
}

// DoDiff is SymDiff for Lisp machines.
func (o *ColumnSparseAttn) DoDiff(ctx gorgonia.ExecutionContext, inputs gorgonia.Nodes, y *gorgonia.Node) error {
	if o.p.Rows {
		return o.base.DoDiff(ctx, inputs, y)
	}
	return o.addGradients(&o.p, o.table, inputs, y)
}

func (o *ColumnSparseAttn) mergesWith(other gorgonia.Op) bool {
	c, ok := other.(*ColumnSparseAttn)
	return ok && c.state == o.state
}

var (
	_ gorgonia.SDOp = (*ColumnSparseAttn)(nil)
	_ gorgonia.ADOp = (*ColumnSparseAttn)(nil)
)
