package op

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Mode is what the attention of one denoising step does: Dense, Refresh or Reuse.
type Mode = exec.Mode

// The modes of a step.
const (
	Dense   = exec.Dense   // full attention; column tables stay as they are
	Refresh = exec.Refresh // full attention, and new column tables from its scores
	Reuse   = exec.Reuse   // sparse attention over the columns of the last refresh
)

// Step is the denoising step in progress. A controller owns it and every layer's
// operators read it; outside Begin and End they refuse to run. It also computes for
// the operators of the graph that it is bound to: see Bind.
type Step struct {
	Name string // of the controller, for errors

	last  uint64
	now   atomic.Uint64 // number of the step in progress << 2 | mode; 0 for none
	team  kernel.Team
	bound bool // to a graph, and not released
}

// Limit sets the most goroutines that compute at a time; 0 means GOMAXPROCS.
// Results do not depend on it.
func (s *Step) Limit(workers int) { s.team.Workers = workers }

// Begin starts the next step. Once ctx is done its operators fail with ErrStopped,
// also in the middle of a computation.
func (s *Step) Begin(ctx context.Context, m Mode) {
	s.last++
	s.team.Done = ctx.Done()
	s.now.Store(s.last<<2 | uint64(m))
}

// End finishes the step in progress.
func (s *Step) End() {
	s.now.Store(0)
	s.team.Done = nil
}

// Bind makes the operators of this package in g compute under s: on its
// goroutines, and until the context of a step is done. They then belong to one
// machine, until Release, and keep between runs what these would otherwise allocate.
// Owns says whether they may be bound.
func (s *Step) Bind(g *gorgonia.ExprGraph) {
	s.bound = true
	for _, n := range g.AllNodes() {
		if o, ok := n.Op().(planned); ok {
			o.bind(s)
		}
	}
}

func (s *Step) current() (number uint64, m Mode, ok bool) {
	v := s.now.Load()
	return v >> 2, Mode(v & 3), v != 0
}

// State is what one attention layer keeps between denoising steps, and what its
// operators hand to one another within a step. A controller makes one for each
// layer; it is not safe for concurrent use.
type State struct {
	path string
	step *Step

	// The step in which each operator last ran.
	scored, ranked, attended uint64

	// Within a refresh: the attention output, from ScoreCollect to
	// ColumnSparseAttn, which made the room for it.
	sparse *ColumnSparseAttn
	out    tensor.Tensor

	batch, heads, n int // of the table; one row and head serve all in static patterns
	table           kernel.Table
	given           *ColumnBits // the table if Give has set it
	value           *held       // the table as a value
	memory          Memory      // of twins, in place of table and value; nil on the CPU
	built           bool
	drift           *drift   // nil unless watched
	rows            []uint32 // of a table that is being built, those of one head

	// What stands for a result that a step does not have.
	noScores, noColumns *held

	stats     LayerStats
	uncounted bool              // the memory has counted the table's pairs, and stats do not say how many
	replaced  bool              // and that table took the place of another
	observer  func(Observation) // nil = nobody looks
}

// LayerStats counts what one attention layer did since its State was made. Where the
// table is on a device that fails to say what it counted, Density and Churn are those
// of the last refresh that it did say.
type LayerStats struct {
	Refreshes int
	Density   float64            // share of query-key pairs the table keeps; 0 without a table
	Churn     float64            // share of kept pairs that the last refresh replaced; 0 at the first
	Bytes     int64              // held by the table
	Seconds   [Reuse + 1]float64 // in the layer's operators, by mode
}

// NewState returns the state of the attention layer named by path, whose
// operators follow step.
func NewState(path string, step *Step) *State {
	return &State{
		path: path, step: step,
		noScores:  &held{wrap(make([]float32, 1), 1, 1, 1, 1)},
		noColumns: &held{tensor.New(tensor.WithShape(1, 1, 1, 1), tensor.WithBacking(make([]uint32, 1)))},
	}
}

