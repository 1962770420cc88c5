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

type columnSparseAttn struct {
	base
	p exec.Attention
}

// NewColumnSparseAttn returns the third operator of PulseCol, named by path: attention in
// which every query of a group sees exactly the keys its group keeps,
//
//	y = softmax(scale * q kᵀ over the kept keys) v
//
// for q [B,H,N,D], k and v [B,Hkv,N,D] and columns [B,H,U,ceil(N/32)] uint32 as
// GroupTopK returns them: y [B,H,N,D]. Query head h reads key head h/(H/Hkv). A
// query without any key gets zeros.
//
// In a controller's layer it follows the mode of the step: full attention (Dense), the
// output that ScoreCollect has computed (Refresh), or the kept columns (Reuse).
//
// With p.Rows the input after the columns is rows [R] int32, as GatherRows takes them.
// Queries before the first of these tokens and after the last, over all batch rows, may be
// left out; their results are then undefined.
//
// It is differentiable in q, k and v, for the keys that were kept. The gradients of results
// that may be left out count as zero. With cached keys it has no gradient.
// Parameters out of range are an ErrValue.
func NewColumnSparseAttn(path string, p AttentionParams) (gorgonia.Op, error) {
	const kind = "ColumnSparseAttn"
	a, err := p.spec(kind, path)
	if err != nil {
		return nil, err
	}
	in := []hm.Type{float4, float4, float4, bits4}
	if a.Rows {
		in = append(in, int1)
	}
	o := &columnSparseAttn{newBase(kind, path, withMask(&a, in...), float4, append(hashed(&a), a.Rows)...), a}
	if a.State != nil {
		a.Handoff.Attend = o
		o.Bind(a.State.Step())
	}
	return o, nil
}

func (o *columnSparseAttn) Spec() any { return exec.ColumnSparseAttn{Attention: o.p} }

func (o *columnSparseAttn) Layer() *exec.State { return o.p.State }

func (o *columnSparseAttn) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	sh, err := attentionShape(o, &o.p, s[0], s[1], s[2], maskOf(o.p.Masked, s))
	if err != nil {
		return nil, err
	}
	if want := o.tableShape(sh); !sameShape(s[3], want) {
		return nil, fmt.Errorf("%s: %w: columns %v, want %v", o, ErrShape, s[3], want)
	}
	return s[0].Clone(), nil
}

func (o *columnSparseAttn) tableShape(s kernel.Shape) tensor.Shape {
	return tensor.Shape{s.Batch, s.Heads, kernel.Groups(s.Queries(), o.p.Group), kernel.Words(s.Len)}
}

