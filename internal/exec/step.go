package exec

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
)

// Step is the denoising step in progress. A controller owns it, and every layer's operators
// read it; outside Begin and End they return an error. It also has the worker pool of the
// operators of the graph that it is bound to: see Bind.
type Step struct {
	Name string // of the controller, for errors

	last  uint64
	now   atomic.Uint64 // number of the step in progress << 2 | mode; 0 for none
	pass  Pass          // of the step in progress
	team  kernel.Team
	spare [][]float32 // scores of a block that no layer uses
	bound int         // graphs that are bound and not released
}

// Limit sets the most goroutines that compute at a time; 0 means GOMAXPROCS.
// Results do not depend on it.
func (s *Step) Limit(workers int) { s.team.Workers = workers }

// Begin starts the next step. When ctx is done its operators fail with op.ErrStopped, also in
// the middle of a computation.
func (s *Step) Begin(ctx context.Context, m Mode) { s.BeginPass(ctx, m, Pass{}) }

// BeginPass is Begin for a step that computes the rows of p.
func (s *Step) BeginPass(ctx context.Context, m Mode, p Pass) {
	s.last++
	s.pass = p
	s.team.Done = ctx.Done()
	s.now.Store(s.last<<2 | uint64(m))
}

// End finishes the step in progress.
func (s *Step) End() {
	s.now.Store(0)
	s.team.Done = nil
}

// Current returns the number and the mode of the step in progress. ok is false outside a
// step, and of a nil Step.
func (s *Step) Current() (number uint64, m Mode, ok bool) {
	if s == nil {
		return 0, Dense, false
	}
	v := s.now.Load()
	return v >> 2, Mode(v & 3), v != 0
}

// Pass is the range of rows that the step in progress computes.
func (s *Step) Pass() Pass { return s.pass }

// takeScores returns memory for n scores of a block. Layers that run one after the other
// take the same.
func (s *Step) takeScores(n int) []float32 {
	for i, scores := range s.spare {
		if cap(scores) >= n {
			s.spare = slices.Delete(s.spare, i, i+1)
			return scores
		}
	}
	s.spare = nil // all are too small
	return make([]float32, n)
}

// giveScores ends the use of what takeScores has returned.
func (s *Step) giveScores(scores []float32) { s.spare = append(s.spare, scores) }

// Team is the worker pool of the operators that are bound to s.
func (s *Step) Team() *kernel.Team { return &s.team }

// Bind makes the operators of package op in g compute under s: on its worker pool, and until
// the context of a step is done. Until Release they belong to one machine, and keep buffers
// between runs. Owns reports whether they may be bound.
func (s *Step) Bind(g *gorgonia.ExprGraph) {
	s.bound++
	for _, n := range g.AllNodes() {
		if o, ok := n.Op().(Operator); ok {
			o.Bind(s)
		}
	}
}

// Release undoes one Bind. After all are undone, the operators may be bound to another Step.
func (s *Step) Release() { s.bound-- }