// Invalidate drops the column table's contents and keeps its memory. The next
// sparse step must be a refresh.
func (s *State) Invalidate() {
	s.built = false
	s.out = nil
	if s.drift != nil {
		s.drift.measured = false
	}
	if s.memory != nil {
		s.memory.Drop()
	}
}

// Free drops the column table. The error is that of a device.
func (s *State) Free() (err error) {
	s.Invalidate()
	s.table, s.value, s.rows = kernel.Table{}, nil, nil
	if memory := s.memory; memory != nil {
		s.SetMemory(nil, 0)
		err = memory.Free()
	}
	s.stats.Bytes = 0
	return err
}

// Built reports whether there is a column table to reuse.
func (s *State) Built() bool { return s.built }

// Ran reports whether the layer's attention ran in the latest step.
func (s *State) Ran() bool { return s.attended == s.step.last }

// Stats returns the counts so far. After a refresh on a device it asks there.
func (s *State) Stats() LayerStats {
	s.count()
	return s.stats
}

// count completes the stats with what the memory has counted.
func (s *State) count() {
	if !s.uncounted {
		return
	}
	density, churn, err := s.memory.Shares()
	if err != nil {
		return
	}
	if !s.replaced {
		churn = 0
	}
	s.stats.Density, s.stats.Churn = density, churn
	s.uncounted = false
}

// Columns returns a copy of the layer's column table.
func (s *State) Columns() (ColumnBits, error) {
	if !s.built {
		return ColumnBits{}, fmt.Errorf("op: layer %q: %w", s.path, ErrStale)
	}
	if s.memory != nil && s.given == nil {
		return s.memory.Columns()
	}
	return ColumnBits{s.batch, s.heads, s.n, s.table.Group, slices.Clone(s.table.Bits)}, nil
}

// Give makes columns the layer's, in place of those that refreshes choose, for a
// selection of the kind SelectFixed. They must be valid, are not copied and must not
// change. It comes before the layer's operators are made.
func (s *State) Give(columns *ColumnBits) { s.given = columns }

// head returns the table's part for the i-th pair of batch row and head.
func (s *State) head(i int) []uint32 {
	size := kernel.Groups(s.n, s.table.Group) * kernel.Words(s.n)
	return s.table.Bits[i*size : (i+1)*size]
}

// begin checks that o may run now, and notes that it did. last is where o's runs
// are noted; after is the operator that must have run before it, if any.
func (s *State) begin(o fmt.Stringer, last *uint64, after *uint64) (Mode, error) {
	number, mode, ok := s.step.current()
	switch {
	case !ok:
		return 0, fmt.Errorf("%s: %w", o, ErrNoMachine)
	case *last == number:
		return 0, fmt.Errorf("%s: %w: a second time in one step; is another machine running this graph?", o, ErrOrder)
	case after != nil && *after != number:
		return 0, fmt.Errorf("%s: %w: before the operator it depends on", o, ErrOrder)
	}
	*last = number
	return mode, nil
}

// reserve makes room for the table t, whose bits it allocates, over batch rows,
// heads and n keys.
func (s *State) reserve(batch, heads, n int, t kernel.Table) {
	if s.value != nil && s.batch == batch && s.heads == heads && s.n == n && s.table.Group == t.Group {
		return
	}
	u, w := kernel.Groups(n, t.Group), kernel.Words(n)
	t.Bits = make([]uint32, batch*heads*u*w)
	s.batch, s.heads, s.n, s.table, s.built = batch, heads, n, t, false
	s.value = &held{tensor.New(tensor.WithShape(batch, heads, u, w), tensor.WithBacking(t.Bits))}
	s.stats.Bytes = 4 * int64(len(t.Bits))
}

// clock adds the time since start to a mode's.
func (s *State) clock(m Mode, start time.Time) { s.stats.Seconds[m] += time.Since(start).Seconds() }
