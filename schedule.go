package pulsecol

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"sort"

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

// Schedule determines the mode of each step of a generation. Steps count from 1 over the
// whole generation, all blocks of a semi-autoregressive sampler together. Modes
// are pure functions of step and total; the controller turns a Reuse without
// columns into a Refresh.
//
// The schedules of this package are given as values, not as pointers. Other types may
// implement Schedule. One that embeds Adaptive refreshes by its own Mode and, in steps
// that Mode gives as Reuse, where Adaptive does.
type Schedule interface {
	Mode(step, total int) Mode
}

// Uniform is the paper's schedule: Refreshes refresh steps, evenly spaced over
// the first share Eta of the generation,
//
//	τ_r = 1 + ⌊(r-1)(W-1)/(R-1)⌋, r = 1..R, W = ⌊Eta·total⌋, R = Refreshes,
//
// where equal steps count once, W is at least 1, and R = 1 means step 1 alone.
// Every other step reuses. Chains of reasoning and enumerations are more often right
// with an Eta of 1 (docs/schedules.md).
type Uniform struct {
	Eta       float64 // η, in (0, 1]; 0 = 0.3
	Refreshes int     // R; 0 = 16 (the paper's for LLaDA; 8 for Dream)
}

// Random refreshes at Refreshes distinct steps among the first W = ⌊Eta·total⌋, step 1
// included. Seed and total determine the steps; all sets are equally likely.
type Random struct {
	Eta       float64 // as in Uniform
	Refreshes int     // as in Uniform
	Seed      uint64
}

// Power refreshes at the steps 1 + ⌊(r/(R-1))²·(W-1)⌋, r = 0..R-1, with W = ⌊Eta·total⌋:
// most of them early.
type Power struct {
	Eta       float64 // as in Uniform
	Refreshes int     // as in Uniform
}

// Adaptive refreshes when attention has moved away from the columns: at step 1,
// and after a step in which the share of full attention that falls on the columns
// of some query group had dropped by more than Threshold, mean over heads and
// layers, since they were first reused; at most Refreshes times. Reuse steps
// measure that share for one query of each group, which costs them what these
// queries cost under full attention. See Controller.Drift.
//
// The paper describes no adaptive schedule.
type Adaptive struct {
	Eta       float64 // share of the steps, from the first, that may refresh; 0 = 1
	Refreshes int     // most refreshes; 0 = 16
	Threshold float64 // in (0, 1]; 0 = 0.02
}

// Skip is SparseD's schedule: ⌊Fraction·total⌋+1 steps of full attention, then
// one refresh, then reuse to the end.
type Skip struct {
	Fraction float64 // in [0, 1); 0 = 0.2
}

// Every refreshes at step 1 and in every Steps-th step after it, whatever the total: the
// schedule of training, where columns age with the weights.
type Every struct {
	Steps int // from one refresh to the next; 0 = 10
}

// Always refreshes in every step: full attention, with new columns for inspection.
type Always struct{}

// AlwaysDense is full attention in every step.
type AlwaysDense struct{}

func (s Uniform) Mode(step, total int) Mode {
	last, gaps := uint64(window(s.Eta, total)-1), uint64(budget(s.Refreshes)-1)
	return refreshAt(step, gaps, func(r uint64) uint64 { return mulDiv(r, last, gaps) })
}

func (s Random) Mode(step, total int) Mode {
	w, refreshes := window(s.Eta, total), budget(s.Refreshes)
	if step <= 1 || step > w || refreshes >= w {
		return refreshIf(step >= 1 && step <= w)
	}
	// Robert Floyd's sample of refreshes-1 of the w-1 steps after the first.
	rng := rand.New(rand.NewPCG(s.Seed, uint64(total)))
	drawn := make(map[uint64]bool, refreshes-1)
	for last := uint64(w - refreshes); last < uint64(w-1); last++ {
		at := rng.Uint64N(last + 1)
		if drawn[at] {
			at = last
		}
		drawn[at] = true
	}
	return refreshIf(drawn[uint64(step-2)])
}

func (s Power) Mode(step, total int) Mode {
	last, gaps := uint64(window(s.Eta, total)-1), uint64(budget(s.Refreshes)-1)
	return refreshAt(step, gaps, func(r uint64) uint64 { return mulDiv(r*r, last, gaps*gaps) })
}

// Mode is the schedule without measurements: a refresh at step 1.
func (s Adaptive) Mode(step, total int) Mode { return refreshIf(step == 1) }

// adaptive is a schedule that depends on drift: Adaptive, or a type that embeds it.
type adaptive interface {
	due(step, total, refreshes int, drift float64) bool
}

// due reports whether a step refreshes, given the refreshes so far and the drift that
// the previous step measured.
func (s Adaptive) due(step, total, refreshes int, drift float64) bool {
	return step <= window(orDefault(s.Eta, 1), total) && refreshes < orDefault(s.Refreshes, 16) &&
		drift > orDefault(s.Threshold, 0.02)
}

