package op

import (
	"fmt"
	"math"
	"reflect"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Ranks are the processes of a run, each of which runs the same graphs: see the collectives,
// NewAllGather, NewAllReduce and NewReduceScatter. nil is this process alone.
type Ranks = exec.Ranks

type collective struct {
	base
	spec exec.Collective
	dims int
	size int // processes
}

// NewAllGather returns the concatenation along an axis, named by path, of the inputs of all ranks
// in their order: x of dims dimensions -> the same with ranks times the size of the axis. All
// ranks have the same shape. The graph of every rank has the same collectives under the same
// paths; a step that ends early in one rank ends the others' by Ranks.
func NewAllGather(path string, dims, axis int, ranks Ranks) (gorgonia.Op, error) {
	return newCollective("AllGather", exec.Collective{Kind: exec.AllGather, Axis: axis, Ranks: ranks}, path, dims)
}

// NewAllReduce returns the sum, named by path, of the inputs of all ranks: x of dims dimensions ->
// the same. It is added in the order of ranks, and the same in all of them bit by bit. For graphs
// and steps NewAllGather's rules hold.
func NewAllReduce(path string, dims int, ranks Ranks) (gorgonia.Op, error) {
	return newCollective("AllReduce", exec.Collective{Kind: exec.AllReduce, Ranks: ranks}, path, dims)
}

// NewReduceScatter returns this rank's part along an axis, named by path, of the sum of NewAllReduce:
// x of dims dimensions -> the same with the size of the axis divided by the number of ranks, which
// must divide it. For graphs and steps NewAllGather's rules hold.
func NewReduceScatter(path string, dims, axis int, ranks Ranks) (gorgonia.Op, error) {
	return newCollective("ReduceScatter", exec.Collective{Kind: exec.ReduceScatter, Axis: axis, Ranks: ranks}, path, dims)
}

func newCollective(kind string, spec exec.Collective, path string, dims int) (gorgonia.Op, error) {
	if dims < 1 || dims > tensorDims {
		return nil, fmt.Errorf("%s{%s}: %w: %d dimensions, want 1 to %d", kind, path, ErrValue, dims, tensorDims)
	}
	if spec.Axis < 0 || spec.Axis >= dims {
		return nil, fmt.Errorf("%s{%s}: %w: axis %d, want 0 to %d", kind, path, ErrValue, spec.Axis, dims-1)
	}
	size, err := sizeOf(spec.Ranks)
	if err != nil {
		return nil, fmt.Errorf("%s{%s}: %w", kind, path, err)
	}
	// The rank is no parameter: operators of one name are the same in all ranks.
	of := gorgonia.TensorType{Dims: dims, Of: tensor.Float32}
	return &collective{newBase(kind, path, []hm.Type{of}, of, dims, spec.Axis, size), spec, dims, size}, nil
}

// sizeOf returns the number of ranks, or what is wrong with them.
func sizeOf(ranks Ranks) (size int, err error) {
	if ranks == nil {
		return 1, nil
	}
	defer func() { // a nil pointer, for one
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: ranks of type %T panic: %v", ErrValue, ranks, r)
		}
	}()
	if !reflect.ValueOf(ranks).Comparable() {
		return 0, fmt.Errorf("%w: ranks of type %T cannot be compared, want a pointer or another type that can", ErrValue, ranks)
	}
	size = ranks.Size()
	if rank := ranks.Rank(); rank < 0 || rank >= size {
		return 0, fmt.Errorf("%w: rank %d of %d, want a rank from 0 to below their number, which is at least 1", ErrValue, rank, size)
	}
	return size, nil
}

// tensorDims is the most dimensions of a collective's tensors: attention's [B,H,N,D].
const tensorDims = 4

func (o *collective) Spec() any { return o.spec }

func (o *collective) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	return o.shape(s[0])
}

