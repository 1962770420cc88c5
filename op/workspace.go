package op

import (
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Workspace is the memory of a graph's intermediate values. Gorgonia keeps every
// value of a run alive; a Workspace hands out a buffer when an operator runs and
// takes it back when the last operator that reads it has run, so that the peak
// is what one block of a model needs and not all of them.
//
// A Workspace serves one machine at a time and is not safe for concurrent use.
type Workspace struct {
	all   []*buffer
	free  map[int][]*buffer    // by length; the same lengths recur in every block
	owner map[*float32]*buffer // by first element
	bytes int64                // ever allocated and still held

	onReset []func()
}

// buffer is memory and, because making a tensor allocates, the tensors that have
// been made of it.
type buffer struct {
	data    []float32
	readers int     // operators that have yet to read it; 0 if it is free
	tensors []*held // of different shapes
}

// held is a tensor that is the value of a node in more than one run, or of more than
// one node. Gorgonia's UnbindAllNonInputs clears every *tensor.Dense that is the value
// of a node and returns it from a later tensor.New. It leaves values of other types alone.
type held struct{ *tensor.Dense }

// NewWorkspace returns an empty workspace.
func NewWorkspace() *Workspace {
	return &Workspace{free: map[int][]*buffer{}, owner: map[*float32]*buffer{}}
}

// Bytes is the memory held, in use or not. It only grows, until Free.
func (w *Workspace) Bytes() int64 { return w.bytes }

// Free drops all memory. Values of earlier runs stay valid for who holds them.
func (w *Workspace) Free() {
	w.all, w.bytes = nil, 0
	clear(w.free)
	clear(w.owner)
}

// Reset takes back every buffer: the run that used them is over or has failed.
// A Machine calls it before each step.
func (w *Workspace) Reset() {
	for _, f := range w.onReset {
		f()
	}
	for _, b := range w.all {
		if b.readers > 0 {
			w.giveBack(b)
		}
	}
}

func (w *Workspace) giveBack(b *buffer) {
	b.readers = 0
	w.free[len(b.data)] = append(w.free[len(b.data)], b)
}

// get returns a buffer of n elements, with any contents, that readers operators
// will release.
func (w *Workspace) get(n, readers int) *buffer {
	var b *buffer
	if have := w.free[n]; len(have) > 0 {
		b = have[len(have)-1]
		w.free[n] = have[:len(have)-1]
	} else {
		b = &buffer{data: make([]float32, n)}
		w.all = append(w.all, b)
		w.owner[&b.data[0]] = b
		w.bytes += 4 * int64(n)
	}
	b.readers = readers
	return b
}

// tensor returns the buffer as a tensor.
func (b *buffer) tensor(shape []int) *held {
	for _, t := range b.tensors {
		if sameShape(t.Shape(), shape) && !t.RequiresIterator() {
			return t
		}
	}
	t := &held{wrap(b.data, slices.Clone(shape)...)}
	b.tensors = append(b.tensors, t)
	return t
}

// release says that one reader of a buffer is done. Memory of others is ignored.
func (w *Workspace) release(data []float32) {
	if len(data) == 0 {
		return
	}
	b := w.owner[&data[0]]
	if b == nil || b.readers == 0 {
		return
	}
	if b.readers--; b.readers == 0 {
		w.giveBack(b)
	}
}

// Plan makes the operators of g that belong to this package take their results
// from the workspace. It counts the readers of every node, so it comes after the
// graph is complete and before its first run. A result keeps memory of its own
// if anything but an operator of this package reads it (Gorgonia's own operators
// may keep or overwrite it), or if its operator stands at several nodes. The
// result of a node in keep has one buffer for all runs: it may be read directly,
// without a copy, until the next run.
func (w *Workspace) Plan(g *gorgonia.ExprGraph, keep ...*gorgonia.Node) {
	places := map[planned]int{} // operators of others may have no hash
	for _, n := range g.AllNodes() {
		if p, ok := n.Op().(planned); ok {
			places[p]++
		}
	}
	kept := map[*gorgonia.Node]bool{}
	for _, n := range keep {
		kept[n] = true
	}
	for _, n := range g.AllNodes() {
		p, ok := n.Op().(planned)
		if !ok || places[p] > 1 {
			continue
		}
		readers, ours := 0, n.Dtype() == tensor.Float32
		for it := g.To(n.ID()); it.Next(); readers++ {
			reader, ok := it.Node().(*gorgonia.Node).Op().(planned)
			if !ok || places[reader] > 1 || IsTwin(reader) != IsTwin(p) {
				ours = false
			}
		}
		switch {
		case kept[n]:
			readers = keepForever
		case !ours:
			readers = 0
		}
		p.setPlan(w, readers, n)
	}
}

// Rehearse returns the bytes of workspace that a run of a planned graph takes,
// by going through the plan on sizes alone in the order of the tape machine.
// refresh says whether the steps include refreshes, which need room for scores.
func Rehearse(g *gorgonia.ExprGraph, refresh bool) (int64, error) {
	order, err := gorgonia.Sort(g)
	if err != nil {
		return 0, fmt.Errorf("op: order of the graph: %w", err)
	}
	attends := map[*State]*gorgonia.Node{}
	for _, n := range order {
		if o, ok := Unwrap(n.Op()).(*ColumnSparseAttn); ok && o.state != nil {
			attends[o.state] = n
		}
	}
	free, readers := map[int]int{}, map[*gorgonia.Node]int{}
	var total int64
	take := func(n *gorgonia.Node) {
		size, r := n.Shape().TotalSize(), n.Op().(planned).planReaders()
		switch {
		case r == keepForever:
			total += 4 * int64(size)
		case r > 0:
			if free[size] > 0 {
				free[size]--
			} else {
				total += 4 * int64(size)
			}
			readers[n] = r
		}
	}
	// takeOver is take for an operator that calls resultOver.
	takeOver := func(n *gorgonia.Node) {
		if r := n.Op().(planned).planReaders(); r > 0 {
			for it := g.From(n.ID()); it.Next(); {
				if child := it.Node().(*gorgonia.Node); readers[child] == 1 {
					delete(readers, child)
					readers[n] = r
					return
				}
			}
		}
		take(n)
	}
	// Sort lists results before what they are made of; machines run it backwards.
	for _, n := range slices.Backward(order) {
		if _, ok := n.Op().(planned); !ok {
			continue
		}
		// In a refresh ScoreCollect makes the attention's output together with the
		// scores; otherwise it makes neither.
		switch o := Unwrap(n.Op()).(type) {
		case *ScoreCollect:
			if attend := attends[o.state]; attend == nil {
				take(n)
			} else if refresh {
				take(attend)
				take(n)
			}
		case *ColumnSparseAttn:
			if o.state == nil || !refresh {
				take(n)
			}
		case *Add:
			takeOver(n)
		default:
			take(n)
		}
		for it := g.From(n.ID()); it.Next(); {
			child := it.Node().(*gorgonia.Node)
			if readers[child] > 0 {
				if readers[child]--; readers[child] == 0 {
					free[child.Shape().TotalSize()]++
				}
			}
		}
	}
	return total, nil
}

// keepForever marks a node whose result has one buffer for all runs.
const keepForever = -1

// planned is an operator of this package, as a Workspace sees it.
type planned interface {
	gorgonia.SDOp
	setPlan(w *Workspace, readers int, n *gorgonia.Node)
	planReaders() int
	bind(s *Step, leaves []*gorgonia.Node)
	boundTo() *Step
	layer() *State
	checkInputs(in []*gorgonia.Node) error
}

// plan is where an operator's result comes from and who computes it; with the zero
// plan that is fresh memory and whoever is free.
type plan struct {
	ws      *Workspace
	readers int            // 0: fresh memory each time; keepForever: the same each time
	node    *gorgonia.Node // that has the result
	own     []float32      // with keepForever: the memory, and the latest tensor made of it
	last    *tensor.Dense

	step   *Step
	leaves []*gorgonia.Node         // those of the inputs that nobody computes, nil for others; under a step
	inputs [maxInputs]*tensor.Dense // of the run in progress, under a step
}

// maxInputs is the number of inputs of attention's gradient: q, k, v, columns,
// padding mask and the gradient of the output.
const maxInputs = 6

func (p *plan) setPlan(w *Workspace, readers int, n *gorgonia.Node) {
	p.ws, p.readers, p.node = w, readers, n
}

func (p *plan) planReaders() int { return p.readers }

func (p *plan) bind(s *Step, leaves []*gorgonia.Node) { p.step, p.leaves = s, leaves }
func (p *plan) boundTo() *Step                        { return p.step }

// team computes the operator.
func (p *plan) team() *kernel.Team {
	if p.step != nil {
		return &p.step.team
	}
	return new(kernel.Team)
}

// result returns a tensor for the operator's result, with any contents.
func (p *plan) result(shape ...int) (tensor.Tensor, []float32) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	switch {
	case p.ws != nil && p.readers > 0:
		b := p.ws.get(n, p.readers)
		return b.tensor(shape), b.data
	case p.readers == keepForever:
		return p.kept(n, shape), p.own
	}
	data := make([]float32, n)
	return wrap(data, slices.Clone(shape)...), data
}

