package pulsecol_test

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chewxy/hm"
	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// hook is an operator from outside: it copies its input, after calling do, whose
// error it returns.
type hook struct{ do func() error }

func (hook) Arity() int { return 1 }
func (hook) Type() hm.Type {
	a := hm.TypeVariable('a')
	return hm.NewFnType(a, a)
}
func (hook) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape).Clone(), nil
}
func (h hook) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if err := h.do(); err != nil {
		return nil, err
	}
	return in[0].(*tensor.Dense).Clone().(*tensor.Dense), nil
}
func (hook) ReturnsPtr() bool      { return true }
func (hook) CallsExtern() bool     { return false }
func (hook) OverwritesInput() int  { return -1 }
func (hook) WriteHash(h hash.Hash) { fmt.Fprint(h, "hook") }
func (h hook) Hashcode() uint32 {
	f := fnv.New32a()
	h.WriteHash(f)
	return f.Sum32()
}
func (hook) String() string { return "hook" }

// hooked returns a newRig between that calls do.
func hooked(t testing.TB, do func() error) func(*gorgonia.Node) *gorgonia.Node {
	return func(y *gorgonia.Node) *gorgonia.Node {
		t.Helper()
		return must(gorgonia.ApplyOp(&hook{do}, y))(t)
	}
}

// TestFailedStep: an operator that fails between two attention layers fails the
// step, whatever it was; the step does not count, no column of a half-done refresh
// is ever used, and run again the step gives what it gives undisturbed.
func TestFailedStep(t *testing.T) {
	boom := errors.New("boom")
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Window: 1, Refreshes: 3}} // 1, 4, 7 of 7
	modes := []pulsecol.Mode{refresh, reuse, reuse, refresh, reuse, reuse, refresh}
	shape := small
	shape.KVHeads = shape.Heads
	for failAt := 1; failAt <= len(modes); failAt++ {
		for _, times := range []int{1, 3} {
			for _, planned := range []bool{false, true} {
				t.Run(fmt.Sprintf("step%d-%dtimes-workspace=%v", failAt, times, planned), func(t *testing.T) {
					fail := false
					calm := newRig(t, randomOperands(1, shape), cfg, 2, hooked(t, func() error { return nil }))
					r := newRig(t, randomOperands(1, shape), cfg, 2, hooked(t, func() error {
						if fail {
							return boom
						}
						return nil
					}))
					if planned {
						ws := op.NewWorkspace()
						ws.Plan(r.g)
						r.m.UseWorkspace(ws)
					}
					calm.start(len(modes))
					r.start(len(modes))
					for i, mode := range modes {
						a := randomOperands(uint64(10+i), shape)
						if i+1 == failAt {
							before := snapshot(r.ctl)
							fail = true
							for range times {
								r.let(randomOperands(99, shape)) // nothing of it may stay
								if err := r.m.Step(); !errors.Is(err, boom) {
									t.Fatalf("got %v, want the operator's error", err)
								}
								if done, _ := r.ctl.Step(); done != i {
									t.Fatalf("a failed step counts: %d done, want %d", done, i)
								}
								switch after := snapshot(r.ctl); {
								case mode == refresh && after != [2]string{}:
									t.Fatal("columns of a failed refresh can be read")
								case mode == reuse && after != before:
									t.Fatal("a failed reuse changed the columns")
								}
								if got := r.ctl.Mode(); got != mode {
									t.Fatalf("the step to be repeated is %v, want %v", got, mode)
								}
							}
							fail = false
						}
						sameBits(t, fmt.Sprint("step ", i+1), r.step(a, mode), calm.step(a, mode))
						if diff := cmp.Diff(snapshot(calm.ctl), snapshot(r.ctl)); diff != "" {
							t.Fatalf("columns after step %d (-undisturbed +got):\n%s", i+1, diff)
						}
					}
					if got, want := r.ctl.Stats().RefreshSteps, calm.ctl.Stats().RefreshSteps; !slices.Equal(got, want) {
						t.Errorf("refreshes %v, want %v", got, want)
					}
				})
			}
		}
	}
}

