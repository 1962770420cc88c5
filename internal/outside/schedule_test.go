package outside_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol"
)

// percent is a share with two decimals, so that the floor of its product with a whole
// number is one of whole numbers.
type percent int

func (p percent) share() float64   { return float64(p) / 100 }
func (p percent) of(n int) int     { return int(p) * n / 100 }
func (p percent) window(n int) int { return max(1, p.of(n)) }

// schedule is a schedule and what docs/method.md says about it.
type schedule struct {
	pulsecol.Schedule
	mode     func(step, total int) pulsecol.Mode
	adaptive *adaptive
}

type adaptive struct {
	window    percent
	refreshes int
	threshold float64
}

// stepList is a schedule from outside the package: the modes of a list, over and over.
type stepList []pulsecol.Mode

func (s stepList) Mode(step, total int) pulsecol.Mode { return s[(step-1)%len(s)] }

// refreshIn is Refresh in the steps that at lists for r = 0..R-1, else Reuse.
func refreshIn(refreshes int, at func(r int) int) func(step, total int) pulsecol.Mode {
	return func(step, total int) pulsecol.Mode {
		for r := range refreshes {
			if at(r) == step {
				return pulsecol.Refresh
			}
		}
		return pulsecol.Reuse
	}
}

func drawSchedule(r *rand.Rand, total int) schedule {
	eta, refreshes := percent(1+r.IntN(100)), 1+r.IntN(6)
	w := eta.window(total)
	switch r.IntN(10) {
	case 0, 1:
		return schedule{pulsecol.Uniform{Eta: eta.share(), Refreshes: refreshes}, refreshIn(refreshes, func(i int) int {
			if refreshes == 1 {
				return 1
			}
			return 1 + i*(w-1)/(refreshes-1)
		}), nil}
	case 2:
		return schedule{pulsecol.Power{Eta: eta.share(), Refreshes: refreshes}, refreshIn(refreshes, func(i int) int {
			if refreshes == 1 {
				return 1
			}
			return 1 + i*i*(w-1)/((refreshes-1)*(refreshes-1))
		}), nil}
	case 3:
		s := pulsecol.Random{Eta: eta.share(), Refreshes: refreshes, Seed: r.Uint64()}
		return schedule{s, s.Mode, nil} // TestRandomSchedule says what is known of it
	case 4:
		fraction := percent(1 + r.IntN(99))
		return schedule{pulsecol.Skip{Fraction: fraction.share()}, func(step, total int) pulsecol.Mode {
			switch full := fraction.of(total) + 1; {
			case step <= full:
				return pulsecol.Dense
			case step == full+1:
				return pulsecol.Refresh
			}
			return pulsecol.Reuse
		}, nil}
	case 5:
		return schedule{pulsecol.Always{}, func(int, int) pulsecol.Mode { return pulsecol.Refresh }, nil}
	case 6:
		s := make(stepList, 1+r.IntN(5))
		for i := range s {
			s[i] = []pulsecol.Mode{pulsecol.Dense, pulsecol.Refresh, pulsecol.Reuse}[r.IntN(3)]
		}
		return schedule{s, s.Mode, nil}
	case 7:
		steps := r.IntN(6) // 0 is 10
		every := steps
		if every == 0 {
			every = 10
		}
		return schedule{pulsecol.Every{Steps: steps}, func(step, _ int) pulsecol.Mode {
			if step%every == 1%every {
				return pulsecol.Refresh
			}
			return pulsecol.Reuse
		}, nil}
	case 8:
		if r.IntN(2) == 0 {
			return schedule{pulsecol.AlwaysDense{}, func(int, int) pulsecol.Mode { return pulsecol.Dense }, nil}
		}
	}
	threshold := []float64{1e-3, 0.02, 0.2}[r.IntN(3)]
	return schedule{
		pulsecol.Adaptive{Eta: eta.share(), Refreshes: refreshes, Threshold: threshold},
		refreshIn(1, func(int) int { return 1 }),
		&adaptive{eta, refreshes, threshold},
	}
}

// course is what a controller does in the next step, by docs/method.md.
type course struct {
	schedule
	never, fixed bool // sparsity 0; a pattern without refreshes

	dense, stale, due bool // SetDense; no columns; the schedule had a refresh meanwhile
	refreshes         int
}

func (c *course) mode(step, total int, drift float64) pulsecol.Mode {
	switch {
	case c.dense:
		return pulsecol.Dense
	case c.fixed:
		return pulsecol.Reuse
	case c.never:
		return pulsecol.Dense
	}
	m := c.schedule.mode(step, total)
	if m != pulsecol.Reuse {
		return m
	}
	a := c.adaptive
	moved := a != nil && step <= a.window.window(total) && c.refreshes < a.refreshes && drift > a.threshold
	if c.stale || c.due || moved {
		return pulsecol.Refresh
	}
	return pulsecol.Reuse
}

// done notes that a step was done in a mode.
func (c *course) done(step, total int, m pulsecol.Mode) {
	switch m {
	case pulsecol.Refresh:
		c.stale, c.due = false, false
		c.refreshes++
	case pulsecol.Dense:
		c.due = c.due || c.dense && c.schedule.mode(step, total) == pulsecol.Refresh
	}
}

// TestRandomSchedule: the steps of Random are distinct, in the window, as many as asked
// for or as there are, and step 1 is among them.
func TestRandomSchedule(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	for range cases(300) {
		total, eta, refreshes := 1+r.IntN(60), percent(1+r.IntN(100)), 1+r.IntN(20)
		s := pulsecol.Random{Eta: eta.share(), Refreshes: refreshes, Seed: r.Uint64()}
		found := 0
		for step := 1; step <= total; step++ {
			if s.Mode(step, total) == pulsecol.Refresh {
				found++
				if step > eta.window(total) {
					t.Errorf("%+v: step %d of %d refreshes", s, step, total)
				}
			}
		}
		if want := min(refreshes, eta.window(total)); found != want || s.Mode(1, total) != pulsecol.Refresh {
			t.Errorf("%+v: %d refreshes in %d steps, want %d with step 1", s, found, total, want)
		}
	}
}

// TestSchedules: the other schedules, step by step, over more totals than generations
// take.
func TestSchedules(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 0))
	kinds := map[string]int{}
	for range cases(20000) {
		total := 1 + r.IntN(400)
		s := drawSchedule(r, total)
		kinds[fmt.Sprintf("%T", s.Schedule)]++
		for step := 1; step <= total; step++ {
			if got, want := s.Schedule.Mode(step, total), s.mode(step, total); got != want {
				t.Fatalf("%#v: step %d of %d is %v, want %v", s.Schedule, step, total, got, want)
			}
		}
	}
	if len(kinds) != 9 {
		t.Errorf("kinds drawn: %v, want all nine", kinds)
	}
}