func (s Skip) Mode(step, total int) Mode {
	switch full := floorShare(orDefault(s.Fraction, 0.2), total); { // full+2 may overflow
	case step-2 < full:
		return Dense
	case step-2 == full:
		return Refresh
	}
	return Reuse
}

func (s Every) Mode(step, total int) Mode {
	return refreshIf(step >= 1 && (step-1)%orDefault(s.Steps, 10) == 0)
}

func (Always) Mode(step, total int) Mode      { return Refresh }
func (AlwaysDense) Mode(step, total int) Mode { return Dense }

func (s Uniform) String() string {
	return fmt.Sprintf("uniform, %d refreshes in the first %g", orDefault(s.Refreshes, 16), orDefault(s.Eta, 0.3))
}

func (s Random) String() string {
	return fmt.Sprintf("random, %d refreshes in the first %g", orDefault(s.Refreshes, 16), orDefault(s.Eta, 0.3))
}

func (s Power) String() string {
	return fmt.Sprintf("power, %d refreshes in the first %g", orDefault(s.Refreshes, 16), orDefault(s.Eta, 0.3))
}

func (s Adaptive) String() string {
	return fmt.Sprintf("adaptive, up to %d refreshes in the first %g, at a drift of %g",
		orDefault(s.Refreshes, 16), orDefault(s.Eta, 1), orDefault(s.Threshold, 0.02))
}

func (s Skip) String() string      { return fmt.Sprintf("skip %g", orDefault(s.Fraction, 0.2)) }
func (s Every) String() string     { return fmt.Sprintf("every %d steps", orDefault(s.Steps, 10)) }
func (Always) String() string      { return "always" }
func (AlwaysDense) String() string { return "always dense" }

func (s Uniform) validate() error { return validEta(s.Eta, s.Refreshes) }
func (s Random) validate() error  { return validEta(s.Eta, s.Refreshes) }
func (s Power) validate() error   { return validEta(s.Eta, s.Refreshes) }

func (s Adaptive) validate() error {
	if !(s.Threshold >= 0 && s.Threshold <= 1) {
		return fmt.Errorf("Threshold is %v, want 0 < Threshold <= 1 (or 0 for 0.02)", s.Threshold)
	}
	return validEta(s.Eta, s.Refreshes)
}

func (s Every) validate() error { return nonNegative("Steps", s.Steps) }

func (s Skip) validate() error {
	if !(s.Fraction >= 0 && s.Fraction < 1) {
		return fmt.Errorf("Fraction is %v, want 0 <= Fraction < 1", s.Fraction)
	}
	return nil
}

// maxRefreshes bounds the time and memory that Mode takes.
const maxRefreshes = 1 << 14

// validSchedule returns what is wrong with a schedule. It recovers from panics of schedules
// that users define.
func validSchedule(s Schedule) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("Schedule %T: %v", s, r) // for instance an embedded nil pointer
		}
	}()
	switch s.(type) {
	case *Uniform, *Random, *Power, *Adaptive, *Skip, *Every, *Always, *AlwaysDense:
		return fmt.Errorf("Schedule is a %T, want the value and not a pointer to it", s)
	}
	if isPointer(s) && reflect.ValueOf(s).IsNil() {
		return fmt.Errorf("Schedule is a nil %T", s)
	}
	if v, ok := s.(validator); ok {
		if err := v.validate(); err != nil {
			return fmt.Errorf("Schedule %v: %w", s, err)
		}
	}
	return nil
}

func validEta(eta float64, refreshes int) error {
	if !(eta >= 0 && eta <= 1) {
		return fmt.Errorf("Eta is %v, want 0 < Eta <= 1", eta)
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

// budget is the number of refreshes, clamped to the range that Validate accepts.
func budget(refreshes int) int { return max(1, min(orDefault(refreshes, 16), maxRefreshes)) }

// floorShare is ⌊share·total⌋, with share taken as the decimal number it stands for:
// 0.29·100 is 28.999… in float64, and 29 here. The result is between 0 and total; a
// negative share or NaN gives 0.
func floorShare(share float64, total int) int {
	x := share * float64(total)
	x = math.Floor(x + max(1e-9, x*0x1p-52)) // share and product are rounded by up to 2^-53 of x each
	switch {
	case !(x > 0):
		return 0
	case x >= float64(total): // x may exceed the largest int
		return total
	}
	return int(x)
}

// refreshAt is Refresh if step is 1 + at(r) for some r from 0 to gaps. at(0) is 0, and at
// does not decrease.
func refreshAt(step int, gaps uint64, at func(r uint64) uint64) Mode {
	if step <= 1 {
		return refreshIf(step == 1)
	}
	// The smallest r whose step is step or later.
	r := 1 + sort.Search(int(gaps), func(i int) bool { return at(uint64(i)+1) >= uint64(step-1) })
	return refreshIf(uint64(r) <= gaps && at(uint64(r)) == uint64(step-1))
}

// mulDiv is ⌊a·b/c⌋ for a <= c.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, _ := bits.Div64(hi, lo, c)
	return q
}

func refreshIf(refresh bool) Mode {
	if refresh {
		return Refresh
	}
	return Reuse
}
