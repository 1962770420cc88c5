package op

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/memplan"
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
func (st *stack) run(t *testing.T, m Mode, x []float32) []float32 {
	t.Helper()
	if err := gorgonia.Let(st.x, wrap(slices.Clone(x), st.x.Shape()...)); err != nil {
		t.Fatal(err)
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

// watched checks, before its operator runs, that every input still is what its operator
// has made.
type watched struct {
	planned
	made map[gorgonia.Value][]float32
}

func (w *watched) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	for i, v := range in {
		if want, ok := w.made[v]; ok && !sameBits(v.(*held).Float32s(), want) {
			return nil, fmt.Errorf("%v: input %d was overwritten", w.planned, i)
		}
	}
	v, err := w.planned.Do(in...)
	if t, ok := v.(*held); ok && t.Dtype() == tensor.Float32 {
		w.made[v] = slices.Clone(t.Float32s())
	}
	return v, err
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// poison overwrites all memory of a workspace.
func poison(w *Workspace) {
	for _, memory := range append([][]float32{w.transient}, slices.Collect(maps.Values(w.kept))...) {
		for i := range memory {
			memory[i] = float32(math.NaN())
		}
	}
}

// allModes are those of a graph with attention layers.
var allModes = []Mode{Dense, Refresh, Reuse}

// TestWorkspaceKeepsWhatIsRead: results under a workspace equal results without one bit for
// bit, in every mode, nothing is overwritten before its last reader has run, and nothing
// is read that the step has not written.
func TestWorkspaceKeepsWhatIsRead(t *testing.T) {
	// The second shape has scores and outputs of one size, which then share memory.
	for _, s := range []stackShape{
		{blocks: 3, batch: 2, n: 9, heads: 4, kvHeads: 2, dim: 4, hidden: 12, group: 4},
		{blocks: 2, batch: 1, n: 8, heads: 2, kvHeads: 2, dim: 4, hidden: 8, group: 2},
	} {
		ws, made := NewWorkspace(), map[gorgonia.Value][]float32{}
		plain := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(*stack) {})
		planned := newStack(t, s, func(o planned) gorgonia.Op { return &watched{o, made} }, func(st *stack) { st.plan(t, ws) })
		r := rand.New(rand.NewPCG(1, 1))
		for i, m := range []Mode{Dense, Refresh, Reuse, Reuse, Dense, Refresh, Refresh, Reuse} {
			x := make([]float32, inputSize(s))
			for j := range x {
				x[j] = float32(r.NormFloat64())
			}
			poison(ws)
			clear(made)
			want, got := plain.run(t, m, x), planned.run(t, m, x)
			for j := range want {
				if math.Float32bits(got[j]) != math.Float32bits(want[j]) || want[j] != want[j] {
					t.Fatalf("%+v, step %d (%v), logit %d: %v under a workspace, %v without", s, i+1, m, j, got[j], want[j])
				}
			}
		}
		if len(made) == 0 {
			t.Error("nothing was watched")
		}
	}
}

// plan plans the stack's graph with its logits kept.
func (st *stack) plan(t testing.TB, ws *Workspace) {
	t.Helper()
	if err := ws.Plan(st.g, allModes, st.out); err != nil {
		t.Fatal(err)
	}
}

func inputSize(s stackShape) int { return s.batch * s.n * s.heads * s.dim }

// TestWorkspaceBytes: a workspace takes what it says, which does not depend on the number
// of blocks, and two graphs that share one take no more than the larger.
func TestWorkspaceBytes(t *testing.T) {
	for _, s := range []stackShape{
		{batch: 2, n: 9, heads: 4, kvHeads: 2, dim: 4, hidden: 12, group: 4},
		{batch: 1, n: 8, heads: 2, kvHeads: 2, dim: 4, hidden: 8, group: 2}, // scores as large as outputs
		{batch: 1, n: 16, heads: 2, kvHeads: 1, dim: 2, hidden: 4, group: 1},
	} {
		shared, first := NewWorkspace(), int64(0)
		var kept int64
		for _, s.blocks = range []int{2, 6} {
			ws := NewWorkspace()
			var want []float32
			x := make([]float32, inputSize(s))
			x[1] = 1
			for _, ws := range []*Workspace{ws, shared} {
				st := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(st *stack) { st.plan(t, ws) })
				for _, m := range []Mode{Refresh, Reuse, Refresh, Dense} {
					got := st.run(t, m, x)
					if m == Reuse && want == nil {
						want = got
					}
					if m == Reuse && !sameBits(got, want) {
						t.Errorf("%+v: other results in a shared workspace", s)
					}
				}
				kept = 4 * int64(len(ws.kept[ws.plans[0]]))
			}
			if got, held := ws.Bytes(), 4*int64(len(ws.transient))+kept; got != held {
				t.Errorf("%+v: %d bytes planned, %d held", s, got, held)
			}
			if first == 0 {
				first = ws.Bytes()
			}
			if got := ws.Bytes(); got != first {
				t.Errorf("%+v: %d bytes, but %d for 2 blocks", s, got, first)
			}
		}
		if got, want := shared.Bytes(), first+kept; got != want {
			t.Errorf("%+v: %d bytes for two graphs, want %d", s, got, want)
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
	if err := ws.Plan(g, []Mode{Dense}); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[*gorgonia.Node]bool{ours: true, read: false, squared: false, last: false} {
		if got := n.Op().(planned).Placement().PlannedResult(); got != want {
			t.Errorf("%v: result in the workspace: %v, want %v", n.Op(), got, want)
		}
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	for range 3 {
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
	if got := ws.Bytes(); got != memplan.Alignment || len(ws.transient) != int(got/4) {
		t.Errorf("the workspace takes %d bytes and holds %d, want those of one small result", got, 4*len(ws.transient))
	}
	ws.Free()
	if len(ws.transient)+len(ws.kept) != 0 {
		t.Error("memory is held after Free")
	}
}

// TestKeptResultStays: a kept result is the same memory in every run and holds the
// latest one's values.
func TestKeptResultStays(t *testing.T) {
	s := stackShape{blocks: 1, batch: 1, n: 6, heads: 2, kvHeads: 1, dim: 4, hidden: 8, group: 2}
	ws := NewWorkspace()
	st := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(st *stack) { st.plan(t, ws) })
	x := make([]float32, inputSize(s))
	x[3] = 1
	first := st.run(t, Dense, x)
	memory := &st.out.Value().Data().([]float32)[0]
	x[3] = -1
	second := st.run(t, Dense, x)
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
// the next runs are right.
func TestWorkspaceAfterFailure(t *testing.T) {
	s := stackShape{blocks: 1, batch: 1, n: 6, heads: 2, kvHeads: 1, dim: 4, hidden: 8, group: 2}
	ws := NewWorkspace()
	made := map[gorgonia.Value][]float32{}
	var fails []*bool
	plain := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(*stack) {})
	st := newStack(t, s, func(o planned) gorgonia.Op {
		fails = append(fails, new(bool))
		return failing{&watched{o, made}, fails[len(fails)-1]}
	}, func(st *stack) { st.plan(t, ws) })
	x := make([]float32, inputSize(s))
	for i := range x {
		x[i] = float32(i%5) - 2
	}
	modes := []Mode{Refresh, Reuse, Dense}
	var want [][]float32
	for _, m := range modes {
		want = append(want, plain.run(t, m, x))
		st.run(t, m, x)
	}
	held := ws.Bytes()
	for _, fail := range fails {
		for i, m := range modes {
			*fail = true
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
				st.run(t, Refresh, x)
			}
			if got := st.run(t, m, x); !slices.Equal(got, want[i]) {
				t.Errorf("%v after a failure: %v, want %v", m, got, want[i])
			}
		}
	}
	if got := ws.Bytes(); got != held {
		t.Errorf("%d bytes after failures, %d before", got, held)
	}
}
