package op

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// stack is a transformer of some blocks built from the operators of this package.
type stack struct {
	g      *gorgonia.ExprGraph
	x      *gorgonia.Node
	out    *gorgonia.Node // [B*N, V] logits
	vm     gorgonia.VM
	step   Step
	states []*State
}

type stackShape struct{ blocks, batch, n, heads, kvHeads, dim, hidden, group int }

// newStack builds and compiles a stack. wrap stands between each operator and
// the graph, plan comes before compiling.
func newStack(t testing.TB, s stackShape, wrap func(planned) gorgonia.Op, plan func(*stack)) *stack {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	vector := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64() / 2)
		}
		return v
	}
	matrix := func(rows, cols int) Weight {
		w, err := NewWeightFloat32(rows, cols, vector(rows*cols))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	add := func(o planned, err error, in ...*gorgonia.Node) *gorgonia.Node {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		n, err := Apply(wrap(o), in...)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	st := &stack{g: gorgonia.NewGraph()}
	features := s.heads * s.dim
	st.x = gorgonia.NewTensor(st.g, tensor.Float32, 3, gorgonia.WithShape(s.batch, s.n, features), gorgonia.WithName("x"))
	at := make([]int32, s.batch*s.n)
	for i := range at {
		at[i] = int32(i % s.n)
	}
	positions := gorgonia.NewMatrix(st.g, tensor.Int32, gorgonia.WithShape(s.batch, s.n), gorgonia.WithName("positions"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(s.batch, s.n), tensor.WithBacking(at))))
	rows := make([]int32, s.batch*s.n)
	for i := range rows {
		rows[i] = int32(i)
	}
	wanted := gorgonia.NewVector(st.g, tensor.Int32, gorgonia.WithShape(len(rows)), gorgonia.WithName("rows"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(len(rows)), tensor.WithBacking(rows))))

	projection := func(rows, cols int) Projection { return Projection{Weight: matrix(rows, cols)} }
	x := st.x
	for i := range s.blocks {
		path := func(name string) string { return fmt.Sprintf("%d.%s", i, name) }
		state := NewState(path("attention"), &st.step)
		st.states = append(st.states, state)
		p := AttentionParams{Group: s.group, Selection: Selection{Sparsity: 0.6}, State: state}
		norm := add(NewRMSNorm(path("norm1"), vector(features), 1e-5), nil, x)
		linear, err := NewLinear(path("qkv"), projection(features, features), projection(s.kvHeads*s.dim, features), projection(s.kvHeads*s.dim, features))
		qkv := add(linear, err, norm)
		rope := func(name string, first, count int) *gorgonia.Node {
			o, err := NewRoPE(path(name+".rope"), Heads{First: first, Count: count, Dim: s.dim}, 1e4)
			return add(o, err, qkv, positions)
		}
		q, k := rope("q", 0, s.heads), rope("k", s.heads, s.kvHeads)
		split, err := NewSplitHeads(path("v.heads"), Heads{First: s.heads + s.kvHeads, Count: s.kvHeads, Dim: s.dim})
		v := add(split, err, qkv)
		collect, err := NewScoreCollect(path("attention"), p)
		scores := add(collect, err, q, k, v)
		choose, err := NewGroupTopK(path("attention"), s.n, p)
		columns := add(choose, err, scores)
		attend, err := NewColumnSparseAttn(path("attention"), p)
		a := add(NewMergeHeads(path("merge")), nil, add(attend, err, q, k, v, columns))
		out, err := NewLinear(path("out"), projection(features, features))
		x = add(NewAdd(path("residual1")), nil, x, add(out, err, a))
		norm = add(NewRMSNorm(path("norm2"), vector(features), 1e-5), nil, x)
		act, err := NewSwiGLU(path("act"), projection(s.hidden, features), projection(s.hidden, features))
		h := add(act, err, norm)
		down, err := NewAddLinear(path("down"), projection(features, s.hidden))
		x = add(down, err, h, x)
	}
	// One operator reads x twice, and another after it.
	x = add(NewAdd("thrice"), nil, add(NewAdd("twice"), nil, x, x), x)
	st.out = add(NewLogits("head", matrix(5, features)), nil, add(NewTakeRows("rows"), nil, x, wanted), wanted)
	plan(st)
	if err := Check(st.g); err != nil {
		t.Fatal(err)
	}
	st.vm = gorgonia.NewTapeMachine(st.g)
	t.Cleanup(func() { st.vm.Close() })
	return st
}

