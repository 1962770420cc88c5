package op

import (
	"context"
	"errors"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
)

// replayed is an operator that computes once in each mode and then returns the same result,
// so that steps take only Gorgonia's own time and memory.
type replayed struct {
	planned
	mode   *Mode
	values map[Mode]gorgonia.Value
}

func (r *replayed) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if v := r.values[*r.mode]; v != nil {
		return v, nil
	}
	v, err := r.planned.Do(in...)
	r.values[*r.mode] = v
	return v, err
}

// newSteps returns functions that take a step of a stack of four attention layers,
// with its operators and with operators that replay their results.
func newSteps(t testing.TB, workers int) (ours, gorgonias func(m Mode)) {
	s := stackShape{blocks: 4, batch: 1, n: 40, heads: 4, kvHeads: 2, dim: 8, hidden: 48, group: 8}
	x := make([]float32, inputSize(s))
	for i := range x {
		x[i] = float32(i%11) - 5
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	mode := new(Mode)
	steps := func(around func(o planned) gorgonia.Op) func(m Mode) {
		ws := NewWorkspace()
		st := newStack(t, s, around, func(st *stack) { st.plan(t, ws) })
		st.step.Bind(st.g)
		st.step.Limit(workers)
		if err := gorgonia.Let(st.x, wrap(x, st.x.Shape()...)); err != nil {
			t.Fatal(err)
		}
		return func(m Mode) {
			*mode = m
			st.step.Begin(ctx, m)
			defer st.step.End()
			if err := st.vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			st.vm.Reset()
		}
	}
	return steps(func(o planned) gorgonia.Op { return o }),
		steps(func(o planned) gorgonia.Op { return &replayed{o, mode, map[Mode]gorgonia.Value{}} })
}

// TestStepsDoNotAllocate: after the first step of each mode, a step allocates what
// Gorgonia does and nothing more.
func TestStepsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they hold")
	}
	for _, workers := range []int{1, 2} {
		ours, gorgonias := newSteps(t, workers)
		for _, m := range []Mode{Refresh, Reuse, Dense} {
			ours(m)
			gorgonias(m)
		}
		for _, m := range []Mode{Refresh, Reuse, Dense} {
			// Collections of garbage empty pools, now and then.
			least := func(step func(m Mode)) float64 {
				n := testing.AllocsPerRun(1, func() { step(m) })
				for range 20 {
					n = min(n, testing.AllocsPerRun(1, func() { step(m) }))
				}
				return n
			}
			if all, base := least(ours), least(gorgonias); all > base {
				t.Errorf("%d workers, %v: %v allocations, %v without the operators", workers, m, all, base)
			}
		}
	}
}

// BenchmarkStep shows what a step of four layers allocates, and what of it is
// Gorgonia's.
func BenchmarkStep(b *testing.B) {
	ours, gorgonias := newSteps(b, 0)
	for _, c := range []struct {
		name string
		step func(m Mode)
	}{{"whole", ours}, {"gorgonia", gorgonias}} {
		for _, m := range []Mode{Refresh, Reuse, Dense} {
			c.step(Refresh)
			c.step(m)
			b.Run(c.name+"/"+m.String(), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.step(m)
				}
			})
		}
	}
}

// cancelling is an operator that cancels its step's context when it starts.
type cancelling struct {
	planned
	cancel *context.CancelFunc // nil: not now
}

func (c cancelling) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if *c.cancel != nil {
		(*c.cancel)()
	}
	return c.planned.Do(in...)
}

// TestStopped: a step that is stopped in any operator fails with ErrStopped, and later steps
// give the usual results.
func TestStopped(t *testing.T) {
	s := stackShape{blocks: 1, batch: 1, n: 6, heads: 2, kvHeads: 1, dim: 4, hidden: 8, group: 2}
	ws := NewWorkspace()
	made := map[gorgonia.Value][]float32{}
	var cancels []*context.CancelFunc
	st := newStack(t, s, func(o planned) gorgonia.Op {
		cancels = append(cancels, new(context.CancelFunc))
		return cancelling{&watched{o, made}, cancels[len(cancels)-1]}
	}, func(st *stack) { st.plan(t, ws) })
	st.step.Bind(st.g)
	x := make([]float32, inputSize(s))
	for i := range x {
		x[i] = float32(i%5) - 2
	}
	modes := []Mode{Refresh, Reuse, Dense}
	var want [][]float32
	for _, m := range modes {
		want = append(want, st.run(t, m, x))
	}
	for at, cancel := range cancels {
		for i, m := range modes {
			ctx, stop := context.WithCancel(context.Background())
			*cancel = stop
			st.step.Begin(ctx, m)
			err := st.vm.RunAll()
			st.step.End()
			st.vm.Reset()
			*cancel = nil
			if inner, ok := err.(interface{ Err() error }); !ok || !errors.Is(inner.Err(), ErrStopped) {
				t.Fatalf("%v, operator %d: error %v", m, at, err)
			}
			if m == Refresh {
				st.states[0].Invalidate() // as a controller does
				st.run(t, Refresh, x)
			}
			if got := st.run(t, m, x); !slices.Equal(got, want[i]) {
				t.Errorf("%v after operator %d was stopped: %v, want %v", m, at, got, want[i])
			}
		}
	}
}
