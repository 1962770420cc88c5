package op

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/memplan"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// watched checks, before its operator runs, that every input still holds the result of its
// operator.
type watched struct {
	planned
	made map[gorgonia.Value][]float32
}

func (w *watched) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	for i, v := range in {
		if want, ok := w.made[v]; ok && !sameBits(v.(*exec.Held).Float32s(), want) {
			return nil, fmt.Errorf("%v: input %d was overwritten", w.planned, i)
		}
	}
	v, err := w.planned.Do(in...)
	if t, ok := v.(*exec.Held); ok && t.Dtype() == tensor.Float32 {
		w.made[v] = slices.Clone(t.Float32s())
	}
	return v, err
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// poison overwrites all memory of a workspace.
func poison(w *Workspace) {
	for _, memory := range [][]float32{w.transient, w.kept} {
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

// TestWorkspaceBytes: a workspace takes Bytes, which do not depend on the number of blocks,
// and two graphs that share one take no more than the larger.
func TestWorkspaceBytes(t *testing.T) {
	for _, s := range []stackShape{
		{batch: 2, n: 9, heads: 4, kvHeads: 2, dim: 4, hidden: 12, group: 4},
		{batch: 1, n: 8, heads: 2, kvHeads: 2, dim: 4, hidden: 8, group: 2}, // scores as large as outputs
		{batch: 1, n: 16, heads: 2, kvHeads: 1, dim: 2, hidden: 4, group: 1},
	} {
		shared, first := NewWorkspace(), int64(0)
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
			}
			if got, held := ws.Bytes(), 4*int64(len(ws.transient)+len(ws.kept)); got != held || len(ws.kept) == 0 {
				t.Errorf("%+v: %d bytes planned, %d held", s, got, held)
			}
			if first == 0 {
				first = ws.Bytes()
			}
			if got := ws.Bytes(); got != first {
				t.Errorf("%+v: %d bytes, but %d for 2 blocks", s, got, first)
			}
		}
		if got := shared.Bytes(); got != first {
			t.Errorf("%+v: %d bytes for two graphs, want %d", s, got, first)
		}
	}
}

// TestWorkspaceGrows: graphs of growing sizes in one workspace take the memory of the largest.
// That of smaller ones is released, and they go on in the new memory.
func TestWorkspaceGrows(t *testing.T) {
	ws := NewWorkspace()
	var stacks []*stack
	var want [][]float32
	var largest int64
	input := func(s stackShape) []float32 {
		x := make([]float32, inputSize(s))
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		return x
	}
	var released atomic.Int32
	shapes := []stackShape{}
	for _, n := range []int{8, 40, 120} {
		shapes = append(shapes, stackShape{blocks: 2, batch: 1, n: n, heads: 2, kvHeads: 1, dim: 4, hidden: 8, group: 2})
	}
	for i, s := range shapes {
		if i > 0 {
			runtime.AddCleanup(&ws.transient[0], func(int) { released.Add(1) }, 0)
			runtime.AddCleanup(&ws.kept[0], func(int) { released.Add(1) }, 0)
		}
		stacks = append(stacks, newStack(t, s, func(o planned) gorgonia.Op { return o }, func(st *stack) { st.plan(t, ws) }))
		want = append(want, slices.Clone(stacks[i].run(t, Refresh, input(s))))
		alone := NewWorkspace()
		newStack(t, s, func(o planned) gorgonia.Op { return o }, func(st *stack) { st.plan(t, alone) })
		largest = max(largest, alone.Bytes())
		if held := 4 * int64(len(ws.transient)+len(ws.kept)); held != largest || ws.Bytes() != largest {
			t.Errorf("%d bytes planned for %d graphs, %d held, want %d", ws.Bytes(), i+1, held, largest)
		}
	}
	for range 100 {
		if runtime.GC(); released.Load() == 4 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := released.Load(); got != 4 {
		t.Errorf("%d parts of smaller sizes were released, want 4", got)
	}
	for i, st := range stacks {
		if got := st.run(t, Refresh, input(shapes[i])); !sameBits(got, want[i]) {
			t.Errorf("graph %d has other results in memory that has grown", i)
		}
	}
	runtime.KeepAlive(stacks)
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

// failing is an operator that fails on request, after the operators before it
// have taken their buffers.
type failing struct {
	planned
	fail *bool
}

func (f failing) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if *f.fail {
		return nil, fmt.Errorf("%v: fails on request", f.planned)
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
