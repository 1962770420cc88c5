package op_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// layer is the three operators of one attention layer, called by hand.
type layer struct {
	step    exec.Step
	state   *exec.State
	collect gorgonia.Op
	topK    gorgonia.Op
	attend  gorgonia.Op
	masked  bool
}

func newLayer(t *testing.T, n int, p op.AttentionParams) *layer {
	t.Helper()
	l := &layer{masked: p.Masked}
	l.state = exec.NewState("layer", &l.step)
	p = p.In(l.state)
	l.collect = must(op.NewScoreCollect("layer", p))(t)
	l.topK = must(op.NewGroupTopK("layer", n, p))(t)
	l.attend = must(op.NewColumnSparseAttn("layer", p))(t)
	return l
}

// do runs one step of the layer.
func (l *layer) do(m op.Mode, a *kernel.Operands) (*tensor.Dense, error) {
	l.step.Begin(context.Background(), m)
	defer l.step.End()
	var in, mask []gorgonia.Value
	for _, x := range qkv(a) {
		in = append(in, x)
	}
	if l.masked {
		mask = in[3:]
	}
	scores, err := l.collect.Do(in...)
	if err != nil {
		return nil, err
	}
	columns, err := l.topK.Do(append([]gorgonia.Value{scores}, mask...)...)
	if err != nil {
		return nil, err
	}
	y, err := l.attend.Do(append(append(slices.Clone(in[:3]), columns), mask...)...)
	if err != nil {
		return nil, err
	}
	return y.(*tensor.Dense), nil
}

// TestModes compares the results of one layer in each mode with those of operators without a
// State.
func TestModes(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 37, HeadDim: 8}
	a, b := attncase.Seeded(1, s), attncase.Seeded(2, s)
	for _, padded := range []bool{false, true} {
		if padded {
			attncase.PadLeft(a, 5, 20)
			b.Valid = a.Valid
		}
		for name, sel := range map[string]op.Selection{
			"columns": {Sparsity: 0.7},
			"blocks":  {Kind: op.SelectBlocks, Sparsity: 0.5, Block: 4},
			"sparsed": {Kind: op.SelectSparseD, Sparsity: 0.5, Block: 8, Generation: 10},
			"ranked by another scale": {Kind: op.SelectSparseD, Sparsity: 0.5, Block: 8, Generation: 10,
				ScoreScale: 1.5},
		} {
			t.Run(fmt.Sprintf("%s-padded=%v", name, padded), func(t *testing.T) {
				p := op.AttentionParams{Group: 8, Selection: sel, Masked: padded}
				l := newLayer(t, s.Len, p)
				full := func(a *kernel.Operands) []float32 {
					return float32s(run(t, must(op.NewDenseAttn("full", 0, padded))(t), qkv(a)...))
				}
				columns := func(a *kernel.Operands) *tensor.Dense {
					in := qkv(a)
					scores := run(t, must(op.NewScoreCollect("free", p))(t), in...)
					return run(t, must(op.NewGroupTopK("free", s.Len, p))(t), append([]*tensor.Dense{scores}, in[3:]...)...)
				}
				sparse := func(a *kernel.Operands, columns *tensor.Dense) []float32 {
					in := qkv(a)
					return float32s(run(t, must(op.NewColumnSparseAttn("free", p))(t), append(append(slices.Clone(in[:3]), columns), in[3:]...)...))
				}
				check := func(m op.Mode, a *kernel.Operands, want []float32) {
					t.Helper()
					y, err := l.do(m, a)
					if err != nil {
						t.Fatalf("%v: %v", m, err)
					}
					tol.SameBits(t, "result", float32s(y), want)
				}

				check(op.Dense, a, full(a))
				if l.state.Built() {
					t.Error("a dense step built a table")
				}
				if _, err := l.do(op.Reuse, a); !errors.Is(err, op.ErrStale) {
					t.Errorf("reuse before any refresh: %v, want ErrStale", err)
				}
				y, err := l.do(op.Refresh, a)
				if err != nil {
					t.Fatal(err)
				}
				// Scores and output of one visit; the output alone may come from
				// another order of the same sums.
				plain, _ := ref.Attention[float32](a, nil)
				want, _ := ref.Attention[float64](a, nil)
				tol.ClosePlain(t, float32s(y), plain, want)
				table, err := l.state.Columns()
				if err != nil {
					t.Fatal(err)
				}
				selected := columns(a)
				if diff := cmp.Diff(uint32s(selected), table.Bits); diff != "" {
					t.Errorf("the table (-without a State +with):\n%s", diff)
				}
				check(op.Reuse, a, sparse(a, selected))
				check(op.Reuse, b, sparse(b, selected)) // other inputs, the same columns
				check(op.Dense, b, full(b))
				check(op.Reuse, b, sparse(b, selected)) // a dense step leaves the table
				if _, err := l.do(op.Refresh, b); err != nil {
					t.Fatal(err)
				}
				check(op.Reuse, a, sparse(a, columns(b)))

				l.state.Invalidate()
				if _, err := l.do(op.Reuse, a); !errors.Is(err, op.ErrStale) {
					t.Errorf("reuse of a dropped table: %v, want ErrStale", err)
				}
				if _, err := l.state.Columns(); !errors.Is(err, op.ErrStale) {
					t.Errorf("a dropped table: %v, want ErrStale", err)
				}
			})
		}
	}
}

