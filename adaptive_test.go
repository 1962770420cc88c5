package pulsecol_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

// TestAdaptiveFollowsDrift: steps refresh after attention has moved, in the next step,
// within the first Eta of the steps and at most Refreshes times; otherwise they reuse.
func TestAdaptiveFollowsDrift(t *testing.T) {
	a, b := attncase.Seeded(1, small), attncase.Seeded(2, small)
	for _, c := range []struct {
		name     string
		schedule pulsecol.Adaptive
		inputs   string // of the steps
		want     string // D dense, F refresh, U reuse
	}{
		{"still", pulsecol.Adaptive{}, "aaaaaaaa", "FUUUUUUU"},
		{"moves once", pulsecol.Adaptive{}, "aaabbbbb", "FUUUFUUU"},
		{"moves in the first reuse, the baseline", pulsecol.Adaptive{}, "abbbbbbb", "FUUUUUUU"},
		{"moves to and fro", pulsecol.Adaptive{}, "aabbbaaa", "FUUFUUFU"},
		{"a budget of two", pulsecol.Adaptive{Refreshes: 2}, "aabbbaaa", "FUUFUUUU"},
		{"a budget of one", pulsecol.Adaptive{Refreshes: 1}, "aabbbaaa", "FUUUUUUU"},
		{"outside the window", pulsecol.Adaptive{Eta: 0.5}, "aaabaaaa", "FUUUUUUU"},
		{"at the end of the window", pulsecol.Adaptive{Eta: 0.5}, "aabaaaaa", "FUUFUUUU"},
		{"below the threshold", pulsecol.Adaptive{Threshold: 0.999}, "aabbbaaa", "FUUUUUUU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, schedule := range []pulsecol.Schedule{c.schedule, embeds{c.schedule}, &embeds{c.schedule}, embedsPointer{&c.schedule}} {
				r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: schedule}, 2, nil)
				for range 2 { // the second generation begins like the first
					r.start(len(c.inputs))
					for i, input := range c.inputs {
						want := map[byte]pulsecol.Mode{'F': refresh, 'U': reuse}[c.want[i]]
						r.step(map[rune]*kernel.Operands{'a': a, 'b': b}[input], want)
					}
				}
			}
		})
	}
}

// TestEmbeddedAdaptive: a schedule that embeds Adaptive has a Mode of its own as well.
func TestEmbeddedAdaptive(t *testing.T) {
	a, b := attncase.Seeded(1, small), attncase.Seeded(2, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: everyFifth{}}, 2, nil)
	r.start(9)
	for i, in := range []*kernel.Operands{a, a, b, b, b, b, b, a, a} {
		r.step(in, map[byte]pulsecol.Mode{'F': refresh, 'U': reuse}["FUUFUFUUF"[i]])
	}
}

// everyFifth refreshes in steps 1, 6 and so on, and when attention moves.
type everyFifth struct{ pulsecol.Adaptive }

func (everyFifth) Mode(step, total int) pulsecol.Mode {
	if step%5 == 1 {
		return refresh
	}
	return reuse
}

// TestDrift holds the measure to its definition, with grouped queries and padding.
func TestDrift(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 45, HeadDim: 8}
	first, second := attncase.Seeded(1, s), attncase.Seeded(2, s)
	attncase.PadLeft(first, 0, 13)
	attncase.PadLeft(second, 0, 13)
	r := newRig(t, first, pulsecol.Config{Sparsity: 0.8, GroupSize: 7, Schedule: pulsecol.Adaptive{Threshold: 0.999}}, 1, nil)
	check := func(want float64) {
		t.Helper()
		if got := r.ctl.Drift(); math.Abs(got-want) > 1e-6 {
			t.Errorf("drift %v, want %v", got, want)
		}
	}
	check(0)
	r.start(6)
	r.step(first, refresh)
	check(0)
	r.step(first, reuse)
	check(0)
	r.step(second, reuse)

	table := r.table(0)
	base, now := ref.KeptMass[float64](first, table), ref.KeptMass[float64](second, table)
	groups := kernel.Groups(s.Len, 7)
	lost := make([]float64, s.Batch*groups)
	for i := range base {
		lost[i/(s.Heads*groups)*groups+i%groups] += (base[i] - now[i]) / float64(s.Heads)
	}
	most := slices.Max(lost)
	if most < 0.1 {
		t.Fatalf("other inputs moved attention by %v only", most)
	}
	check(most)
	r.ctl.SetDense(true)
	r.step(second, denseStep)
	check(most) // a dense step measures nothing
	r.ctl.SetDense(false)
	r.step(first, reuse)
	check(0)
	r.ctl.Invalidate()
	r.step(second, refresh)
	check(0)
}

// TestDriftIsWatchedForAdaptiveOnly: other schedules do not measure drift.
func TestDriftIsWatchedForAdaptiveOnly(t *testing.T) {
	a, b := attncase.Seeded(1, small), attncase.Seeded(2, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	r.start(3)
	r.step(a, refresh)
	r.step(a, reuse)
	r.step(b, reuse)
	if got := r.ctl.Drift(); got != 0 {
		t.Errorf("drift %v, want 0", got)
	}
}

// TestDriftOfAFailedStep: what a step has measured before it failed does not count. It is
// run again in the same mode.
func TestDriftOfAFailedStep(t *testing.T) {
	a, b := attncase.Seeded(1, small), attncase.Seeded(2, small)
	fail := false
	cfg := pulsecol.Config{Sparsity: 0.8, GroupSize: 8, Schedule: pulsecol.Adaptive{Threshold: 0.001}}
	r := newRig(t, a, cfg, 2, hooked(t, func() error { // between the layers
		if fail {
			return errors.New("failed")
		}
		return nil
	}))
	r.start(4)
	r.step(a, refresh)
	r.step(a, reuse)
	r.let(b)
	fail = true
	if err := r.m.Step(); err == nil || r.ctl.Drift() != 0 || r.ctl.Mode() != reuse {
		t.Errorf("a step that failed in its second layer: %v, drift %v, the next is %v", err, r.ctl.Drift(), r.ctl.Mode())
	}
	fail = false
	r.step(b, reuse)
	if r.ctl.Drift() == 0 {
		t.Error("the step that succeeded has measured nothing")
	}
	r.step(b, refresh)
}
