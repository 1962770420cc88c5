package exec

import (
	"fmt"
	"slices"
	"time"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// State is the part of an attention layer that persists between denoising steps, and the data
// that its operators pass to one another within a step. A controller makes one for each
// layer; it is not safe for concurrent use.
type State struct {
	path string
	step *Step

	// NoScores and NoColumns stand for a result that a step does not have.
	NoScores, NoColumns *Held

	ran [parts]uint64 // the step in which each part ran last

	alwaysDense bool    // whatever the step
	unchanging  bool    // refreshes leave the keys as they are
	sparsity    float64 // in place of the selection's; 0 = that

	batch, heads, n int // of the table; one row and head serve all in static patterns
	table           kernel.Table
	given           *ColumnBits // the table if Give has set it
	value           *Held       // the table as a value
	views           views       // of the table's memory
	device          DeviceState // in place of table and value; nil on the CPU
	built           bool
	drift           *drift   // nil unless watched
	rows            []uint32 // of a table that is being built, those of one head

	cache *cache // nil without one

	stats     LayerStats
	uncounted bool              // the device has counted the table's pairs, and stats lack these counts
	replaced  bool              // that table replaced another one
	observer  func(Observation) // nil for none
}

// NewState returns the state of the attention layer named by path, whose
// operators follow step.
func NewState(path string, step *Step) *State {
	return &State{path: path, step: step, NoScores: hold(make([]float32, 1), 1, 1, 1, 1), NoColumns: hold(make([]uint32, 1), 1, 1, 1, 1)}
}

// Step returns the step that the layer's operators follow.
func (s *State) Step() *Step { return s.step }

// Part is an operator's part in the attention of a layer.
type Part uint8

const (
	CollectScores Part = iota // ScoreCollect
	SelectKeys                // GroupTopK
	Attend                    // ColumnSparseAttn
)

const parts = int(Attend) + 1

// Follow sets what the layer does in the modes of a step: refreshes says that refreshes select
// its keys, unchanging that it has keys that never change. With neither it is dense. Without
// Follow it does what the step's mode says.
func (s *State) Follow(refreshes, unchanging bool) {
	s.alwaysDense, s.unchanging = !refreshes && !unchanging, unchanging
}

// ModeIn is the layer's mode in a step of a mode. A nil State has that of the step.
func (s *State) ModeIn(step Mode) Mode {
	switch {
	case s == nil:
	case s.alwaysDense:
		return Dense
	case s.unchanging && step == Refresh:
		return Reuse
	}
	return step
}

// SetSparsity replaces the sparsity of the layer's selection from the next refresh on.
func (s *State) SetSparsity(sparsity float64) { s.sparsity = sparsity }

// Selected returns a selection with the layer's sparsity, if SetSparsity has set it. A nil
// State has none.
func (s *State) Selected(sel Selection) Selection {
	if s != nil && s.sparsity > 0 {
		sel.Sparsity = s.sparsity
	}
	return sel
}

// Begin starts a part of the layer's attention, as operator o, and returns the layer's mode.
// It returns an error outside a step, in a second call of the step, and before the part whose
// result it needs.
func (s *State) Begin(o fmt.Stringer, part Part) (Mode, error) {
	number, mode, ok := s.step.Current()
	switch {
	case !ok:
		return 0, fmt.Errorf("%s: %w", o, ErrNoMachine)
	case s.ran[part] == number:
		return 0, fmt.Errorf("%s: %w: a second time in one step; is another machine running this graph?", o, ErrOrder)
	case part > 0 && s.ran[part-1] != number:
		return 0, fmt.Errorf("%s: %w: before the operator it depends on", o, ErrOrder)
	}
	s.ran[part] = number
	return s.ModeIn(mode), nil
}

// Ran reports whether the layer's attention ran in the latest step.
func (s *State) Ran() bool { return s.ran[Attend] == s.step.last }

// Built reports whether there is a column table to reuse.
func (s *State) Built() bool { return s.built }

// BuiltFor reports whether there is a column table to reuse for so many batch rows, heads
// and tokens. One row and head of a static selection serve all.
func (s *State) BuiltFor(batch, heads, n int) bool {
	return s.built && s.n == n && (s.batch == batch || s.table.SharedBatch) && (s.heads == heads || s.table.SharedHeads)
}

// Table is the column table as kernels take it; nil without one on the CPU.
func (s *State) Table() *kernel.Table {
	if !s.built {
		return nil
	}
	return &s.table
}

// Value is the column table as a value; nil before it has memory on the CPU.
func (s *State) Value() *Held { return s.value }

// Columns returns a copy of the layer's column table.
func (s *State) Columns() (ColumnBits, error) {
	if !s.built {
		return ColumnBits{}, fmt.Errorf("op: layer %q: %w", s.path, ErrStale)
	}
	if s.device != nil && s.given == nil {
		return s.device.Columns()
	}
	return ColumnBits{s.batch, s.heads, s.n, s.table.Group, slices.Clone(s.table.Bits)}, nil
}

// Invalidate drops the contents of the column table and of the cache, and keeps their memory.
// The next sparse step must be a refresh.
func (s *State) Invalidate() {
	s.built = false
	if s.cache != nil {
		s.cache.filled, s.cache.block.built = [2]bool{}, false
	}
	if s.drift != nil {
		s.drift.measured = false
	}
	if s.device != nil {
		s.device.Drop()
	}
}

// Free drops the column table and the cache. The error is that of a device.
func (s *State) Free() (err error) {
	s.Invalidate()
	s.table, s.value, s.views, s.rows, s.cache = kernel.Table{}, nil, nil, nil, nil
	if device := s.device; device != nil {
		s.SetDevice(nil, 0)
		err = device.Free()
	}
	s.stats.Bytes = 0
	return err
}

// Give sets the layer's columns, instead of those of refreshes, for a selection of the kind
// SelectFixed. They must be valid, are not copied and must not change. Give is called before
// the layer's operators are made.
func (s *State) Give(columns *ColumnBits) { s.given = columns }

// Given returns the columns that Give has set, nil if none.
func (s *State) Given() *ColumnBits { return s.given }

// Refresh builds a new column table on the CPU, for groups of queries over batch rows,
// heads and n keys. topK fills the rows of one head, whose index counts over all batch
// rows. On an error of stopped there is no table.
func (s *State) Refresh(batch, heads, n, group int, topK func(rows []uint32, head int), stopped func() error) error {
	s.reserve(batch, heads, n, kernel.Table{Group: group, Reach: -1})
	replaced := s.built
	s.BeginRefresh()
	size := kernel.Groups(n, group) * kernel.Words(n)
	if len(s.rows) != size {
		s.rows = make([]uint32, size)
	}
	var kept, added int
	for head := range batch * heads {
		topK(s.rows, head)
		fresh := columns.Table{Heads: 1, Len: n, Group: group, Bits: s.rows}
		old := fresh
		old.Bits = s.table.Bits[head*size : (head+1)*size]
		kept += fresh.Pairs()
		added += fresh.NewPairs(&old)
		copy(old.Bits, s.rows)
	}
	if err := stopped(); err != nil {
		return err
	}
	s.built = true
	s.stats.Refreshes++
	s.stats.Density = float64(kept) / (float64(batch*heads) * float64(n) * float64(n))
	s.stats.Churn = 0
	if replaced && kept > 0 {
		s.stats.Churn = float64(added) / float64(kept)
	}
	return nil
}

// reserve allocates the table t over batch rows, heads and n keys, unless there is one of
// this size.
func (s *State) reserve(batch, heads, n int, t kernel.Table) {
	if s.value != nil && s.batch == batch && s.heads == heads && s.n == n && s.table.Group == t.Group {
		return
	}
	u, w := kernel.Groups(n, t.Group), kernel.Words(n)
	t.Bits = s.table.Bits
	if size := batch * heads * u * w; cap(t.Bits) < size {
		t.Bits = make([]uint32, size)
		s.views.empty()
	} else {
		t.Bits = t.Bits[:size]
		clear(t.Bits)
	}
	s.batch, s.heads, s.n, s.table, s.built = batch, heads, n, t, false
	s.value = view(&s.views, t.Bits, batch, heads, u, w)
	s.stats.Bytes = 4 * int64(cap(t.Bits))
}

// MakeTable makes the table of a selection that is Unchanging, once. It is on the host for
// every device.
func (g GroupTopK) MakeTable() {
	s, sel := g.State, g.Selection
	if sel.Kind == SelectFixed {
		s.useGiven()
		return
	}
	s.reserve(1, 1, g.Len, kernel.Table{
		Group: g.Group, SharedBatch: true, SharedHeads: true,
		Reach: sel.Reach, Sinks: sel.Sinks(g.Len),
	})
	if s.built {
		return
	}
	sel.fillStatic(s.table.Bits, 0, g.Len, g.Len, g.Group)
	s.stats.Density = sel.staticDensity(g.Len)
	s.built = true
}

// useGiven makes the columns of Give the layer's table.
func (s *State) useGiven() {
	g := s.given
	if s.value == nil {
		s.batch, s.heads, s.n, s.table = g.Batch, g.Heads, g.Len, g.table()
		s.value = hold(g.Bits, g.Batch, g.Heads, kernel.Groups(g.Len, g.Group), kernel.Words(g.Len))
		s.stats.Density = g.columns().Density()
	}
	s.built = true
}

// AddTime adds the time since start to that of a mode.
func (s *State) AddTime(m Mode, start time.Time) { s.stats.Seconds[m] += time.Since(start).Seconds() }