// TestStepOrder: the operators of a layer refuse to run outside a step, twice in
// one, or out of order.
func TestStepOrder(t *testing.T) {
	a := attncase.Seeded(1, kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 4, HeadDim: 2})
	l := newLayer(t, 4, op.AttentionParams{Group: 2, Selection: op.Selection{Sparsity: 0.5}})
	q, k, v := qkv(a)[0], qkv(a)[1], qkv(a)[2]
	scores, columns := dense(make([]float32, 8), 1, 1, 2, 4), dense(make([]uint32, 2), 1, 1, 2, 1)
	calls := map[string]func() error{
		"ScoreCollect":     func() error { _, err := l.collect.Do(q, k, v); return err },
		"GroupTopK":        func() error { _, err := l.topK.Do(scores); return err },
		"ColumnSparseAttn": func() error { _, err := l.attend.Do(q, k, v, columns); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, op.ErrNoMachine) {
			t.Errorf("%s outside a step: %v, want ErrNoMachine", name, err)
		}
	}

	l.step.Begin(context.Background(), op.Refresh)
	for _, name := range []string{"GroupTopK", "ColumnSparseAttn"} {
		if err := calls[name](); !errors.Is(err, op.ErrOrder) {
			t.Errorf("%s first: %v, want ErrOrder", name, err)
		}
	}
	if l.state.Ran() {
		t.Error("Ran, before the attention has run")
	}
	for _, name := range []string{"ScoreCollect", "GroupTopK", "ColumnSparseAttn"} {
		if err := calls[name](); err != nil {
			t.Errorf("%s in order: %v", name, err)
		}
		if err := calls[name](); !errors.Is(err, op.ErrOrder) {
			t.Errorf("%s a second time: %v, want ErrOrder", name, err)
		}
	}
	if !l.state.Ran() {
		t.Error("not Ran, after the attention has run")
	}
	l.step.End()
	if err := calls["ScoreCollect"](); !errors.Is(err, op.ErrNoMachine) {
		t.Errorf("after the step: %v, want ErrNoMachine", err)
	}
	l.step.Begin(context.Background(), op.Reuse)
	if l.state.Ran() {
		t.Error("Ran carries over to the next step")
	}
}

