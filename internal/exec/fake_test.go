package exec

import (
	"fmt"
	"hash"
	"hash/fnv"
	"testing"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fake is a planned operator whose result has its first input's shape. It is comparable by
// address, as the operators of package op are.
type fake struct {
	name   string
	gpu    bool
	inputs int
	plan   func(r *Run) error          // nil: a planned result and nothing else
	ran    func(f *fake)               // called by Do
	mode   func() (m Mode, known bool) // nil: the operator belongs to no step
	layer  *State                      // nil: it belongs to no layer
	at     Placement
}

func (f *fake) Arity() int { return f.inputs }

func (f *fake) Type() hm.Type {
	t := []hm.Type{}
	for range f.inputs + 1 {
		t = append(t, gorgonia.TensorType{Dims: 3, Of: tensor.Float32})
	}
	return hm.NewFnType(t...)
}

func (f *fake) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape).Clone(), nil
}

func (f *fake) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if f.ran != nil {
		f.ran(f)
	}
	return in[0].(*tensor.Dense).Clone().(*tensor.Dense), nil
}

func (f *fake) ReturnsPtr() bool      { return true }
func (f *fake) CallsExtern() bool     { return false }
func (f *fake) OverwritesInput() int  { return -1 }
func (f *fake) WriteHash(h hash.Hash) { fmt.Fprint(h, "fake ", f.name) }
func (f *fake) String() string        { return f.name }

func (f *fake) Hashcode() uint32 {
	h := fnv.New32a()
	f.WriteHash(h)
	return h.Sum32()
}

func (f *fake) OnGPU() bool           { return f.gpu }
func (f *fake) Layer() *State         { return f.layer }
func (f *fake) Placement() *Placement { return &f.at }

func (f *fake) PlanMemory(r *Run) error {
	if f.plan != nil {
		return f.plan(r)
	}
	return resultIfPlanned(r)
}

func (f *fake) StepMode() (Mode, bool) {
	if f.mode == nil {
		return Dense, false
	}
	return f.mode()
}

// resultIfPlanned asks for a float32 result if the plan places it.
func resultIfPlanned(r *Run) error {
	if !r.Planned() {
		return nil
	}
	return r.Result(4 * int64(r.Shape().TotalSize()))
}

// inPlaceIfPossible asks for the memory of the first input that may be overwritten.
func inPlaceIfPossible(r *Run) error {
	for i := range r.Inputs() {
		if r.InPlace(i) {
			return nil
		}
	}
	return resultIfPlanned(r)
}

// builder makes graphs of fakes.
type builder struct {
	t testing.TB
	g *gorgonia.ExprGraph
}

func newBuilder(t testing.TB) *builder { return &builder{t, gorgonia.NewGraph()} }

// input adds a graph input of n numbers.
func (b *builder) input(name string, n int) *gorgonia.Node {
	return gorgonia.NewTensor(b.g, tensor.Float32, 3, gorgonia.WithShape(1, 1, n), gorgonia.WithName(name),
		gorgonia.WithValue(tensor.New(tensor.WithShape(1, 1, n), tensor.WithBacking(make([]float32, n)))))
}

// add adds an operator.
func (b *builder) add(f *fake, in ...*gorgonia.Node) *gorgonia.Node {
	b.t.Helper()
	f.inputs = len(in)
	return b.must(gorgonia.ApplyOp(f, in...))
}

func (b *builder) must(n *gorgonia.Node, err error) *gorgonia.Node {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// plan plans the graph, in the mode Dense unless opts say otherwise.
func (b *builder) plan(opts Options) *Plan {
	b.t.Helper()
	if opts.Modes == nil {
		opts.Modes = []Mode{Dense}
	}
	p, err := New(b.g, opts)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// offset is where slot i of an operator begins in a mode; -1 if it has no place.
func (f *fake) offset(m Mode, i int) int64 {
	at, ok := f.at.slots[m][i].Offset()
	if !ok {
		return -1
	}
	return at
}

// kinds are those of an operator's slots in a mode.
func (f *fake) kinds(m Mode) (kinds []Kind) {
	for _, s := range f.at.slots[m] {
		kinds = append(kinds, s.Kind())
	}
	return kinds
}