// run does one step and returns a copy of the logits.
func (st *stack) run(t *testing.T, m Mode, x []float32, ws *Workspace) []float32 {
	t.Helper()
	if err := gorgonia.Let(st.x, wrap(slices.Clone(x), st.x.Shape()...)); err != nil {
		t.Fatal(err)
	}
	if ws != nil {
		ws.Reset()
	}
	st.step.Begin(context.Background(), m)
	err := st.vm.RunAll()
	st.step.End()
	if err != nil {
		t.Fatal(err)
	}
	out := slices.Clone(st.out.Value().Data().([]float32))
	st.vm.Reset()
	return out
}

// poisoned spoils, after its operator has run, every buffer that is not in use.
type poisoned struct {
	planned
	ws *Workspace
}

func (p poisoned) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := p.planned.Do(in...)
	for _, buffers := range p.ws.free {
		for _, b := range buffers {
			for i := range b.data {
				b.data[i] = float32(math.NaN())
			}
		}
	}
	return v, err
}

// TestWorkspaceKeepsWhatIsRead: results under a workspace equal results without
// one bit for bit, in every mode, even if each buffer is overwritten the moment
// nobody should need it.
func TestWorkspaceKeepsWhatIsRead(t *testing.T) {
	// The second shape has scores and outputs of one size, which then share buffers.
	for _, s := range []stackShape{
		{blocks: 3, batch: 2, n: 9, heads: 4, kvHeads: 2, dim: 4, hidden: 12, group: 4},
		{blocks: 2, batch: 1, n: 8, heads: 2, kvHeads: 2, dim: 4, hidden: 8, group: 2},
	} {
		ws := NewWorkspace()
		plain := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(*stack) {})
		planned := newStack(t, s, func(o planned) gorgonia.Op { return poisoned{o, ws} }, func(st *stack) { ws.Plan(st.g, st.out) })
		r := rand.New(rand.NewPCG(1, 1))
		for i, m := range []Mode{Dense, Refresh, Reuse, Reuse, Dense, Refresh, Refresh, Reuse} {
			x := make([]float32, inputSize(s))
			for j := range x {
				x[j] = float32(r.NormFloat64())
			}
			want, got := plain.run(t, m, x, nil), planned.run(t, m, x, ws)
			for j := range want {
				if math.Float32bits(got[j]) != math.Float32bits(want[j]) || want[j] != want[j] {
					t.Fatalf("%+v, step %d (%v), logit %d: %v under a workspace, %v without", s, i+1, m, j, got[j], want[j])
				}
			}
		}
	}
}

func inputSize(s stackShape) int { return s.batch * s.n * s.heads * s.dim }

// TestRehearse: the forecast of a graph's memory equals what its runs take, and
// both are independent of the number of blocks.
func TestRehearse(t *testing.T) {
	for _, s := range []stackShape{
		{batch: 2, n: 9, heads: 4, kvHeads: 2, dim: 4, hidden: 12, group: 4},
		{batch: 1, n: 8, heads: 2, kvHeads: 2, dim: 4, hidden: 8, group: 2}, // scores as large as outputs
		{batch: 1, n: 16, heads: 2, kvHeads: 1, dim: 2, hidden: 4, group: 1},
	} {
		var first [2]int64
		for _, s.blocks = range []int{2, 6} {
			ws := NewWorkspace()
			st := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(st *stack) { ws.Plan(st.g, st.out) })
			kept := 4 * int64(st.out.Shape().TotalSize()) // a buffer of its own, outside the workspace
			x := make([]float32, inputSize(s))
			for i, refresh := range []bool{false, true} {
				want, err := Rehearse(st.g, refresh)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range map[bool][]Mode{false: {Dense, Dense}, true: {Refresh, Reuse, Refresh, Dense}}[refresh] {
					st.run(t, m, x, ws)
				}
				if got := ws.Bytes() + kept; got != want {
					t.Errorf("%+v, refresh %v: %d bytes, rehearsed %d", s, refresh, got, want)
				}
				if first[i] == 0 {
					first[i] = want
				}
				if want != first[i] {
					t.Errorf("%+v, refresh %v: %d bytes, but %d for 2 blocks", s, refresh, want, first[i])
				}
			}
		}
	}
}

