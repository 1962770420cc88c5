package exec

import (
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/memplan"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// step is the plan of one mode while it is made.
type step struct {
	*walk
	lines    [2]*memplan.Timeline // host, GPU
	values   map[*gorgonia.Node]*value
	handoffs map[any]*memplan.Buffer
	after    []func() // what follows the last operator
}

// value is a planned result that has readers left.
type value struct {
	buffer  *memplan.Buffer // nil for memory of a layer
	readers int
	note    any // of the operator that computes it
}

// Run is one run of an operator while its memory is planned.
type Run struct {
	Mode Mode // of the operator's layer

	inStep Mode // of the step

	step   *step // nil outside a graph
	node   *gorgonia.Node
	inputs gorgonia.Nodes
	given  []any // outside a graph, the values of inputs
	line   *memplan.Timeline
	arena  *Arena
	placed *Placement
	slots  []Slot
	note   any

	scratch []*memplan.Buffer
}

// Shape returns the shape of the operator's result.
func (r *Run) Shape() tensor.Shape { return r.node.Shape() }

// Inputs returns the operator's input nodes.
func (r *Run) Inputs() gorgonia.Nodes { return r.inputs }

// Arity is the number of the operator's inputs.
func (r *Run) Arity() int {
	if r.step == nil {
		return len(r.given)
	}
	return len(r.inputs)
}

// Input returns the Note of the operator that computes input i, if its result is planned, or
// the value that Alone was given. Without either, note is nil, and input i has the shape and
// type of its node.
func (r *Run) Input(i int) (note any, shape tensor.Shape, dt tensor.Dtype) {
	if r.step == nil {
		return r.given[i], nil, tensor.Dtype{}
	}
	n := r.inputs[i]
	if v := r.step.values[n]; v != nil {
		note = v.note
	}
	return note, n.Shape(), n.Dtype()
}

// Note sets information about the result that its readers use when they are planned.
func (r *Run) Note(note any) { r.note = note }

// Planned reports whether the plan places the operator's result. If not, the machine
// allocates it.
func (r *Run) Planned() bool { return r.placed.result }

func (r *Run) add(kind Kind, b *memplan.Buffer) {
	r.slots = append(r.slots, Slot{kind: kind, buffer: b})
}

// Result requests the memory of the operator's result, which must be Planned, until its last
// reader has run.
func (r *Run) Result(bytes int64) error { return r.ResultOf(Activations, bytes) }

// ResultOf is Result for memory of a class.
func (r *Run) ResultOf(c Class, bytes int64) error {
	if r.placed.kept {
		return r.keep(KindResult, r.node, bytes, c)
	}
	b := r.line.Alloc(bytes)
	r.count(c, bytes)
	r.setResult(b)
	r.add(KindResult, b)
	return nil
}

func (r *Run) setResult(b *memplan.Buffer) {
	r.step.values[r.node] = &value{buffer: b, readers: r.step.readers[r.node]}
}

// InPlace gives the result the memory of input i, which has the result's size. It returns
// false if that is not possible: the result or the input is not planned, or a later operator
// reads the input.
func (r *Run) InPlace(i int) bool {
	in := r.inputs[i]
	v := r.step.values[in]
	if !r.placed.result || r.placed.kept || v == nil || v.buffer == nil || v.readers != 1 {
		return false
	}
	for j, other := range r.inputs {
		if j != i && other == in {
			return false
		}
	}
	delete(r.step.values, in)
	r.setResult(v.buffer)
	r.add(KindInPlace, v.buffer)
	return true
}

// Scratch requests memory until the end of the operator's run.
func (r *Run) Scratch(bytes int64, c Class) {
	b := r.line.Alloc(bytes)
	r.scratch = append(r.scratch, b)
	r.add(KindScratch, b)
	r.count(c, bytes)
}

// count notes a transient buffer in the sums of its class.
func (r *Run) count(c Class, bytes int64) {
	switch c {
	case Scores:
		r.arena.scores = max(r.arena.scores, memplan.Round(bytes))
	case Columns:
		r.arena.transientColumns = max(r.arena.transientColumns, memplan.Round(bytes))
	}
}

// Spare requests memory until the end of the operator's run, if the arena has idle memory.
func (r *Run) Spare(bytes int64) { r.add(KindSpare, r.line.Spare(bytes)) }

// Keep requests memory that persists from step to step: one buffer for a key, shared by all
// operators and modes that request it.
func (r *Run) Keep(key any, bytes int64, c Class) error { return r.keep(KindKept, key, bytes, c) }

// OfLayer requests memory of an attention layer that persists from step to step: one buffer
// for a key, at least this large, shared by all graphs of the layer's controller.
func (r *Run) OfLayer(key any, bytes int64) {
	slot := Slot{kind: KindLayer, key: key, kept: &persistent{bytes: bytes}}
	if r.step != nil {
		r.step.plan.layers.add(r.arena, key, bytes)
	}
	r.slots = append(r.slots, slot)
}

// ResultOfLayer says that the result is memory of OfLayer.
func (r *Run) ResultOfLayer() {
	if r.step != nil {
		r.setResult(nil)
	}
}

func (r *Run) keep(kind Kind, key any, bytes int64, c Class) error {
	slot := Slot{kind: kind, key: key, kept: &persistent{bytes: bytes}}
	if r.step != nil {
		var err error
		if slot.kept, err = r.step.plan.keep(r.arena, key, bytes, c); err != nil {
			return err
		}
	}
	r.slots = append(r.slots, slot)
	return nil
}

// Handoff requests memory for another operator of the same step, until that operator calls
// Adopt or Drop with the key.
func (r *Run) Handoff(key any, bytes int64, c Class) error {
	if r.step == nil { // the other operator is planned alone, too
		return r.keep(KindHandoff, key, bytes, c)
	}
	if r.step.handoffs[key] != nil {
		return fmt.Errorf("two buffers for %v", key)
	}
	b := r.line.Alloc(bytes)
	r.step.handoffs[key] = b
	r.add(KindHandoff, b)
	r.count(c, bytes)
	return nil
}

// Adopt makes what was handed off under a key the operator's result, if that is Planned;
// otherwise it is Drop.
func (r *Run) Adopt(key any) {
	if r.step == nil {
		return
	}
	if b := r.step.handoffs[key]; b != nil && r.placed.result && !r.placed.kept {
		delete(r.step.handoffs, key)
		r.setResult(b)
		return
	}
	r.Drop(key)
}

// Drop ends the use of what was handed off under a key.
func (r *Run) Drop(key any) {
	if r.step == nil {
		return
	}
	if b := r.step.handoffs[key]; b != nil {
		r.line.Free(b)
		delete(r.step.handoffs, key)
	}
}

// After requests memory for the time after the last operator of the step.
func (r *Run) After(key any, bytes int64) error {
	if r.step == nil {
		return r.keep(KindAfter, key, bytes, Activations)
	}
	i := len(r.slots)
	r.add(KindAfter, nil)
	r.step.after = append(r.step.after, func() { r.placed.slots[r.inStep][i].buffer = r.line.Alloc(bytes) })
	return nil
}

// finish ends the use of scratch and of inputs that have no other reader.
func (r *Run) finish() {
	for _, b := range r.scratch {
		r.line.Free(b)
	}
	if r.step == nil {
		return
	}
	if v := r.step.values[r.node]; v != nil {
		v.note = r.note
	}
	for i, in := range r.inputs {
		v := r.step.values[in]
		if v == nil || slices.Contains(r.inputs[:i], in) { // a node that is an input twice is one reader
			continue
		}
		if v.readers--; v.readers == 0 {
			if v.buffer != nil {
				r.line.Free(v.buffer)
			}
			delete(r.step.values, in)
		}
	}
}

// Alone plans a run of an operator without a graph's plan, on the given values. Its result is
// not planned. It returns the size of the transient memory. Memory that is kept or handed off
// is found by its key.
func Alone(o Planned, mode Mode, inputs []any) (at *Placement, transient int64, err error) {
	line := &memplan.Timeline{}
	r := &Run{Mode: modeOfLayer(o, mode), inStep: mode, given: inputs, line: line, arena: new(Arena), placed: new(Placement)}
	if err := o.PlanMemory(r); err != nil {
		return nil, 0, fmt.Errorf("%v: %w: %w", o, ErrPlan, err)
	}
	r.finish()
	r.placed.slots[mode], r.placed.modes[mode] = r.slots, true
	return r.placed, line.Place(), nil
}