// TestCancelledStep: a step whose context is done, wherever it was, fails with the
// context's error and does not count, a refresh leaves no columns, and run again the
// step gives what it gives undisturbed.
func TestCancelledStep(t *testing.T) {
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Window: 1, Refreshes: 2}} // 1, 4 of 4
	modes := []pulsecol.Mode{refresh, reuse, reuse, refresh}
	shape := kernel.Shape{Batch: 1, Heads: 4, KVHeads: 4, Len: 300, HeadDim: 16}
	calm := newRig(t, randomOperands(1, shape), cfg, 2, nil)
	calm.start(len(modes))
	whole := time.Now()
	var want [][]float32
	for i, mode := range modes {
		want = append(want, calm.step(randomOperands(uint64(i), shape), mode))
	}
	mean := time.Since(whole) / time.Duration(len(modes))

	var cancel context.CancelFunc
	r := newRig(t, randomOperands(1, shape), cfg, 2, hooked(t, func() error {
		cancel()
		return nil
	}))
	cancelled := func(ctx context.Context, i int) {
		t.Helper()
		if err := r.m.StepContext(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("step %d: error %v, want that of the context", i+1, err)
		}
		if done, _ := r.ctl.Step(); done != i {
			t.Fatalf("a cancelled step counts: %d done, want %d", done, i)
		}
		if r.ctl.Mode() != modes[i] {
			t.Fatalf("the step to be repeated is %v, want %v", r.ctl.Mode(), modes[i])
		}
	}
	r.start(len(modes))
	for i, mode := range modes {
		a := randomOperands(uint64(i), shape)
		r.let(randomOperands(99, shape))
		before := snapshot(r.ctl)

		// Before the step.
		ctx, stop := context.WithCancel(t.Context())
		stop()
		cancelled(ctx, i)
		if snapshot(r.ctl) != before {
			t.Errorf("step %d did not start, and changed the columns", i+1)
		}
		// Between two layers.
		ctx, stop = context.WithCancel(t.Context())
		cancel = stop
		cancelled(ctx, i)
		stop()
		if got := snapshot(r.ctl); mode == refresh && got != [2]string{} {
			t.Errorf("columns of a cancelled refresh can be read")
		} else if mode == reuse && got != before {
			t.Errorf("a cancelled reuse changed the columns")
		}
		// Anywhere.
		r.let(a)
		for part := 0; ; part++ {
			ctx, stop := context.WithTimeout(t.Context(), mean*time.Duration(part)/10)
			err := r.m.StepContext(ctx)
			stop()
			if err == nil {
				break // it was faster
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		sameBits(t, fmt.Sprint("step ", i+1), r.values(), want[i])
	}
}

// snapshot prints the columns of two layers, "" for none.
func snapshot(c *pulsecol.Controller) (tables [2]string) {
	for i := range tables {
		if table, err := c.Columns(i); err == nil {
			tables[i] = fmt.Sprint(table.Bits)
		}
	}
	return tables
}

// TestFailedRefreshThenDense: after a failed refresh, whatever is done instead of
// running it again, the next sparse step refreshes.
func TestFailedRefreshThenDense(t *testing.T) {
	fail := false
	a := randomOperands(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Window: 1, Refreshes: 2}}, 2, hooked(t, func() error {
		if fail {
			return errors.New("boom")
		}
		return nil
	}))
	r.start(3) // refreshes at 1 and 3
	r.step(a, refresh)
	r.step(a, reuse)
	fail = true
	if err := r.m.Step(); err == nil {
		t.Fatal("the step did not fail")
	}
	fail = false
	r.ctl.SetDense(true)
	r.step(a, denseStep)
	r.start(4) // 1 and 4
	r.ctl.SetDense(false)
	r.step(a, refresh)
	r.ctl.Invalidate()
	fail = true
	if err := r.m.Step(); err == nil {
		t.Fatal("the forced refresh did not fail")
	}
	fail = false
	r.ctl.SetDense(true)
	r.step(a, denseStep) // step 2
	r.ctl.SetDense(false)
	r.step(a, refresh) // step 3 would be a reuse
}

// TestRunAllWithoutReset: a bare tape machine does nothing the second time; a
// Machine runs the next step, with or without Reset in between.
func TestRunAllWithoutReset(t *testing.T) {
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Window: 1, Refreshes: 2}}
	with, without := newRig(t, randomOperands(1, small), cfg, 2, nil), newRig(t, randomOperands(1, small), cfg, 2, nil)
	with.start(5)
	without.start(5)
	for i := range 5 {
		a := randomOperands(uint64(i), small)
		with.let(a)
		without.let(a)
		if err := with.m.RunAll(); err != nil {
			t.Fatal(err)
		}
		want := with.values()
		with.m.Reset()
		if i == 3 {
			with.m.Reset() // twice does no harm
		}
		if err := without.m.RunAll(); err != nil {
			t.Fatal(err)
		}
		sameBits(t, fmt.Sprint("step ", i+1), without.values(), want)
	}
	if got := without.ctl.Stats(); got.Steps != 5 || !slices.Equal(got.RefreshSteps, []int{1, 5}) {
		t.Errorf("%+v", got)
	}
}