// TestLayerStats counts on a table small enough to count by hand.
func TestLayerStats(t *testing.T) {
	const n = 4 // groups of 3 and 1 queries, 2 keys each
	one := &kernel.Operands{Shape: kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: n, HeadDim: n}, Scale: 1, V: make([]float32, n*n)}
	for i := range n {
		one.K = append(one.K, make([]float32, n)...)
		one.K[i*n+i] = 1
	}
	l := newLayer(t, n, op.AttentionParams{Group: 3, Scale: 1, Selection: op.Selection{Sparsity: 0.5}})
	refresh := func(first, last [n]float32) exec.LayerStats { // logits of the first three queries and of the last
		t.Helper()
		one.Q = append(append(append(append([]float32{}, first[:]...), first[:]...), first[:]...), last[:]...)
		if _, err := l.do(op.Refresh, one); err != nil {
			t.Fatal(err)
		}
		return l.state.Stats()
	}
	s := refresh([n]float32{9, 8, 0, 0}, [n]float32{0, 0, 8, 9}) // {0 1} and {2 3}
	if s.Refreshes != 1 || s.Density != 0.5 || s.Churn != 0 || s.Bytes != 8 {
		t.Errorf("first refresh: %+v", s)
	}
	s = refresh([n]float32{9, 0, 8, 0}, [n]float32{0, 0, 8, 9}) // key 1 gives way to 2 for three of four queries
	if s.Refreshes != 2 || s.Density != 0.5 || s.Churn != 3.0/8 {
		t.Errorf("second refresh: %+v, want churn 3/8", s)
	}
	s = refresh([n]float32{9, 0, 8, 0}, [n]float32{9, 8, 0, 0}) // both keys of one of four queries
	if s.Churn != 2.0/8 {
		t.Errorf("third refresh: %+v, want churn 2/8", s)
	}
	if _, err := l.do(op.Reuse, one); err != nil {
		t.Fatal(err)
	}
	if s = l.state.Stats(); s.Refreshes != 3 || s.Seconds[op.Refresh] <= 0 || s.Seconds[op.Reuse] <= 0 || s.Seconds[op.Dense] != 0 {
		t.Errorf("after a reuse: %+v", s)
	}
	l.state.Free()
	if s = l.state.Stats(); s.Bytes != 0 {
		t.Errorf("after Free: %+v", s)
	}
}

// TestChurnOfUnequalSets: churn is the share of the new table that is new, also
// where a refresh keeps fewer keys than the one before.
func TestChurnOfUnequalSets(t *testing.T) {
	const n = 6 // blocks of 4 and 2 keys, of which one is kept
	l := newLayer(t, n, op.AttentionParams{Group: n, Scale: 1, Selection: op.Selection{Kind: op.SelectBlocks, Block: 4, Sparsity: 0.5}})
	a := &kernel.Operands{Shape: kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: n, HeadDim: 1}, Scale: 1, V: make([]float32, n)}
	a.Q = []float32{1, 1, 1, 1, 1, 1}
	for _, c := range []struct {
		k              []float32
		churn, density float64
	}{
		{[]float32{9, 9, 9, 9, 0, 0}, 0, 4.0 / 6},
		{[]float32{0, 0, 0, 0, 9, 9}, 1, 2.0 / 6},
		{[]float32{0, 0, 0, 0, 9, 9}, 0, 2.0 / 6},
		{[]float32{9, 9, 9, 9, 0, 0}, 1, 4.0 / 6},
	} {
		a.K = c.k
		if _, err := l.do(op.Refresh, a); err != nil {
			t.Fatal(err)
		}
		if s := l.state.Stats(); s.Churn != c.churn || s.Density != c.density {
			t.Errorf("keys %v: churn %v and density %v, want %v and %v", c.k, s.Churn, s.Density, c.churn, c.density)
		}
	}
	l.state.Invalidate()
	if _, err := l.do(op.Refresh, a); err != nil {
		t.Fatal(err)
	}
	if s := l.state.Stats(); s.Churn != 0 {
		t.Errorf("after Invalidate there was nothing to replace: churn %v", s.Churn)
	}
}

// deviceMemory is a layer's memory on a device that can fail.
type deviceMemory struct {
	exec.DeviceState
	density, churn float64
	err            error
	asked          int
}

func (m *deviceMemory) DensityAndChurn() (density, churn float64, err error) {
	m.asked++
	return m.density, m.churn, m.err
}
func (m *deviceMemory) Drop()       {}
func (m *deviceMemory) Free() error { return nil }

