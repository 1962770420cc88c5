package op

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"reflect"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/mapped"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// hashVersion is part of every hash; raise it when the meaning of an operator's
// parameters changes.
const hashVersion = 1

// identity identifies an operator by its kind, its place in the model and its parameters. It
// does not change after construction, because Gorgonia caches the hash of a node.
type identity struct {
	kind   string
	path   string
	params []any // fixed-size numbers, bools and strings
}

func (id *identity) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "pulsecol/%d/%s/%q", hashVersion, id.kind, id.path)
	for _, p := range id.params {
		switch p := p.(type) {
		case string:
			fmt.Fprintf(h, "/%q", p)
		case int:
			binary.Write(h, binary.LittleEndian, int64(p))
		case float64:
			binary.Write(h, binary.LittleEndian, math.Float64bits(p))
		case bool:
			fmt.Fprintf(h, "/%t", p)
		default:
			// Only the types above are ever stored; see the constructors.
			fmt.Fprintf(h, "/%T=%v", p, p)
		}
	}
}

// WriteHashFor writes the identity of the operator's implementation on a device.
func (id *identity) WriteHashFor(device string, h hash.Hash) {
	fmt.Fprintf(h, "%s/", device)
	id.WriteHash(h)
}

func (id *identity) Hashcode() uint32 {
	h := fnv.New32a()
	id.WriteHash(h)
	return h.Sum32()
}

// String is the kind and the path, the operator's name in errors and prints of graphs.
// Gorgonia distinguishes operators by WriteHash.
func (id *identity) String() string {
	if id.path == "" {
		return id.kind
	}
	return fmt.Sprintf("%s{%s}", id.kind, id.path)
}

// base is embedded by every operator.
type base struct {
	identity
	place
	in     []hm.Type // one per input
	out    hm.Type
	slopes []slope // one per input; nil for an operator without a gradient
}

func newBase(kind, path string, in []hm.Type, out hm.Type, params ...any) base {
	return base{identity: identity{kind, path, params}, in: in, out: out}
}

// Layer is nil: the operator belongs to no attention layer.
func (b *base) Layer() *exec.State { return nil }

func (b *base) Arity() int { return len(b.in) }

func (b *base) Type() hm.Type {
	return hm.NewFnType(append(append([]hm.Type{}, b.in...), b.out)...)
}

// ReturnsPtr is true: results are pointers to tensors.
func (b *base) ReturnsPtr() bool { return true }

// CallsExtern is false. With true the tape machine would allocate a fresh,
// zeroed result for every run; operators here manage their own memory.
func (b *base) CallsExtern() bool { return false }

// OverwritesInput is -1: no operator here works in place.
func (b *base) OverwritesInput() int { return -1 }

// DiffWRT says which inputs have a gradient. It claims every input of an operator without
// one, so that Gorgonia calls SymDiff and gets its error: Gorgonia silently leaves an input
// that is not claimed out of the gradient.
func (b *base) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range wrt {
		wrt[i] = b.slopes == nil || i < len(b.slopes) && b.slopes[i].exists()
	}
	return wrt
}

// SymDiff adds the gradients to the graph, or says that the operator has none.
func (b *base) SymDiff(inputs gorgonia.Nodes, y, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if b.slopes == nil {
		return nil, b.noGradient()
	}
	return b.layerGrads(inputs, y, grad)
}

// DoDiff is SymDiff for a Lisp machine, which calls it for every operator. Without a gradient
// it returns an error if the operator's result has one: the machine would continue without
// gradients of the inputs.
func (b *base) DoDiff(_ gorgonia.ExecutionContext, inputs gorgonia.Nodes, output *gorgonia.Node) error {
	if b.slopes != nil {
		return b.addSlopes(inputs, output)
	}
	grad, err := gradient(output)
	if err != nil {
		return fmt.Errorf("%s: %w", b, err)
	}
	if isZero(grad) {
		return nil
	}
	return b.noGradient()
}

func (b *base) noGradient() error { return fmt.Errorf("%s: %w", &b.identity, ErrNoGradient) }

// Shorthands for the types of inputs and results.
var (
	float1 = gorgonia.TensorType{Dims: 1, Of: tensor.Float32}
	float2 = gorgonia.TensorType{Dims: 2, Of: tensor.Float32}
	float3 = gorgonia.TensorType{Dims: 3, Of: tensor.Float32}
	float4 = gorgonia.TensorType{Dims: 4, Of: tensor.Float32}
	int1   = gorgonia.TensorType{Dims: 1, Of: tensor.Int32}
	int2   = gorgonia.TensorType{Dims: 2, Of: tensor.Int32}
	bits4  = gorgonia.TensorType{Dims: 4, Of: tensor.Uint32}
)

// recovered turns a panic of the calling method into its error. An operator runs on the
// machine's own goroutine, where a panic would end the process.
func recovered(o fmt.Stringer, err *error) {
	r := recover()
	if r == nil {
		return
	}
	if lost := mapped.Fault(r); lost != nil { // weights in a file
		*err = fmt.Errorf("%s: %w", o, lost)
		return
	}
	*err = fmt.Errorf("%s: %w: %v", o, ErrInternal, r)
}

// CheckInputs checks the number of inputs and their types. Gorgonia's own errors about types
// are those of a unification and do not name an input.
func (b *base) CheckInputs(in []*gorgonia.Node) error {
	if len(in) != len(b.in) {
		return fmt.Errorf("%s: %w: got %d inputs, want %d", b, ErrShape, len(in), len(b.in))
	}
	for i, n := range in {
		want := b.in[i].(gorgonia.TensorType)
		if t, ok := n.Type().(gorgonia.TensorType); !ok || t.Of != want.Of {
			return fmt.Errorf("%s: %w: input %d is %s, want %v of %d dimensions", b, ErrShape, i, exec.Describe(n), want.Of, want.Dims)
		}
	}
	return nil
}