// TestReadValuesStay: what gorgonia.Read gave in one step is not touched by the
// next ones, in any mode, workspace or not.
func TestReadValuesStay(t *testing.T) {
	for _, planned := range []bool{false, true} {
		r := newRig(t, randomOperands(1, small), pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 2, nil)
		if planned {
			ws := op.NewWorkspace()
			ws.Plan(r.g)
			r.m.UseWorkspace(ws)
		}
		r.start(4)
		var kept, copies [][]float32
		for i, mode := range []pulsecol.Mode{refresh, reuse, reuse, denseStep} {
			r.ctl.SetDense(mode == denseStep)
			r.out = nil // Read copies into a value that is there, and makes one otherwise
			copies = append(copies, r.step(randomOperands(uint64(i), small), mode))
			kept = append(kept, r.out.Data().([]float32))
		}
		for i := range kept {
			sameBits(t, fmt.Sprintf("step %d, workspace %v", i+1, planned), kept[i], copies[i])
		}
	}
}

// TestAmongGorgoniasOperators puts a layer among operators of Gorgonia that
// allocate ahead, reuse registers and work in place, and holds every step to the
// same calculation in three separate graphs.
func TestAmongGorgoniasOperators(t *testing.T) {
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Window: 1, Refreshes: 3}}
	a := randomOperands(1, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 40, HeadDim: 4})
	size := len(a.Q)
	node := func(g *gorgonia.ExprGraph, name string) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 2, 40, 4), gorgonia.WithName(name))
	}
	two := func(f func(a, b *gorgonia.Node) (*gorgonia.Node, error)) func(a, b *gorgonia.Node) *gorgonia.Node {
		return func(a, b *gorgonia.Node) *gorgonia.Node { return must(f(a, b))(t) }
	}
	add, sub, mul := two(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Add(a, b) }), two(gorgonia.Sub), two(gorgonia.HadamardProd)
	tanh := func(a *gorgonia.Node) *gorgonia.Node { return must(gorgonia.Tanh(a))(t) }
	matmul := func(a, b *gorgonia.Node) *gorgonia.Node { // [80,4] x [4,80] x [80,4]: extern, with preallocation
		m := must(gorgonia.Reshape(a, tensor.Shape{80, 4}))(t)
		n := must(gorgonia.Reshape(b, tensor.Shape{80, 4}))(t)
		p := must(gorgonia.Mul(must(gorgonia.Mul(m, must(gorgonia.Transpose(n, 1, 0))(t)))(t), n))(t)
		return must(gorgonia.Reshape(p, tensor.Shape{1, 2, 40, 4}))(t)
	}
	// What comes before and after attention; y0 is used twice behind it.
	pre := func(x, z *gorgonia.Node) (q, k, v *gorgonia.Node) {
		s := add(x, z)
		q = tanh(matmul(s, mul(x, s)))
		k = sub(tanh(mul(s, s)), x)
		return q, k, add(mul(q, k), z)
	}
	post := func(y0, y1, x *gorgonia.Node) *gorgonia.Node {
		return add(matmul(tanh(add(y0, y0)), y1), mul(sub(y0, y1), add(y1, x)))
	}
	newMachine := func(g *gorgonia.ExprGraph) gorgonia.VM {
		vm := gorgonia.NewTapeMachine(g)
		t.Cleanup(func() { vm.Close() })
		return vm
	}
	let := func(n *gorgonia.Node, x []float32) {
		t.Helper()
		if err := gorgonia.Let(n, dense(x, 1, 2, 40, 4)); err != nil {
			t.Fatal(err)
		}
	}

	// All in one graph: two layers, the second's queries being the first's output.
	g := gorgonia.NewGraph()
	ctl := newController(t, cfg)
	x, z := node(g, "x"), node(g, "z")
	q, k, v := pre(x, z)
	y0 := must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
	y1 := must(pulsecol.Attention(y0, k, v, ctl.Layer(1)))(t)
	var got gorgonia.Value
	gorgonia.Read(post(y0, y1, x), &got)
	m := must(pulsecol.NewMachine(g, ctl))(t)
	defer m.Close()

	// In pieces.
	g1 := gorgonia.NewGraph()
	x1, z1 := node(g1, "x"), node(g1, "z")
	var in [3]gorgonia.Value
	for i, n := range slices.Collect(func(yield func(*gorgonia.Node) bool) {
		q, k, v := pre(x1, z1)
		_ = yield(q) && yield(k) && yield(v)
	}) {
		gorgonia.Read(n, &in[i])
	}
	vm1 := newMachine(g1)
	first, both := newRig(t, a, cfg, 1, nil), newRig(t, a, cfg, 2, nil)
	g2 := gorgonia.NewGraph()
	a0, a1, x2 := node(g2, "y0"), node(g2, "y1"), node(g2, "x")
	var want gorgonia.Value
	gorgonia.Read(post(a0, a1, x2), &want)
	vm2 := newMachine(g2)

	for _, c := range []interface{ Start(int) error }{ctl, first.ctl, both.ctl} {
		if err := c.Start(7); err != nil {
			t.Fatal(err)
		}
	}
	run := func(vm gorgonia.VM) {
		t.Helper()
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		vm.Reset()
	}
	for i, mode := range []pulsecol.Mode{refresh, reuse, reuse, refresh, reuse, reuse, refresh} {
		r := newRand(uint64(i))
		xs, zs := normal(r, size), normal(r, size)
		let(x, xs)
		let(z, zs)
		run(m)

		let(x1, xs)
		let(z1, zs)
		run(vm1)
		b := *a
		b.Q, b.K, b.V = in[0].Data().([]float32), in[1].Data().([]float32), in[2].Data().([]float32)
		let(a0, first.step(&b, mode))
		let(a1, both.step(&b, mode))
		let(x2, xs)
		run(vm2)
		sameBits(t, fmt.Sprintf("step %d (%v)", i+1, mode), got.Data().([]float32), want.Data().([]float32))
		if diff := cmp.Diff(snapshot(both.ctl), snapshot(ctl)); diff != "" {
			t.Fatalf("columns after step %d: %s", i+1, diff)
		}
	}
}