// kept returns a tensor of the memory that the operator has for all runs. Its callers
// may expect a *tensor.Dense, which is not used again after it was unbound: see held.
func (p *plan) kept(n int, shape []int) *tensor.Dense {
	if len(p.own) != n {
		p.own, p.last = make([]float32, n), nil
	}
	if p.last == nil || p.node.Value() != gorgonia.Value(p.last) || !sameShape(p.last.Shape(), shape) {
		p.last = wrap(p.own, slices.Clone(shape)...)
	}
	return p.last
}

// resultOver is result for an operator that may write over its inputs, which have
// the result's shape: it takes the memory of the first that nobody else has yet to
// read. See Rehearse.
func (p *plan) resultOver(in []*tensor.Dense) (tensor.Tensor, []float32) {
	shape := in[0].Shape()
	if p.ws != nil && p.readers > 0 {
		for _, t := range in {
			if b := p.ws.owner[&float32s(t)[0]]; b != nil && b.readers == 1 {
				b.readers += p.readers // beside the reader that is about to be done
				return b.tensor(shape), b.data
			}
		}
	}
	return p.result(shape...)
}

// done says that the operator has read its inputs for the last time in this run.
func (p *plan) done(in []*tensor.Dense) {
	if p.ws == nil {
		return
	}
	for i, t := range in {
		// A node that is an input twice is one reader.
		if t.Dtype() == tensor.Float32 && !slices.Contains(in[:i], t) {
			p.ws.release(float32s(t))
		}
	}
}

// wrap makes a tensor around data without copying it.
func wrap(data []float32, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}