// TestStatsOfDevice: the counts of a device are read once for a refresh, when the stats are
// read or the device is removed. If it fails to return them the stats do not change.
func TestStatsOfDevice(t *testing.T) {
	s := exec.NewState("layer", new(exec.Step))
	check := func(what string, refreshes int, density, churn float64) {
		t.Helper()
		if got := s.Stats(); got.Refreshes != refreshes || got.Density != density || got.Churn != churn {
			t.Errorf("%s: %+v, want %d refreshes, density %v and churn %v", what, got, refreshes, density, churn)
		}
	}
	m := &deviceMemory{density: 0.5, churn: 1}
	s.SetDevice(m, 8)
	refresh := func() {
		replaced := s.Built()
		s.BeginRefresh()
		s.CommitRefresh(replaced)
	}
	refresh()
	if m.asked != 0 {
		t.Error("a refresh asks")
	}
	check("first refresh", 1, 0.5, 0)
	check("again", 1, 0.5, 0)
	if m.asked != 1 {
		t.Errorf("asked %d times, want 1", m.asked)
	}
	refresh()
	m.density, m.churn = 0.25, 0.75
	refresh()
	s.Invalidate()
	check("third refresh", 3, 0.25, 0.75)
	m.err, m.density = errors.New("lost"), 1
	refresh()
	check("of which nothing is known", 4, 0.25, 0.75)
	m.err = nil
	s.SetDevice(&deviceMemory{density: 0.125}, 8)
	check("other memory", 4, 1, 0)
	refresh()
	s.BeginRefresh() // and an error
	check("a refresh that failed", 5, 1, 0)
	refresh()
	if err := s.Free(); err != nil {
		t.Error(err)
	}
	check("freed", 6, 0.125, 0)
	if b := s.Stats().Bytes; b != 0 {
		t.Errorf("%d bytes, freed", b)
	}
}

// TestColumnsIsACopy: changing the result of Columns does not change the layer's table.
func TestColumnsIsACopy(t *testing.T) {
	a := attncase.Seeded(1, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 40, HeadDim: 4})
	l := newLayer(t, 40, op.AttentionParams{Group: 16, Selection: op.Selection{Sparsity: 0.5}})
	if _, err := l.do(op.Refresh, a); err != nil {
		t.Fatal(err)
	}
	first := must(l.state.Columns())(t)
	want := slices.Clone(first.Bits)
	clear(first.Bits)
	if diff := cmp.Diff(want, must(l.state.Columns())(t).Bits); diff != "" {
		t.Error(diff)
	}
}

func TestModeString(t *testing.T) {
	if got, want := fmt.Sprint(op.Dense, op.Refresh, op.Reuse, op.Mode(7)), "dense refresh reuse Mode(7)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestGraphInput: in a step, StepInput returns the inputs of a planned operator that are
// inputs of the graph, unless the operator is at several nodes.
func TestGraphInput(t *testing.T) {
	g := gorgonia.NewGraph()
	x := input(g, "x", dense(make([]float32, 12), 1, 3, 4))
	sum := must(op.Apply(op.NewAdd("sum"), x, x))(t)
	more := must(op.Apply(op.NewAdd("more"), sum, x))(t)
	twice := op.NewAdd("twice")
	must(op.Apply(twice, x, x))(t)
	must(op.Apply(twice, sum, x))(t)
	step := new(exec.Step)
	step.Bind(g)
	if err := op.NewWorkspace().Plan(g, []op.Mode{op.Dense}); err != nil {
		t.Fatal(err)
	}
	check := func(o gorgonia.Op, i int, want *gorgonia.Node, wantNumber uint64) {
		t.Helper()
		got, of, number := exec.StepInput(o.(exec.Operator), i)
		if got != want || number != wantNumber || (want != nil) != (of == step) {
			t.Errorf("%v, input %d: %v in step %d, want %v in step %d", o, i, got, number, want, wantNumber)
		}
	}
	check(sum.Op(), 0, nil, 0) // no step is in progress
	for number := range uint64(2) {
		step.Begin(t.Context(), op.Dense)
		check(sum.Op(), 0, x, number+1)
		check(sum.Op(), 1, x, number+1)
		check(sum.Op(), 2, nil, 0)
		check(more.Op(), 0, nil, 0)
		check(more.Op(), 1, x, number+1)
		check(twice, 1, nil, 0)
		step.End()
	}
}