// TestOtherMachines: layers run under their controller's machine alone; any other
// way of running their graph is an error and leaves the controller as it was.
func TestOtherMachines(t *testing.T) {
	a := randomOperands(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	r.start(3)
	r.step(a, refresh)
	table := r.table(0)

	plain := gorgonia.NewTapeMachine(r.g)
	defer plain.Close()
	if err := plain.RunAll(); err == nil || !strings.Contains(err.Error(), op.ErrNoMachine.Error()) {
		t.Errorf("a plain tape machine: %v", err)
	}

	other := newController(t, pulsecol.Config{Sparsity: 0.5, Name: "other"})
	second := must(pulsecol.Attach(gorgonia.NewLispMachine(r.g, gorgonia.ExecuteFwdOnly()), other))(t) // whose graph Attach cannot see
	defer second.Close()
	if err := other.Start(1); err != nil {
		t.Fatal(err)
	}
	if err := second.RunAll(); !errors.Is(err, op.ErrNoMachine) {
		t.Errorf("another controller's machine: %v, want ErrNoMachine", err)
	}
	if got := other.Stats().Steps; got != 0 {
		t.Errorf("%d steps of the other controller count", got)
	}
	checkAttention(t, r.step(a, reuse), a, table)
}

// TestTwoMachinesInOneStep: a second machine that runs the layers while a step of
// the first is in progress is found out.
func TestTwoMachinesInOneStep(t *testing.T) {
	var second gorgonia.VM
	var inner error
	nested := false
	a := randomOperands(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 2, hooked(t, func() error {
		if nested {
			nested = false
			inner = second.RunAll()
		}
		return nil
	}))
	second = gorgonia.NewTapeMachine(r.g)
	defer second.Close()
	r.start(2)
	r.let(a)
	nested = true
	if err := r.m.Step(); err != nil {
		t.Errorf("the step itself: %v", err)
	}
	if inner == nil || !strings.Contains(inner.Error(), op.ErrOrder.Error()) {
		t.Errorf("the second machine: %v, want %v", inner, op.ErrOrder)
	}
}

// TestLispMachine: Gorgonia's lisp machine runs a graph once; its Reset does not
// rewind. The first step is right and every later one an error, with and without a
// Reset; the next machine goes on with the generation.
func TestLispMachine(t *testing.T) {
	a := randomOperands(1, small)
	build := func() (*rig, gorgonia.VM) {
		r := &rig{t: t, g: gorgonia.NewGraph(), ctl: newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 8})}
		r.q, r.k, r.v, _ = qkv(r.g, a)
		r.y = must(pulsecol.Attention(r.q, r.k, r.v, r.ctl.Layer(0)))(t)
		r.let(a)
		return r, gorgonia.NewLispMachine(r.g, gorgonia.ExecuteFwdOnly())
	}
	_, vm := build()
	if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), op.ErrNoMachine.Error()) {
		t.Errorf("without a controller: %v, want %v", err, op.ErrNoMachine)
	}
	r, vm := build()
	r.m = must(pulsecol.Attach(vm, r.ctl))(t)
	defer r.m.Close()
	r.start(3)
	if err := r.m.Step(); err != nil {
		t.Fatal(err)
	}
	checkAttention(t, r.y.Value().Data().([]float32), a, nil)
	for name, step := range map[string]func() error{"Step": r.m.Step, "RunAll": r.m.RunAll} {
		if err := step(); !errors.Is(err, pulsecol.ErrRanOnce) {
			t.Errorf("a second step by %s: %v, want ErrRanOnce", name, err)
		}
	}
	if got := r.ctl.Stats().Steps; got != 1 {
		t.Errorf("%d steps count, want 1", got)
	}
	r.m.Close()
	r.m = must(pulsecol.Attach(gorgonia.NewLispMachine(r.g, gorgonia.ExecuteFwdOnly()), r.ctl))(t)
	if err := r.m.RunAll(); err != nil {
		t.Errorf("the next machine: %v", err)
	}
	if err := r.m.RunAll(); !errors.Is(err, pulsecol.ErrRanOnce) {
		t.Errorf("a second RunAll: %v, want ErrRanOnce", err)
	}
}