func (o *columnSparseAttn) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	a, err := operands(o, &o.p, ts[0], ts[1], ts[2], maskOf(o.p.Masked, ts))
	if err != nil {
		return nil, err
	}
	a.From, a.To = 0, a.Queries()
	if o.p.Rows {
		if a.From, a.To, err = selectedRange(o, int32s(ts[4]), a.Batch, a.Queries()); err != nil {
			return nil, err
		}
	}
	mode := Reuse
	if st := o.p.State; st != nil {
		if mode, err = st.Begin(o, exec.Attend); err != nil {
			return nil, err
		}
		st.Observed(mode, &a)
		defer st.AddTime(mode, time.Now())
		st.MeasureDrift(o.team(), mode, &a)
		if y := o.p.Handoff.Output; y != nil {
			o.p.Handoff.Output = nil
			return o.handOver(y, ts[0].Shape())
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
	o.attend(y, &a, table)
	return o.finish(out)
}

// attend computes the queries [a.From, a.To) over the keys of a table, nil for all keys.
// In a step that selects the columns of a block, the active rows attend to all keys.
func (o *columnSparseAttn) attend(y []float32, a *kernel.Operands, table *kernel.Table) {
	some := func(from, to int, table *kernel.Table) {
		part := *a
		part.From, part.To = max(from, a.From), min(to, a.To)
		switch {
		case part.From >= part.To: // no token is selected
		case table == nil:
			o.team().Dense(y, nil, &part)
		default:
			o.team().ColumnSparse(y, nil, &part, table)
		}
	}
	rows := a.Queries()
	if table == nil || o.p.Cached == 0 || !o.p.State.Step().Pass().Select {
		some(0, rows, table)
		return
	}
	pass := o.p.State.Step().Pass()
	from, to := pass.From-pass.First, pass.To-pass.First
	some(0, from, table)
	some(from, to, nil)
	some(to, rows, table)
}

// PlanMemory takes over ScoreCollect's output in a refresh, and else asks for a result.
func (o *columnSparseAttn) PlanMemory(r *exec.Run) error {
	if o.p.State == nil || r.Mode != Refresh || o.p.Selection.Unchanging() {
		return o.place.PlanMemory(r)
	}
	if r.Adopt(o.p.State); o.placement.KeptResult() {
		return o.place.PlanMemory(r)
	}
	return nil
}

// handOver makes the output that ScoreCollect has computed the operator's result.
func (o *columnSparseAttn) handOver(y []float32, shape tensor.Shape) (gorgonia.Value, error) {
	switch {
	case !o.placement.PlannedResult():
		return o.finish(wrap(y, shape.Clone()...))
	case !o.placement.KeptResult():
		return o.finish(o.tensor(y, shape))
	}
	kept, to, err := o.result(shape...)
	if err != nil {
		return nil, err
	}
	copy(to, y)
	return o.finish(kept)
}

// selectedRange returns the range of tokens, over all batch rows of n, that the selected
// rows lie in.
func selectedRange(o fmt.Stringer, rows []int32, batch, n int) (from, to int, err error) {
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
func (o *columnSparseAttn) table(mode Mode, s kernel.Shape, columns *tensor.Dense) (*kernel.Table, error) {
	switch {
	case mode != Reuse:
		return nil, nil
	case o.p.State == nil:
		return o.inputTable(s, columns)
	case o.p.Selection.Kind == SelectStatic && s.Queries() < s.Len:
		return o.p.StaticRows(), nil
	case o.p.Cached > 0 && o.p.State.Step().Pass().Kind == exec.BlockStep && o.p.Selection.Kind != SelectStatic:
		return o.p.State.BlockTable(), nil
	case !o.p.State.BuiltFor(s.Batch, s.Heads, s.Len):
		return nil, fmt.Errorf("%s: %w", o, ErrStale)
	}
	return o.p.State.Table(), nil
}

// inputTable is the table of an operator outside a controller's layer: its fourth input,
// which is checked because any operator may have made it.
func (o *columnSparseAttn) inputTable(s kernel.Shape, columns *tensor.Dense) (*kernel.Table, error) {
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
func (o *columnSparseAttn) DiffWRT(inputs int) []bool { return firstThree(inputs) }

func (o *columnSparseAttn) SymDiff(inputs gorgonia.Nodes, y, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if o.p.Cached > 0 {
		return o.base.SymDiff(inputs, y, grad)
	}
	return attentionGrads(o.path, o.p, o.table, true, inputs, grad)
}

// DoDiff is SymDiff for Lisp machines.
func (o *columnSparseAttn) DoDiff(ctx gorgonia.ExecutionContext, inputs gorgonia.Nodes, y *gorgonia.Node) error {
	if o.p.Cached > 0 {
		return o.base.DoDiff(ctx, inputs, y)
	}
	return o.addGradients(&o.p, o.table, inputs, y)
}

func (o *columnSparseAttn) MergesWith(other gorgonia.Op) bool {
	c, ok := other.(*columnSparseAttn)
	return ok && c.p.State == o.p.State
}

var (
	_ exec.Operator = (*columnSparseAttn)(nil)
	_ gorgonia.ADOp = (*columnSparseAttn)(nil)
)
