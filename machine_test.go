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
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// hook is an operator that calls do, returns its error and copies its input.
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

// TestFailedStep: an operator that fails between two attention layers fails the step, in
// every mode. The step does not count, columns of an interrupted refresh are not used, and
// a second run of the step gives the result of an undisturbed one.
func TestFailedStep(t *testing.T) {
	boom := errors.New("boom")
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 3}} // 1, 4, 7 of 7
	modes := []pulsecol.Mode{refresh, reuse, reuse, refresh, reuse, reuse, refresh}
	shape := small
	shape.KVHeads = shape.Heads
	for failAt := 1; failAt <= len(modes); failAt++ {
		for _, times := range []int{1, 3} {
			for _, planned := range []bool{false, true} {
				t.Run(fmt.Sprintf("step%d-%dtimes-workspace=%v", failAt, times, planned), func(t *testing.T) {
					fail := false
					calm := newRig(t, attncase.Seeded(1, shape), cfg, 2, hooked(t, func() error { return nil }))
					r := newRig(t, attncase.Seeded(1, shape), cfg, 2, hooked(t, func() error {
						if fail {
							return boom
						}
						return nil
					}))
					if planned {
						r.plan()
					}
					calm.start(len(modes))
					r.start(len(modes))
					for i, mode := range modes {
						a := attncase.Seeded(uint64(10+i), shape)
						if i+1 == failAt {
							before := snapshot(r.ctl)
							fail = true
							for range times {
								r.let(attncase.Seeded(99, shape)) // must have no effect later
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
						tol.SameBits(t, fmt.Sprint("step ", i+1), r.step(a, mode), calm.step(a, mode))
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

// TestCancelledStep: a step whose context is done, at any point, fails with the context's
// error and does not count. A cancelled refresh leaves no columns, and a second run of the
// step gives the result of an undisturbed one.
func TestCancelledStep(t *testing.T) {
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}} // 1, 4 of 4
	modes := []pulsecol.Mode{refresh, reuse, reuse, refresh}
	shape := kernel.Shape{Batch: 1, Heads: 4, KVHeads: 4, Len: 300, HeadDim: 16}
	calm := newRig(t, attncase.Seeded(1, shape), cfg, 2, nil)
	calm.start(len(modes))
	whole := time.Now()
	var want [][]float32
	for i, mode := range modes {
		want = append(want, calm.step(attncase.Seeded(uint64(i), shape), mode))
	}
	mean := time.Since(whole) / time.Duration(len(modes))

	var cancel context.CancelFunc
	r := newRig(t, attncase.Seeded(1, shape), cfg, 2, hooked(t, func() error {
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
		a := attncase.Seeded(uint64(i), shape)
		r.let(attncase.Seeded(99, shape))
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
		tol.SameBits(t, fmt.Sprint("step ", i+1), r.values(), want[i])
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

// TestFailedRefreshThenDense: after a failed refresh the next sparse step refreshes, also
// if dense steps or a new generation come first.
func TestFailedRefreshThenDense(t *testing.T) {
	fail := false
	a := attncase.Seeded(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}}, 2, hooked(t, func() error {
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
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}}
	with, without := newRig(t, attncase.Seeded(1, small), cfg, 2, nil), newRig(t, attncase.Seeded(1, small), cfg, 2, nil)
	with.start(5)
	without.start(5)
	for i := range 5 {
		a := attncase.Seeded(uint64(i), small)
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
		tol.SameBits(t, fmt.Sprint("step ", i+1), without.values(), want)
	}
	if got := without.ctl.Stats(); got.Steps != 5 || !slices.Equal(got.RefreshSteps, []int{1, 5}) {
		t.Errorf("%+v", got)
	}
}

// TestReadValuesStay: later steps do not change a result of gorgonia.Read, in any mode,
// with and without a workspace.
func TestReadValuesStay(t *testing.T) {
	for _, planned := range []bool{false, true} {
		r := newRig(t, attncase.Seeded(1, small), pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 2, nil)
		if planned {
			r.plan()
		}
		r.start(4)
		var kept, copies [][]float32
		for i, mode := range []pulsecol.Mode{refresh, reuse, reuse, denseStep} {
			r.ctl.SetDense(mode == denseStep)
			r.out = nil // Read copies into a value that is there, and makes one otherwise
			copies = append(copies, r.step(attncase.Seeded(uint64(i), small), mode))
			kept = append(kept, r.out.Data().([]float32))
		}
		for i := range kept {
			tol.SameBits(t, fmt.Sprintf("step %d, workspace %v", i+1, planned), kept[i], copies[i])
		}
	}
}

// TestBusy: in the middle of a step, from within one of its operators, nothing that
// would disturb it is allowed.
func TestClosedZeroMachine(t *testing.T) {
	var m pulsecol.Machine
	for name, err := range map[string]error{"Step": m.Step(), "RunAll": m.RunAll(), "Load": m.Load(t.Context(), nil)} {
		if !errors.Is(err, pulsecol.ErrClosed) {
			t.Errorf("%s of a zero Machine: %v, want %v", name, err, pulsecol.ErrClosed)
		}
	}
	m.Reset()
	if err := m.Close(); err != nil {
		t.Errorf("Close of a zero Machine: %v", err)
	}
}

// TestNilContext: a nil context is an error, and the step may be run again.
func TestNilContext(t *testing.T) {
	a := attncase.Seeded(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8}, 1, nil)
	r.start(1)
	var none context.Context
	for name, err := range map[string]error{"StepContext": r.m.StepContext(none), "Load": r.m.Load(none, nil)} {
		if err == nil || !strings.Contains(err.Error(), "context is nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.step(a, refresh)
}

func TestBusy(t *testing.T) {
	var r *rig
	var errs [4]error
	inside := false
	r = newRig(t, attncase.Seeded(1, small), pulsecol.Config{Sparsity: 0.5, GroupSize: 8}, 2, hooked(t, func() error {
		if inside {
			errs = [4]error{r.m.RunAll(), r.m.Close(), r.ctl.Start(2), r.ctl.Close()}
		}
		return nil
	}))
	a := attncase.Seeded(1, small)
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

// TestInternalErrorThroughMachine: a panic inside an operator is an error of the step that
// errors.Is finds, and the process continues.
func TestInternalErrorThroughMachine(t *testing.T) {
	a := attncase.Seeded(1, small)
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