// TestAttach: one controller, one machine, one generation at a time.
func TestAttach(t *testing.T) {
	a := randomOperands(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	other := newController(t, pulsecol.Config{})
	vm := gorgonia.NewTapeMachine(r.g)
	if _, err := pulsecol.Attach(vm, r.ctl); !errors.Is(err, pulsecol.ErrAttached) {
		t.Errorf("a second machine: %v, want ErrAttached", err)
	}
	if _, err := pulsecol.Attach(r.m, other); !errors.Is(err, pulsecol.ErrAttached) {
		t.Errorf("a second controller: %v, want ErrAttached", err)
	}
	if _, err := pulsecol.Attach(nil, other); err == nil {
		t.Error("a nil machine: no error")
	}
	if _, err := pulsecol.Attach(vm, nil); err == nil {
		t.Error("a nil controller: no error")
	}
	if r.m.Controller() != r.ctl {
		t.Error("Controller is another one")
	}

	// A closed machine frees its controller, with its generation and columns.
	r.start(4)
	r.step(a, refresh)
	want := r.step(a, reuse)
	for range 2 {
		if err := r.m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := r.m.RunAll(); !errors.Is(err, pulsecol.ErrClosed) {
		t.Errorf("RunAll of a closed machine: %v, want ErrClosed", err)
	}
	if err := r.m.Step(); !errors.Is(err, pulsecol.ErrClosed) {
		t.Errorf("Step of a closed machine: %v, want ErrClosed", err)
	}
	old := r.m
	r.m = must(pulsecol.Attach(vm, r.ctl))(t)
	sameBits(t, "under the next machine", r.step(a, reuse), want)
	if err := old.Close(); err != nil { // must not free the new machine's controller
		t.Error(err)
	}
	if _, err := pulsecol.Attach(vm, r.ctl); !errors.Is(err, pulsecol.ErrAttached) {
		t.Errorf("after a late Close of the old machine: %v, want ErrAttached", err)
	}
}

// TestNewMachineErrors: what Gorgonia panics about, or runs wrongly, is an error.
func TestNewMachineErrors(t *testing.T) {
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5})
	for name, g := range map[string]*gorgonia.ExprGraph{"nil": nil, "empty": gorgonia.NewGraph()} {
		if m, err := pulsecol.NewMachine(g, ctl); err == nil || m != nil {
			t.Errorf("%s graph: %v, %v", name, m, err)
		}
	}
	g := gorgonia.NewGraph()
	q, k, v, _ := qkv(g, randomOperands(1, small))
	must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
	if m, err := pulsecol.NewMachine(g, nil); err == nil || m != nil {
		t.Errorf("nil controller: %v, %v", m, err)
	}
	for _, n := range g.AllNodes() {
		if _, ok := n.Op().(*op.GroupTopK); ok {
			must(gorgonia.Reshape(n, tensor.Shape{2, n.Shape().TotalSize() / 2}))(t)
			break
		}
	}
	if m, err := pulsecol.NewMachine(g, ctl); !errors.Is(err, op.ErrGraph) || m != nil {
		t.Errorf("a foreign reader of the columns: %v, %v; want ErrGraph", m, err)
	}
	// None of the failures holds the controller.
	must(pulsecol.Attach(gorgonia.NewTapeMachine(g), ctl))(t)
}

