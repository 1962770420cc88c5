package op

import (
	"fmt"
	"hash"
	"time"

	"gorgonia.org/gorgonia"
)

// Operator is an operator of this package, as its twin on another device embeds
// it: the twin has its identity, its shapes and its place in a Workspace. This file
// is what twins need beyond that.
type Operator interface {
	gorgonia.SDOp
	planned
	merger
	WriteHashFor(device string, h hash.Hash)
	GraphInput(i int) (in *gorgonia.Node, step *Step, number uint64)
	StepInProgress() (number uint64, m Mode, ok bool)
	Stopped() error
}

type twin interface {
	Twin() Operator
	Precision() Precision
}

// Unwrap returns the operator that a twin stands for, and any other operator as it
// is.
func Unwrap(o gorgonia.Op) gorgonia.Op {
	if t, ok := o.(twin); ok {
		return t.Twin()
	}
	return o
}

// IsTwin reports whether o is a twin.
func IsTwin(o gorgonia.Op) bool {
	_, ok := o.(twin)
	return ok
}

// TwinPrecision returns what the values of a twin are rounded to, and whether o is
// a twin at all.
func TwinPrecision(o gorgonia.Op) (p Precision, ok bool) {
	if t, ok := o.(twin); ok {
		return t.Precision(), true
	}
	return AutoPrecision, false
}

// GraphInput returns the node of the operator's input i if that is an input of the graph,
// whose value is the same all through a step, and the step in progress with its number,
// which no other step has. Without a step or a plan there is no such node.
func (p *place) GraphInput(i int) (in *gorgonia.Node, step *Step, number uint64) {
	in = p.placement.GraphInput(i)
	if p.step == nil || in == nil {
		return nil, nil, 0
	}
	number, _, running := p.step.current()
	if !running {
		return nil, nil, 0
	}
	return in, p.step, number
}

// StepInProgress returns the step that the operator runs in, with its number and mode. ok is
// false outside a step.
func (p *place) StepInProgress() (number uint64, m Mode, ok bool) {
	if p.step == nil {
		return 0, Dense, false
	}
	return p.step.current()
}

// Stopped returns an error wrapping ErrStopped if the step's context is done.
func (b *base) Stopped() error { return b.stopped() }

// WriteHashFor writes the identity of the operator's twin on a device. An operator
// and its twin are different operators.
func (id *identity) WriteHashFor(device string, h hash.Hash) {
	fmt.Fprintf(h, "%s/", device)
	id.WriteHash(h)
}

// Params returns what the operator was made with, defaults filled in.
func (o *ScoreCollect) Params() AttentionParams { return o.p }

// Params returns what the operator was made with, defaults filled in.
func (o *GroupTopK) Params() AttentionParams { return o.p }

// Params returns what the operator was made with, defaults filled in.
func (o *ColumnSparseAttn) Params() AttentionParams { return o.p }

// Params returns what the operator was made with.
func (o *DenseAttn) Params() AttentionParams { return o.p }

// Keep is how many of n keys a group keeps: max(1, floor((1-Sparsity)*n)).
func (s Selection) Keep(n int) int { return s.keep(n) }

// Quota is how many of n blocks SparseD picks in one of its rankings:
// max(1, floor((1-Sparsity)*n)+1), at most n.
func (s Selection) Quota(n int) int { return s.quota(n) }

// GenerationBlock is SparseD's first key block that lies fully inside the generated
// tokens, or the last block of all.
func (s Selection) GenerationBlock(n int) int { return s.generationBlock(n) }

// Sinks is the number of keys that a static pattern always keeps.
func (s Selection) Sinks(n int) int { return s.sinks(n) }

// Static makes the table of a pattern that never changes, if there is none. It stays
// on the host: who looks at it reads it there, and kernels go by the position.
func (o *GroupTopK) Static() { o.static() }

// Part is an operator's part in the attention of a layer.
type Part uint8

const (
	Score  Part = iota // ScoreCollect
	Rank               // GroupTopK
	Attend             // ColumnSparseAttn
)

// Begin notes that part o of the layer's attention runs now and returns the step's
// mode. It is an error outside a step, a second time in it, and before the part
// whose result it needs.
func (s *State) Begin(o fmt.Stringer, part Part) (Mode, error) {
	switch part {
	case Score:
		return s.begin(o, &s.scored, nil)
	case Rank:
		return s.begin(o, &s.ranked, &s.scored)
	}
	return s.begin(o, &s.attended, &s.ranked)
}

// Spend adds the time since start to that of a mode.
func (s *State) Spend(m Mode, start time.Time) { s.clock(m, start) }

// Memory is what a layer's twins keep on their device between steps: its column
// table, and within a step what one hands to the next.
type Memory interface {
	// Columns copies the column table to the host.
	Columns() (ColumnBits, error)
	// Shares returns what was counted before the latest Rebuilt: the share of
	// query-key pairs that the column table keeps, and of these the share that the
	// table before did not.
	Shares() (density, churn float64, err error)
	// Drop forgets what a failed step has left.
	Drop()
	// Free releases everything.
	Free() error
}

// Given returns the columns that Give has set, nil if none.
func (s *State) Given() *ColumnBits { return s.given }

// Memory returns what SetMemory was given, nil at first.
func (s *State) Memory() Memory { return s.memory }

// SetMemory gives the state the memory of the layer's twins, which holds a column
// table of the given size, or nil for none. The table is not built yet. The memory
// before must still be able to tell its Shares.
func (s *State) SetMemory(m Memory, bytes int64) {
	s.count()
	s.uncounted = false
	s.memory, s.built = m, false
	s.stats.Bytes = bytes
}

// Rebuilding says that the column table is about to change, and what the memory has
// counted with it. Until Rebuilt there is no table.
func (s *State) Rebuilding() { s.built, s.uncounted = false, false }

// Rebuilt notes a new column table, whose Shares the memory knows from now on.
// replaced says that there was a built one before.
func (s *State) Rebuilt(replaced bool) {
	s.built = true
	s.stats.Refreshes++
	s.uncounted, s.replaced = true, replaced
}

// Len returns the number of tokens the operator was made for.
func (o *GroupTopK) Len() int { return o.n }

// Table returns the embedding table.
func (o *Embed) Table() *Weight { return &o.table }

// Params returns the projections, and whether a second input is added to them.
func (o *Linear) Params() (parts []Projection, residual bool) { return o.parts, o.residual }

// Weight returns the weight.
func (o *Logits) Weight() *Weight { return &o.weight }

// Weight returns the weight.
func (o *RMSNorm) Weight() []float32 { return o.weight }

// Eps returns what is added to the mean square.
func (o *RMSNorm) Eps() float64 { return float64(o.eps) }

// Params returns what the operator was made with.
func (o *RoPE) Params() (h Heads, theta float64) { return o.heads, o.theta }

// Params returns what the operator was made with.
func (o *SplitHeads) Params() Heads { return o.heads }

// Params returns what the operator was made with.
func (o *SwiGLU) Params() (gate, up Projection) { return o.gate, o.up }