// shapes returns the shapes of an operator's inputs after checking their ranks,
// which Gorgonia's type system does not.
func (b *base) shapes(ds []gorgonia.DimSizer) ([]tensor.Shape, error) {
	if len(ds) != len(b.in) {
		return nil, fmt.Errorf("%s: %w: got %d inputs, want %d", b, ErrShape, len(ds), len(b.in))
	}
	ss, err := gorgonia.DimSizersToShapes(ds)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %v", b, ErrShape, err)
	}
	for i, s := range ss {
		want := b.in[i].(gorgonia.TensorType).Dims
		if len(s) != want {
			return nil, fmt.Errorf("%s: %w: input %d has shape %v, want %d dimensions", b, ErrShape, i, s, want)
		}
		for _, d := range s {
			if d <= 0 {
				return nil, fmt.Errorf("%s: %w: input %d has shape %v, every dimension must be positive", b, ErrShape, i, s)
			}
		}
	}
	return ss, nil
}

// start begins a run: it returns the inputs' values.
func (b *base) start(in []gorgonia.Value) ([]*tensor.Dense, error) {
	if err := b.findMemory(); err != nil {
		return nil, fmt.Errorf("%s: %w", b, err)
	}
	return b.values(in)
}

// values returns the inputs as dense tensors after checking everything the
// kernels rely on.
func (b *base) values(in []gorgonia.Value) ([]*tensor.Dense, error) {
	if len(in) != len(b.in) {
		return nil, fmt.Errorf("%s: %w: got %d inputs, want %d", b, ErrValue, len(in), len(b.in))
	}
	ts := b.inputs[:0]
	if b.step == nil { // it may run several times at once
		ts = make([]*tensor.Dense, 0, len(in))
	}
	for i, v := range in {
		t, ok := v.(*tensor.Dense)
		if h, ours := v.(*exec.Held); ours {
			t, ok = h.Dense, true
		}
		if !ok || t == nil {
			return nil, fmt.Errorf("%s: %w: input %d is a %T, want a *tensor.Dense that is not nil", b, ErrValue, i, v)
		}
		want := b.in[i].(gorgonia.TensorType)
		if t.Dtype() != want.Of {
			return nil, fmt.Errorf("%s: %w: input %d has dtype %v, want %v", b, ErrValue, i, t.Dtype(), want.Of)
		}
		if t.Dims() != want.Dims {
			return nil, fmt.Errorf("%s: %w: input %d has shape %v, want %d dimensions", b, ErrValue, i, t.Shape(), want.Dims)
		}
		if t.RequiresIterator() || t.DataOrder().IsColMajor() {
			return nil, fmt.Errorf("%s: %w: input %d of shape %v is a view or column-major, want contiguous rows", b, ErrValue, i, t.Shape())
		}
		ts = append(ts, t)
	}
	return ts, nil
}

// Data would allocate a slice header in each call.
func float32s(t *tensor.Dense) []float32 { return t.Float32s() }
func int32s(t *tensor.Dense) []int32     { return t.Int32s() }
func uint32s(t *tensor.Dense) []uint32   { return t.Uint32s() }

// finish returns out as the operator's result, unless the step was stopped before that
// was complete.
func (b *base) finish(out tensor.Tensor) (gorgonia.Value, error) {
	if err := b.Stopped(); err != nil {
		return nil, err
	}
	return out, nil
}

// Stopped returns an error wrapping ErrStopped if the context of the step is done: results
// computed since are incomplete.
func (b *base) Stopped() error {
	if b.step != nil && b.step.Team().Stopped() {
		return fmt.Errorf("%s: %w", b, ErrStopped)
	}
	return nil
}

// sameShape reports whether two shapes are equal, dimension by dimension.
// tensor.Shape.Eq treats some scalars and vectors as equal.
func sameShape(a, b tensor.Shape) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Apply adds o to the graph of its inputs, as gorgonia.ApplyOp does, with three
// differences: inputs of a wrong type are an ErrShape that says which; a panic of
// Gorgonia becomes an error; and so does a merge with a node of another operator of
// this package that hashes alike but is not equal (another layer's state, another
// weight under the same name).
func Apply(o gorgonia.Op, inputs ...*gorgonia.Node) (n *gorgonia.Node, err error) {
	if o == nil {
		return nil, fmt.Errorf("op: Apply: %w: the operator is nil", ErrValue)
	}
	first := -1 // with a graph; a constant has none until it is used
	for i, in := range inputs {
		switch {
		case in == nil:
			return nil, fmt.Errorf("%s: %w: input %d is nil", o, ErrShape, i)
		case in.Graph() == nil:
		case first < 0:
			first = i
		case in.Graph() != inputs[first].Graph():
			return nil, fmt.Errorf("%s: %w: inputs %d and %d belong to different graphs", o, ErrShape, first, i)
		}
	}
	defer recovered(o, &err)
	if p, ok := o.(exec.Operator); ok {
		if err := p.CheckInputs(inputs); err != nil {
			return nil, err
		}
	}
	if n, err = gorgonia.ApplyOp(o, inputs...); err != nil {
		return nil, err
	}
	// Operators of others may be values that cannot be compared.
	if other := n.Op(); reflect.ValueOf(o).Comparable() && other != o {
		if m, ok := o.(exec.Operator); !ok || !m.MergesWith(exec.Unwrap(other)) {
			return nil, fmt.Errorf("%s: %w with an earlier node of the same name and inputs", o, ErrMerged)
		}
	}
	return n, nil
}

// MergesWith holds for operators that are wholly described by their identity.
func (b *base) MergesWith(gorgonia.Op) bool { return true }