// TestLayerOfAnotherGraph: a layer that was built but is not in the machine's graph
// would silently keep its old columns.
func TestLayerOfAnotherGraph(t *testing.T) {
	a := randomOperands(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	q, k, v, _ := qkv(gorgonia.NewGraph(), a)
	must(pulsecol.Attention(q, k, v, r.ctl.Layer(1)))(t)
	r.start(1)
	r.let(a)
	if err := r.m.Step(); err == nil || !strings.Contains(err.Error(), "pulsecol.layers.1.attention did not run in this step") {
		t.Errorf("got %v", err)
	}
	if got := r.ctl.Stats().Steps; got != 0 {
		t.Errorf("%d steps count", got)
	}
}

// TestUnusedLayer: a layer that was asked for and never built on is no obstacle.
func TestUnusedLayer(t *testing.T) {
	a := randomOperands(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	r.ctl.Layer(5)
	r.start(2)
	r.step(a, refresh)
	r.step(a, reuse)
}

// TestBusy: in the middle of a step, from within one of its operators, nothing that
// would disturb it is allowed.
func TestBusy(t *testing.T) {
	var r *rig
	var errs [4]error
	inside := false
	r = newRig(t, randomOperands(1, small), pulsecol.Config{Sparsity: 0.5, GroupSize: 8}, 2, hooked(t, func() error {
		if inside {
			errs = [4]error{r.m.RunAll(), r.m.Close(), r.ctl.Start(2), r.ctl.Close()}
		}
		return nil
	}))
	a := randomOperands(1, small)
	r.start(2)
	inside = true
	r.step(a, refresh)
	inside = false
	for i, what := range []string{"RunAll", "Machine.Close", "Start", "Controller.Close"} {
		if !errors.Is(errs[i], pulsecol.ErrBusy) {
			t.Errorf("%s within a step: %v, want ErrBusy", what, errs[i])
		}
	}
	r.step(a, reuse) // and the generation goes on
}

// TestInternalErrorThroughMachine: a defect below an operator is an error of the
// step that errors.Is finds, and the process goes on.
func TestInternalErrorThroughMachine(t *testing.T) {
	a := randomOperands(1, small)
	g := gorgonia.NewGraph()
	q, k, v, _ := qkv(g, a)
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 8})
	y := must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
	merged := must(op.Apply(op.NewMergeHeads("merge"), y))(t)
	broken := op.Weight{Rows: 3, Cols: 8, DType: op.F32, Data: make([]byte, 7)} // not from NewWeight
	must(op.Apply(must(op.NewLinear("proj", op.Projection{Weight: broken}))(t), merged))(t)
	m := must(pulsecol.NewMachine(g, ctl))(t)
	defer m.Close()
	(&rig{t: t, q: q, k: k, v: v}).let(a)
	if err := ctl.Start(1); err != nil {
		t.Fatal(err)
	}
	if err := m.Step(); !errors.Is(err, op.ErrInternal) || !strings.Contains(err.Error(), "Linear{proj}") {
		t.Errorf("got %v, want ErrInternal of Linear{proj}", err)
	}
	if _, err := ctl.Columns(0); !errors.Is(err, pulsecol.ErrStale) {
		t.Errorf("columns of the failed refresh: %v, want ErrStale", err)
	}
}

// TestTwoGraphsSideBySide: two graphs with a controller each are built and run in
// two goroutines as they are alone.
func TestTwoGraphsSideBySide(t *testing.T) {
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Window: 1, Refreshes: 3}}
	modes := []pulsecol.Mode{refresh, reuse, refresh, reuse, refresh}
	generate := func(r *rig) (out [][]float32) {
		r.start(len(modes))
		for i, mode := range modes {
			out = append(out, r.step(randomOperands(uint64(i), small), mode))
		}
		return out
	}
	want := generate(newRig(t, randomOperands(1, small), cfg, 2, nil))
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 3 {
				r := newRig(t, randomOperands(1, small), cfg, 2, nil)
				for range 3 {
					for i, y := range generate(r) {
						sameBits(t, fmt.Sprint("step ", i+1), y, want[i])
					}
				}
			}
		})
	}
}
