package exec

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/memplan"
	"gorgonia.org/gorgonia"
)

// Kind is the use of a slot.
type Kind uint8

const (
	KindResult  Kind = iota // the result
	KindInPlace             // the result, in an input's memory
	KindScratch             // until the end of the operator's run
	KindSpare               // likewise, if the arena has idle memory
	KindKept                // from step to step
	KindLayer               // from step to step, the same in all graphs of a controller
	KindHandoff             // for another operator of the step
	KindAfter               // after the last operator of the step
)

func (k Kind) String() string {
	return [...]string{"result", "in-place result", "scratch", "spare", "kept", "a layer's", "handoff", "after the step"}[k]
}

// Slot is a piece of memory that a plan has placed.
type Slot struct {
	kind   Kind
	buffer *memplan.Buffer
	key    any // of a persistent slot
	kept   *persistent
}

// Kind returns the use of the slot.
func (s Slot) Kind() Kind { return s.kind }

// Bytes is the requested size.
func (s Slot) Bytes() int64 {
	if s.kept != nil {
		return s.kept.bytes
	}
	return s.buffer.Bytes()
}

// Persistent reports whether the slot is in the persistent part of its arena.
func (s Slot) Persistent() bool { return s.kept != nil }

// OfLayer reports whether the slot is no part of an arena, but memory of a layer, by its key.
func (s Slot) OfLayer() bool { return s.kind == KindLayer }

// Key is that of a persistent slot.
func (s Slot) Key() any { return s.key }

// Offset is where the slot begins in its part of the arena. ok is false for spare memory
// that the arena does not have.
func (s Slot) Offset() (offset int64, ok bool) {
	if s.kept != nil {
		return s.kept.offset, true
	}
	return s.buffer.Offset()
}

// Placement has the memory of an operator. The zero value is that of an operator without a
// plan.
type Placement struct {
	plan   *Plan
	node   *gorgonia.Node
	index  int // among the plan's operators
	slots  [modes][]Slot
	modes  [modes]bool // that are planned
	inputs gorgonia.Nodes
	result bool // is planned
	kept   bool // and has one place for all runs
	reader Planned
}

// Plan returns the plan that the operator belongs to, nil for none.
func (p *Placement) Plan() *Plan { return p.plan }

// Node returns the node that the operator is planned for.
func (p *Placement) Node() *gorgonia.Node { return p.node }

// Reader returns the operator that reads the result, nil if that is none, or several, or not
// of the plan.
func (p *Placement) Reader() Planned { return p.reader }

// PlannedResult reports whether the operator's result is placed by the plan.
func (p *Placement) PlannedResult() bool { return p.result }

// KeptResult reports whether the operator's result has one place for all runs.
func (p *Placement) KeptResult() bool { return p.kept }

// GraphInput returns input i if it is an input of the graph, and nil if it is computed
// or there is no plan.
func (p *Placement) GraphInput(i int) *gorgonia.Node {
	if i >= len(p.inputs) {
		return nil
	}
	return p.inputs[i]
}

// Start begins a run in a mode. The operators of a plan run in its order, each once; a run
// that starts over begins with the first.
func (p *Placement) Start(mode Mode) (Cursor, error) {
	if p.plan != nil {
		if p.index != 0 && p.index != p.plan.ran {
			return Cursor{}, fmt.Errorf("%w: operator %d of the graph runs where %d was planned", ErrPlan, p.index, p.plan.ran)
		}
		p.plan.ran = p.index + 1
	}
	if !p.modes[mode] {
		return Cursor{}, fmt.Errorf("%w: no memory for a %v step", ErrPlan, mode)
	}
	return Cursor{p.slots[mode]}, nil
}

// Cursor returns the slots of an operator in the order in which PlanMemory asked for them.
type Cursor struct{ slots []Slot }

// Next returns the next slot, which must be of a kind and large enough.
func (c *Cursor) Next(kind Kind, bytes int64) (Slot, error) {
	if len(c.slots) == 0 {
		return Slot{}, fmt.Errorf("%w: %d bytes of %v are not in it", ErrPlan, bytes, kind)
	}
	s := c.slots[0]
	if s.kind != kind || s.Bytes() < bytes {
		return Slot{}, fmt.Errorf("%w: %d bytes of %v, planned are %d of %v", ErrPlan, bytes, kind, s.Bytes(), s.kind)
	}
	c.slots = c.slots[1:]
	return s, nil
}

// Is reports whether the next slot is of a kind.
func (c *Cursor) Is(kind Kind) bool { return len(c.slots) > 0 && c.slots[0].kind == kind }
