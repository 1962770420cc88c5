package op

import (
	"fmt"
	"slices"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// slope is the gradient of an operator with respect to one of its inputs. The zero value is
// that of an input without one, as token ids.
type slope struct {
	// compute computes it, unless same is set.
	compute func(*slopeRun) error
	// same says that it is the gradient of the operator's result, as in a sum.
	same bool
	// reads are the inputs whose values it takes.
	reads []int
	// scratch is the number of float32s that a run takes besides its result, given the
	// shape of the result's gradient; nil for none.
	scratch func(dy tensor.Shape) int
}

func (s *slope) exists() bool { return s.same || s.compute != nil }

// slopeRun is one computation of a slope.
type slopeRun struct {
	team    *kernel.Team
	dx      []float32 // the gradient with respect to the input, with any contents
	shape   tensor.Shape
	dy      []float32       // the gradient of the operator's result
	in      []*tensor.Dense // the operator's inputs; nil for those that are not in reads
	scratch []float32
}

// layerGrad is a slope as an operator: the inputs are those that the slope reads, and then
// the gradient of the operator's result. What it computes is shaped as the input.
type layerGrad struct {
	base
	of    exec.Operator
	slope slope
	shape tensor.Shape
	arity int // of the operator
}

// layerGrads adds the gradients of the operator at node y with respect to its inputs.
func (b *base) layerGrads(inputs gorgonia.Nodes, y, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	of, ok := exec.Unwrap(y.Op()).(exec.Operator)
	if !ok {
		return nil, fmt.Errorf("%s: %w: its node has the operator %v", b, ErrGraph, y.Op())
	}
	grads := make(gorgonia.Nodes, len(inputs))
	for i := range b.slopes {
		s := &b.slopes[i]
		if s.same {
			grads[i] = grad
		}
		if s.compute == nil {
			continue
		}
		var in []hm.Type
		var nodes gorgonia.Nodes
		for _, r := range s.reads {
			in, nodes = append(in, b.in[r]), append(nodes, inputs[r])
		}
		shape := inputs[i].Shape().Clone()
		params := append(append([]any{}, b.params...), i)
		for _, size := range shape {
			params = append(params, size)
		}
		o := &layerGrad{
			base: newBase("gradient of "+b.kind, b.path, append(in, b.out), b.in[i], params...),
			of:   of, slope: *s, shape: shape, arity: len(inputs),
		}
		n, err := Apply(o, append(nodes, grad)...)
		if err != nil {
			return nil, err
		}
		grads[i] = n
	}
	return grads, nil
}

// Spec is nil: there is no implementation on a device.
func (o *layerGrad) Spec() any { return nil }

func (o *layerGrad) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	if _, err := o.shapes(ds); err != nil {
		return nil, err
	}
	return o.shape.Clone(), nil
}

func (o *layerGrad) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	dy := ts[len(ts)-1]
	run := slopeRun{team: o.team(), shape: o.shape, dy: float32s(dy), in: make([]*tensor.Dense, o.arity)}
	for i, r := range o.slope.reads {
		run.in[r] = ts[i]
	}
	var out tensor.Tensor
	if out, run.dx, err = o.result(o.shape...); err != nil {
		return nil, err
	}
	if run.scratch, err = o.scratch(dy.Shape()); err != nil {
		return nil, err
	}
	if err := o.slope.compute(&run); err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	return o.finish(out)
}

// scratch returns the memory of a run besides its result.
func (o *layerGrad) scratch(dy tensor.Shape) ([]float32, error) {
	switch {
	case o.slope.scratch == nil:
		return nil, nil
	case o.placement.Plan() == nil:
		return make([]float32, o.slope.scratch(dy)), nil
	}
	return o.takeMemory(exec.KindScratch, o.slope.scratch(dy))
}

// PlanMemory asks for the result's memory and the scratch.
func (o *layerGrad) PlanMemory(r *exec.Run) error {
	if err := o.place.PlanMemory(r); err != nil || o.slope.scratch == nil {
		return err
	}
	in := r.Inputs()
	r.Scratch(4*int64(o.slope.scratch(in[len(in)-1].Shape())), exec.Activations)
	return nil
}

func (o *layerGrad) MergesWith(other gorgonia.Op) bool {
	g, ok := other.(*layerGrad)
	return ok && o.of.MergesWith(g.of)
}

// addSlopes is DoDiff of an operator with slopes: it adds the contribution of its result's
// gradient to the gradients of its inputs.
func (b *base) addSlopes(inputs gorgonia.Nodes, output *gorgonia.Node) (err error) {
	defer recovered(b, &err)
	grad, err := gradient(output)
	if err != nil {
		return fmt.Errorf("%s: %w", b, err)
	}
	if isZero(grad) {
		return nil
	}
	if grad.RequiresIterator() {
		grad = grad.Materialize().(*tensor.Dense)
	}
	ts, err := b.inputValues(inputs)
	if err != nil {
		return err
	}
	dy := float32s(grad)
	if len(dy) != output.Shape().TotalSize() {
		return fmt.Errorf("%s: %w: the gradient of its output has shape %v, want %v", b, ErrValue, grad.Shape(), output.Shape())
	}
	for i := range b.slopes {
		s := &b.slopes[i]
		if !s.exists() {
			continue
		}
		add := dy
		if s.compute != nil {
			run := slopeRun{team: b.team(), dx: make([]float32, len(float32s(ts[i]))), shape: ts[i].Shape(), dy: dy, in: ts}
			if s.scratch != nil {
				run.scratch = make([]float32, s.scratch(output.Shape()))
			}
			if err := s.compute(&run); err != nil {
				return fmt.Errorf("%s: %w", b, err)
			}
			add = run.dx
		}
		if err := b.addTo(inputs, i, add); err != nil {
			return err
		}
	}
	return nil
}

// inputValues returns the values of an operator's inputs in the backward pass of a Lisp
// machine.
func (b *base) inputValues(inputs gorgonia.Nodes) ([]*tensor.Dense, error) {
	values := make([]gorgonia.Value, len(inputs))
	for i, n := range inputs {
		// Only operators of the graph are counted as readers.
		if o, ok := n.Op().(exec.Operator); ok && o.Placement().PlannedResult() && !o.Placement().KeptResult() {
			return nil, fmt.Errorf("%s: %w: a Workspace has reused the memory of input %d, %v, before the backward pass; plan the graph for a tape machine only", b, ErrGraph, i, n)
		}
		values[i] = n.Value()
	}
	ts, err := b.values(values)
	return slices.Clone(ts), err
}

// addTo adds to the gradient of input i under a Lisp machine.
func (b *base) addTo(inputs gorgonia.Nodes, i int, grad []float32) error {
	if err := b.Stopped(); err != nil {
		return err
	}
	sum, err := gradient(inputs[i])
	if err != nil {
		return fmt.Errorf("%s: %w", b, err)
	}
	total := float32s(sum)
	if len(total) != len(grad) || sum.RequiresIterator() {
		return fmt.Errorf("%s: %w: the gradient of input %d has shape %v, want contiguous rows of %v", b, ErrValue, i, sum.Shape(), inputs[i].Shape())
	}
	for j, x := range grad {
		total[j] += x
	}
	return nil
}

var _ exec.Operator = (*layerGrad)(nil)