// TestPlanLeavesForeignReadersAlone: a result that Gorgonia's own operators or Read
// consume keeps memory of its own, which the workspace never hands out again.
func TestPlanLeavesForeignReadersAlone(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(1, 1, 4), gorgonia.WithName("x"),
		gorgonia.WithValue(wrap([]float32{1, 2, 3, 4}, 1, 1, 4)))
	apply := func(path string, a, b *gorgonia.Node) *gorgonia.Node {
		n, err := Apply(NewAdd(path), a, b)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ours := apply("ours", x, x)        // read by operators of this package alone
	read := apply("read", ours, x)     // and by Read
	squared := apply("sq", read, ours) // and by Gorgonia's product, in place if it can
	foreign, err := gorgonia.HadamardProd(squared, squared)
	if err != nil {
		t.Fatal(err)
	}
	last := apply("last", read, squared)
	var readValue, foreignValue, lastValue gorgonia.Value
	gorgonia.Read(read, &readValue)
	gorgonia.Read(foreign, &foreignValue)
	gorgonia.Read(last, &lastValue)
	ws := NewWorkspace()
	ws.Plan(g)
	for n, want := range map[*gorgonia.Node]bool{ours: true, read: false, squared: false, last: false} {
		if got := n.Op().(planned).planReaders() > 0; got != want {
			t.Errorf("%v: result in the workspace: %v, want %v", n.Op(), got, want)
		}
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	for range 3 {
		ws.Reset()
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		vm.Reset()
		for _, c := range []struct {
			name string
			got  gorgonia.Value
			want []float32
		}{
			{"read", readValue, []float32{3, 6, 9, 12}},
			{"foreign", foreignValue, []float32{25, 100, 225, 400}},
			{"last", lastValue, []float32{8, 16, 24, 32}},
		} {
			if got := c.got.Data().([]float32); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
		}
	}
	if ws.Bytes() != 16 {
		t.Errorf("the workspace holds %d bytes, want those of one result", ws.Bytes())
	}
	ws.Free()
	if ws.Bytes() != 0 {
		t.Errorf("%d bytes after Free", ws.Bytes())
	}
}

// TestKeptResultStays: a kept result is the same memory in every run and holds the
// latest one's values.
func TestKeptResultStays(t *testing.T) {
	s := stackShape{blocks: 1, batch: 1, n: 6, heads: 2, kvHeads: 1, dim: 4, hidden: 8, group: 2}
	ws := NewWorkspace()
	st := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(st *stack) { ws.Plan(st.g, st.out) })
	x := make([]float32, inputSize(s))
	x[3] = 1
	first := st.run(t, Dense, x, ws)
	memory := &st.out.Value().Data().([]float32)[0]
	x[3] = -1
	second := st.run(t, Dense, x, ws)
	if slices.Equal(first, second) {
		t.Fatal("premise: two inputs, one result")
	}
	if got := st.out.Value().Data().([]float32); &got[0] != memory || !slices.Equal(got, second) {
		t.Error("the kept result moved or is not the latest")
	}
}

// failing is an operator that fails when told to, after the operators before it
// have taken their buffers.
type failing struct {
	planned
	fail *bool
}

func (f failing) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if *f.fail {
		return nil, fmt.Errorf("%v: told to fail", f.planned)
	}
	return f.planned.Do(in...)
}

// TestWorkspaceAfterFailure: whichever operator of a step fails, in whichever mode,
// Reset takes back what was in use, and the next runs are right.
func TestWorkspaceAfterFailure(t *testing.T) {
	s := stackShape{blocks: 1, batch: 1, n: 6, heads: 2, kvHeads: 1, dim: 4, hidden: 8, group: 2}
	ws := NewWorkspace()
	var fails []*bool
	plain := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(*stack) {})
	st := newStack(t, s, func(o planned) gorgonia.Op {
		fails = append(fails, new(bool))
		return failing{poisoned{o, ws}, fails[len(fails)-1]}
	}, func(st *stack) { ws.Plan(st.g, st.out) })
	x := make([]float32, inputSize(s))
	for i := range x {
		x[i] = float32(i%5) - 2
	}
	modes := []Mode{Refresh, Reuse, Dense}
	var want [][]float32
	for _, m := range modes {
		want = append(want, plain.run(t, m, x, nil))
		st.run(t, m, x, ws)
	}
	held := ws.Bytes()
	for _, fail := range fails {
		for i, m := range modes {
			*fail = true
			ws.Reset()
			st.step.Begin(context.Background(), m)
			err := st.vm.RunAll()
			st.step.End()
			st.vm.Reset()
			if err == nil {
				t.Fatal("the step did not fail")
			}
			*fail = false
			if m == Refresh {
				st.states[0].Invalidate() // as a controller does
				st.run(t, Refresh, x, ws)
			}
			if got := st.run(t, m, x, ws); !slices.Equal(got, want[i]) {
				t.Errorf("%v after a failure: %v, want %v", m, got, want[i])
			}
		}
	}
	if got := ws.Bytes(); got != held {
		t.Errorf("%d bytes after failures, %d before", got, held)
	}
}
