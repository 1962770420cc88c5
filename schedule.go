package pulsecol

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pulsecol/pulsecol/op"
)

// Mode is what attention does in one denoising step.
type Mode = op.Mode

// The modes of a step.
const (
	Dense   = op.Dense   // full attention; nothing is collected
	Refresh = op.Refresh // full attention, and new columns from its scores
	Reuse   = op.Reuse   // sparse attention over the columns of the last refresh
)

// Schedule says what each step of a generation does. Steps count from 1 over the
// whole generation, all blocks of a semi-autoregressive sampler together. Modes
// are pure functions of step and total; the controller turns a Reuse without
// columns into a Refresh.
type Schedule interface {
	Mode(step, total int) Mode
}

// Uniform is the paper's schedule: Refreshes refresh steps, evenly spaced over
// the first Window of the generation,
//
//	τ_r = 1 + ⌊(r-1)(W-1)/(R-1)⌋, r = 1..R, W = ⌊Window·total⌋, R = Refreshes,
//
// where equal steps count once, W is at least 1, and R = 1 means step 1 alone.
// Every other step reuses. Answers that build on themselves are better with a Window
// of 1 (docs/results.md).
type Uniform struct {
	Window    float64 // η, in (0, 1]; 0 = 0.3
	Refreshes int     // R; 0 = 16 (the paper's for LLaDA; 8 for Dream)
}

// Random refreshes at Refreshes distinct steps of the window, step 1 among them,
// drawn from Seed.
type Random struct {
	Window    float64 // as in Uniform
	Refreshes int     // as in Uniform
	Seed      uint64
}

// Power refreshes at the steps 1 + ⌊(r/(R-1))²·(W-1)⌋, r = 0..R-1: densest at the
// start.
type Power struct {
	Window    float64 // as in Uniform
	Refreshes int     // as in Uniform
}

// Adaptive refreshes when attention has moved away from the columns: at step 1,
// and after a step in which the share of full attention that falls on the columns
// of some query group had dropped by more than Threshold, mean over heads and
// layers, since they were first reused; at most Refreshes times. Reuse steps
// measure that share for one query of each group, which costs them what these
// queries cost under full attention. See Controller.Drift.
//
// The paper leaves an adaptive schedule open; this one is ours.
type Adaptive struct {
	Window    float64 // first part of the generation, in which it may refresh; 0 = 1, all of it
	Refreshes int     // most refreshes; 0 = 16
	Threshold float64 // in (0, 1]; 0 = 0.02
}

// Skip is SparseD's schedule: ⌊Fraction·total⌋+1 steps of full attention, then
// one refresh, then reuse to the end.
type Skip struct {
	Fraction float64 // in [0, 1); 0 = 0.2
}

// Always refreshes in every step: full attention, with fresh columns to look at.
type Always struct{}

// AlwaysDense is full attention in every step.
type AlwaysDense struct{}

func (s Uniform) Mode(step, total int) Mode {
	w, refreshes := window(s.Window, total), orDefault(s.Refreshes, 16)
	if refreshes == 1 {
		return refreshIf(step == 1)
	}
	// step is a τ_r if the smallest r whose τ_r is not below it hits it.
	r := ceilDiv(int64(step-1)*int64(refreshes-1), int64(max(w-1, 1)))
	return refreshIf(step <= w && r*int64(w-1)/int64(refreshes-1) == int64(step-1))
}

func (s Random) Mode(step, total int) Mode {
	w, refreshes := window(s.Window, total), orDefault(s.Refreshes, 16)
	if step == 1 || step > w {
		return refreshIf(step == 1)
	}
	rng := rand.New(rand.NewPCG(s.Seed, uint64(total)))
	for _, at := range rng.Perm(w - 1)[:max(1, min(refreshes, w))-1] {
		if at+2 == step {
			return Refresh
		}
	}
	return Reuse
}

