package exec

import "github.com/pulsecol/pulsecol/internal/kernel"

// drift measures how far attention has moved away from a layer's columns since their
// refresh. Reuse steps measure, for one query of each group, the share of full attention
// that falls on the columns. The baseline is the first reuse step and not the refresh:
// sparse attention in the earlier layers starts in that step and moves attention too, which
// another refresh would not undo.
type drift struct {
	measured  bool      // there is a baseline
	base, now []float32 // [B,H,U] kept share, in the first reuse step and in the latest
	lost      []float32 // [B,U] base - now, mean over heads, of the latest step that succeeded

	next  []float32 // lost of the step in progress
	fresh bool      // next is complete
}

// Watch makes reuse steps measure drift. It costs them as much as one query of
// each group would under full attention.
func (s *State) Watch() { s.drift = new(drift) }

// Drift is the share of attention that has left the columns of each query group
// since the first reuse step after their refresh, [B,U], mean over heads; empty
// before a first reuse and without Watch. It is a live view.
func (s *State) Drift() []float32 {
	if s.drift == nil || !s.drift.measured {
		return nil
	}
	return s.drift.lost
}

// EndStep ends a step. What the step measured counts if it succeeded: one that fails may
// run again, in the same mode.
func (s *State) EndStep(succeeded bool) {
	if d := s.drift; d != nil {
		if d.fresh && succeeded {
			d.lost, d.next, d.measured = d.next, d.lost, true
		}
		d.fresh = false
	}
}

// MeasureDrift follows one step of attention on a, if Watch was called.
func (s *State) MeasureDrift(team *kernel.Team, m Mode, a *kernel.Operands) {
	if s.drift != nil && s.BuiltFor(a.Batch, a.Heads, a.Len) {
		s.drift.measure(team, m, a, &s.table)
	}
}

// measure follows one step over the operands a with the table t.
func (d *drift) measure(team *kernel.Team, m Mode, a *kernel.Operands, t *kernel.Table) {
	switch m {
	case Refresh:
		d.measured = false
		return
	case Dense:
		return
	}
	groups := kernel.Groups(a.Len, t.Group)
	if n := a.Batch * a.Heads * groups; len(d.now) != n {
		u := a.Batch * groups
		*d = drift{base: make([]float32, n), now: make([]float32, n), lost: make([]float32, u), next: make([]float32, u)}
	}
	team.KeptMass(d.now, a, t)
	if team.Stopped() {
		return // the measurement is incomplete
	}
	if !d.measured {
		copy(d.base, d.now)
	}
	clear(d.next)
	for i, now := range d.now {
		batch, u := i/(a.Heads*groups), i%groups
		d.next[batch*groups+u] += (d.base[i] - now) / float32(a.Heads)
	}
	d.fresh = true
}
