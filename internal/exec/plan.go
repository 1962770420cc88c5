package exec

import (
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/memplan"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Planned is an operator whose memory is planned with its graph.
type Planned interface {
	gorgonia.Op
	// OnGPU reports whether the operator takes memory of the GPU, and not of the host.
	OnGPU() bool
	// PlanMemory requests the memory of one run from r, in the order in which the run takes
	// it.
	PlanMemory(r *Run) error
	// Placement holds the slots that the plan has for the operator.
	Placement() *Placement
	// StepMode returns the mode of the step in progress. known is false for an operator
	// that belongs to no step.
	StepMode() (m Mode, known bool)
}

// Class is the use of memory, by which a Plan sums it.
type Class uint8

const (
	Activations Class = iota // values between operators, scratch
	Scores                   // attention scores of a refresh
	Columns                  // column tables
	Cache                    // keys and values of layers, and the columns of a block
)

// Arena is the memory that a graph takes on one device. The persistent part keeps its
// contents from step to step and belongs to the graph; the transient part holds
// anything between two steps and may be shared with other graphs. Layers is memory of
// attention layers outside of the arena, which all graphs of a controller share.
type Arena struct {
	Persistent int64 // bytes
	Transient  int64 // bytes, of the mode with the largest arena
	Layers     int64 // bytes

	columns, scores, transientColumns, cache int64
}

// Bytes is the size of all parts.
func (a Arena) Bytes() int64 { return a.Persistent + a.Transient + a.Layers }

// Of returns the part of the arena that a class takes. Transient buffers share memory:
// the largest of scores and of column tables count as theirs, and the rest as activations.
func (a Arena) Of(c Class) int64 {
	columns := a.columns + a.transientColumns
	switch c {
	case Scores:
		return a.scores
	case Columns:
		return columns
	case Cache:
		return a.cache
	}
	return a.Bytes() - a.scores - columns - a.cache
}

// Plan is the memory of a graph's operators: offsets in one arena for each device, for
// every mode of a step.
type Plan struct {
	Host, GPU Arena

	persistent map[any]*persistent
	layers     layerMemory
	clock      Planned // an operator that belongs to a step; nil if none does
	ops        int
	ran        int // operators of the run in progress that have started
}

// persistent is a buffer of the persistent part.
type persistent struct {
	bytes, offset int64
}

// Options are the parameters of New.
type Options struct {
	Modes []Mode // of the steps that the graph runs

	// Keep are nodes whose results have one place for all runs on the host, and are
	// the machine's on a GPU.
	Keep []*gorgonia.Node

	// MachineResults says that the machine allocates all results.
	MachineResults bool
}

// New plans the memory of g's operators. The order is that of Gorgonia's tape machine. A
// result is planned if operators of the same device read it and nothing else does.
func New(g *gorgonia.ExprGraph, opts Options) (*Plan, error) {
	if g == nil {
		return nil, fmt.Errorf("%w: the graph is nil", ErrValue)
	}
	for _, mode := range opts.Modes {
		if mode > Reuse {
			return nil, fmt.Errorf("%w: %v, want %v, %v or %v", ErrValue, mode, Dense, Refresh, Reuse)
		}
	}
	order, err := gorgonia.Sort(g)
	if err != nil {
		return nil, fmt.Errorf("order of the graph: %w", err)
	}
	slices.Reverse(order) // Sort lists results before what they are made of
	p := &Plan{persistent: map[any]*persistent{}, layers: layerMemory{}}
	w := &walk{plan: p, graph: g, readers: map[*gorgonia.Node]int{}, last: map[*gorgonia.Node]Planned{}, kept: map[*gorgonia.Node]bool{}}
	for i, n := range opts.Keep {
		if !slices.Contains(order, n) {
			return nil, fmt.Errorf("%w: node %d to keep is %s, want one of the graph", ErrValue, i, Describe(n))
		}
		w.kept[n] = true
	}
	w.collect(order, opts.MachineResults)
	for _, mode := range opts.Modes {
		if err := w.mode(mode); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// walk visits a graph in the order of its machine.
type walk struct {
	plan    *Plan
	graph   *gorgonia.ExprGraph
	nodes   gorgonia.Nodes             // of planned operators, in order
	readers map[*gorgonia.Node]int     // of planned results
	last    map[*gorgonia.Node]Planned // the reader of a result that has one
	kept    map[*gorgonia.Node]bool
}

// collect finds the operators that are planned, and how many read each result.
func (w *walk) collect(order gorgonia.Nodes, machineResults bool) {
	places := map[Planned]int{}
	for _, n := range order {
		if o, ok := n.Op().(Planned); ok {
			places[o]++
		}
	}
	single := func(n *gorgonia.Node) (Planned, bool) {
		o, ok := n.Op().(Planned)
		return o, ok && places[o] == 1 // an operator at several nodes is not planned
	}
	for _, n := range order {
		o, ok := single(n)
		if !ok {
			continue
		}
		w.nodes = append(w.nodes, n)
		if _, known := o.StepMode(); known {
			w.plan.clock = o
		}
		readers, ours := 0, n.Dtype() == tensor.Float32 && !machineResults
		for it := w.graph.To(n.ID()); it.Next(); readers++ {
			reader, ok := single(it.Node().(*gorgonia.Node))
			ours = ours && ok && reader.OnGPU() == o.OnGPU()
			w.last[n] = reader
		}
		if readers > 1 {
			delete(w.last, n)
		}
		if ours && readers > 0 && !w.kept[n] {
			w.readers[n] = readers
		}
	}
	w.plan.ops = len(w.nodes)
	for i, n := range w.nodes {
		o := n.Op().(Planned)
		at := o.Placement()
		kept := w.kept[n] && !o.OnGPU()
		*at = Placement{plan: w.plan, node: n, index: i, result: w.readers[n] > 0 || kept, kept: kept, reader: w.last[n]}
		for _, in := range inputsOf(w.graph, n) {
			if in.Op() != nil {
				in = nil
			}
			at.inputs = append(at.inputs, in)
		}
	}
}

func inputsOf(g *gorgonia.ExprGraph, n *gorgonia.Node) (in gorgonia.Nodes) {
	for it := g.From(n.ID()); it.Next(); {
		in = append(in, it.Node().(*gorgonia.Node))
	}
	return in
}

// mode plans the steps of one mode.
func (w *walk) mode(mode Mode) error {
	s := &step{walk: w, lines: [2]*memplan.Timeline{{}, {}}, values: map[*gorgonia.Node]*value{}, handoffs: map[any]*memplan.Buffer{}}
	for _, n := range w.nodes {
		o := n.Op().(Planned)
		r := &Run{Mode: modeOfLayer(o, mode), inStep: mode, step: s, node: n, line: s.lines[device(o)], arena: w.plan.arena(o), inputs: inputsOf(w.graph, n), placed: o.Placement()}
		if err := o.PlanMemory(r); err != nil {
			return fmt.Errorf("%v: %w: %w", o, ErrPlan, err)
		}
		r.finish()
		r.placed.slots[mode], r.placed.modes[mode] = r.slots, true
		for _, line := range s.lines {
			line.Tick()
		}
	}
	for _, after := range s.after {
		after()
	}
	w.plan.Host.Transient = max(w.plan.Host.Transient, s.lines[0].Place())
	w.plan.GPU.Transient = max(w.plan.GPU.Transient, s.lines[1].Place())
	return nil
}

// modeOfLayer is the mode of an operator's layer in a step of a mode.
func modeOfLayer(o Planned, step Mode) Mode {
	if l, ok := o.(interface{ Layer() *State }); ok {
		return l.Layer().ModeIn(step)
	}
	return step
}

func device(o Planned) int {
	if o.OnGPU() {
		return 1
	}
	return 0
}

func (p *Plan) arena(o Planned) *Arena {
	if o.OnGPU() {
		return &p.GPU
	}
	return &p.Host
}

// Mode returns the mode of the step that the graph's attention layers are in, Dense without
// any.
func (p *Plan) Mode() Mode {
	if p.clock == nil {
		return Dense
	}
	m, _ := p.clock.StepMode()
	return m
}

// keep returns the persistent buffer of a key, new if there is none.
func (p *Plan) keep(a *Arena, key any, bytes int64, c Class) (*persistent, error) {
	if have := p.persistent[key]; have != nil {
		if have.bytes != bytes {
			return nil, fmt.Errorf("%d bytes for %v, before %d", bytes, key, have.bytes)
		}
		return have, nil
	}
	made := &persistent{bytes: bytes, offset: a.Persistent}
	p.persistent[key] = made
	a.Persistent += memplan.Round(bytes)
	if c == Columns {
		a.columns += memplan.Round(bytes)
	}
	return made, nil
}

// layerMemory is the size of layers' buffers, by their keys.
type layerMemory map[any]int64

// add makes the buffer of a key at least as large as given.
func (l layerMemory) add(a *Arena, key any, bytes int64) {
	more := memplan.Round(bytes)
	if have, ok := l[key]; ok {
		more -= memplan.Round(have)
	}
	if more <= 0 {
		return
	}
	l[key] = bytes
	a.Layers += more
	a.cache += more
}

// OfLayers returns the sizes of the buffers of attention layers that the graph uses, by their
// keys.
func (p *Plan) OfLayers() map[any]int64 { return p.layers }

// Shared is the memory on the GPU of graphs of one controller, which share the transient part
// and the memory of layers.
func Shared(plans []*Plan) (a Arena) {
	layers := layerMemory{}
	for _, p := range plans {
		g := &p.GPU
		a.Persistent += g.Persistent
		a.Transient = max(a.Transient, g.Transient)
		a.scores = max(a.scores, g.scores)
		a.transientColumns = max(a.transientColumns, g.transientColumns)
		a.columns += g.columns
		for key, bytes := range p.layers {
			layers.add(&a, key, bytes)
		}
	}
	return a
}