func (s Power) Mode(step, total int) Mode {
	w, refreshes := window(s.Window, total), orDefault(s.Refreshes, 16)
	if refreshes == 1 {
		return refreshIf(step == 1)
	}
	for r := range refreshes {
		gaps := int64(refreshes - 1)
		if 1+int64(r)*int64(r)*int64(w-1)/(gaps*gaps) == int64(step) {
			return Refresh
		}
	}
	return Reuse
}

// Mode gives what is known before anything was measured: a refresh at step 1.
func (s Adaptive) Mode(step, total int) Mode { return refreshIf(step == 1) }

// due reports whether a step refreshes, after so many refreshes and with the
// drift that the step before it measured.
func (s Adaptive) due(step, total, refreshes int, drift float64) bool {
	return step <= window(orDefault(s.Window, 1), total) && refreshes < orDefault(s.Refreshes, 16) &&
		drift > orDefault(s.Threshold, 0.02)
}

func (s Skip) Mode(step, total int) Mode {
	switch end := floorShare(orDefault(s.Fraction, 0.2), total) + 2; {
	case step < end:
		return Dense
	case step == end:
		return Refresh
	}
	return Reuse
}

func (Always) Mode(step, total int) Mode      { return Refresh }
func (AlwaysDense) Mode(step, total int) Mode { return Dense }

func (s Uniform) String() string {
	return fmt.Sprintf("uniform, %d refreshes in the first %g", orDefault(s.Refreshes, 16), orDefault(s.Window, 0.3))
}

func (s Random) String() string {
	return fmt.Sprintf("random, %d refreshes in the first %g", orDefault(s.Refreshes, 16), orDefault(s.Window, 0.3))
}

func (s Power) String() string {
	return fmt.Sprintf("power, %d refreshes in the first %g", orDefault(s.Refreshes, 16), orDefault(s.Window, 0.3))
}

func (s Adaptive) String() string {
	return fmt.Sprintf("adaptive, up to %d refreshes in the first %g, at a drift of %g",
		orDefault(s.Refreshes, 16), orDefault(s.Window, 1), orDefault(s.Threshold, 0.02))
}

func (s Skip) String() string      { return fmt.Sprintf("skip %g", orDefault(s.Fraction, 0.2)) }
func (Always) String() string      { return "always" }
func (AlwaysDense) String() string { return "always dense" }

func (s Uniform) validate() error { return validWindow(s.Window, s.Refreshes) }
func (s Random) validate() error  { return validWindow(s.Window, s.Refreshes) }
func (s Power) validate() error   { return validWindow(s.Window, s.Refreshes) }

func (s Adaptive) validate() error {
	if !(s.Threshold >= 0 && s.Threshold <= 1) {
		return fmt.Errorf("Threshold is %v, want 0 < Threshold <= 1 (or 0 for 0.02)", s.Threshold)
	}
	return validWindow(s.Window, s.Refreshes)
}

func (s Skip) validate() error {
	if !(s.Fraction >= 0 && s.Fraction < 1) {
		return fmt.Errorf("Fraction is %v, want 0 <= Fraction < 1", s.Fraction)
	}
	return nil
}

// maxRefreshes keeps the schedules' products small on every platform.
const maxRefreshes = 1 << 14

func validWindow(share float64, refreshes int) error {
	if !(share >= 0 && share <= 1) {
		return fmt.Errorf("Window is %v, want 0 < Window <= 1", share)
	}
	if refreshes < 0 || refreshes > maxRefreshes {
		return fmt.Errorf("Refreshes is %d, want 1 to %d (or 0 for the default)", refreshes, maxRefreshes)
	}
	return nil
}

// window is the number of steps in which refreshes may fall.
func window(share float64, total int) int {
	return max(1, min(total, floorShare(orDefault(share, 0.3), total)))
}

// floorShare is ⌊share·total⌋ of the decimal number share was written as:
// 0.29·100 is 28.999… in float64, and 29 here.
func floorShare(share float64, total int) int {
	return int(math.Floor(share*float64(total) + 1e-9))
}

func refreshIf(refresh bool) Mode {
	if refresh {
		return Refresh
	}
	return Reuse
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