// shape returns the result's shape.
func (o *collective) shape(in tensor.Shape) (tensor.Shape, error) {
	out, axis := in.Clone(), o.spec.Axis
	switch o.spec.Kind {
	case exec.AllGather:
		if most := math.MaxInt / 4 / in.TotalSize(); o.size > most { // bytes of a float32 are 4
			return nil, fmt.Errorf("%s: %w: input %v of %d ranks, want at most %d", o, ErrShape, in, o.size, most)
		}
		out[axis] *= o.size
	case exec.ReduceScatter:
		if in[axis]%o.size != 0 {
			return nil, fmt.Errorf("%s: %w: input %v has size %d in axis %d, which %d ranks do not divide", o, ErrShape, in, in[axis], axis, o.size)
		}
		out[axis] /= o.size
	}
	return out, nil
}

// packs says whether the parts of ranks are not contiguous in a tensor of this shape.
func (o *collective) packs(s tensor.Shape) bool {
	return o.spec.Kind != exec.AllReduce && o.size > 1 && tensor.Shape(s[:o.spec.Axis]).TotalSize() > 1
}

// PlanMemory asks for the result, and for the parts of all ranks if they are not contiguous. A sum
// takes the memory of its input if nothing else reads that.
func (o *collective) PlanMemory(r *exec.Run) error {
	if o.spec.Kind == exec.AllReduce {
		return o.planInPlace(r)
	}
	if err := o.base.PlanMemory(r); err != nil {
		return err
	}
	if whole := o.whole(r.Inputs()[0].Shape(), r.Shape()); o.packs(whole) {
		r.Scratch(4*int64(whole.TotalSize()), exec.Activations)
	}
	return nil
}

// whole is the shape with the parts of all ranks.
func (o *collective) whole(in, out tensor.Shape) tensor.Shape {
	if o.spec.Kind == exec.AllGather {
		return out
	}
	return in
}

func (o *collective) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	s, x := ts[0].Shape(), float32s(ts[0])
	shape, err := o.shape(s)
	if err != nil {
		return nil, err
	}
	out, y, err := o.resultInPlace(shape...)
	if err != nil {
		return nil, err
	}
	if err := o.run(y, x, o.whole(s, shape)); err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	return o.finish(out)
}

// run computes y of x. whole is the shape with the parts of all ranks.
func (o *collective) run(y, x []float32, whole tensor.Shape) error {
	if o.size == 1 {
		copy(y, x)
		return nil
	}
	packed, err := o.packed(whole)
	if err != nil {
		return err
	}
	name := o.String()
	switch o.spec.Kind {
	case exec.AllReduce:
		copy(y, x)
		return o.spec.Ranks.AllReduce(name, y)
	case exec.AllGather:
		if packed == nil {
			return o.spec.Ranks.AllGather(name, y, x)
		}
		if err := o.spec.Ranks.AllGather(name, packed, x); err != nil {
			return err
		}
		o.eachPart(whole, func(at, packedAt, n int) { copy(y[at:at+n], packed[packedAt:]) })
		return nil
	}
	if packed == nil {
		return o.spec.Ranks.ReduceScatter(name, y, x)
	}
	o.eachPart(whole, func(at, packedAt, n int) { copy(packed[packedAt:packedAt+n], x[at:]) })
	return o.spec.Ranks.ReduceScatter(name, y, packed)
}

// packed returns memory for the parts of all ranks, one after the other; nil if they are so in the
// tensor.
func (o *collective) packed(whole tensor.Shape) ([]float32, error) {
	switch {
	case !o.packs(whole):
		return nil, nil
	case o.placement.Plan() != nil:
		return o.takeMemory(exec.KindScratch, whole.TotalSize())
	}
	return make([]float32, whole.TotalSize()), nil
}

// eachPart calls do for the runs of n elements that are contiguous both in a tensor of a shape, from
// at on, and among the parts of ranks, from packedAt on.
func (o *collective) eachPart(whole tensor.Shape, do func(at, packedAt, n int)) {
	axis := o.spec.Axis
	outer := tensor.Shape(whole[:axis]).TotalSize()
	n := tensor.Shape(whole[axis:]).TotalSize() / o.size
	for rank := range o.size {
		for i := range outer {
			do((i*o.size+rank)*n, (rank*outer+i)*n, n)
		}
	}
}

func (o *collective) MergesWith(other gorgonia.Op) bool {
	c, ok := other.(*collective)
	return ok && c.spec.Ranks == o.spec.Ranks
}

var _ exec.Operator = (*collective)(nil)
