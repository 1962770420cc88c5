//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// deviceOp is an operator on the GPU: an operator of package op and its CUDA implementation.
type deviceOp struct {
	exec.Operator
	precision op.Precision // Float32 or BFloat16
	impl      implementation
}

// Unwrap returns the operator of package op.
func (o *deviceOp) Unwrap() exec.Operator { return o.Operator }

// Precision returns what values between GPU operators are rounded to.
func (o *deviceOp) Precision() op.Precision { return o.precision }

// InferShape is that of the operator, with an error for sizes that the GPU operators do not
// support.
func (o *deviceOp) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.Operator.InferShape(ds...)
	if err != nil {
		return nil, err
	}
	in, err := gorgonia.DimSizersToShapes(ds)
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %v", o, op.ErrShape, err)
	}
	if err := o.impl.shape(in); err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	return s, nil
}

// CallsExtern is true if the machine is to allocate the result on the GPU.
func (o *deviceOp) CallsExtern() bool {
	return !o.Placement().PlannedResult() && !o.impl.ownsResult()
}

func (o *deviceOp) WriteHash(h hash.Hash) { o.WriteHashFor("cuda."+o.precision.String(), h) }

func (o *deviceOp) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *deviceOp) String() string { return "cuda." + o.Operator.String() }

// Do is an error: values are on the GPU, and only CUDADo reaches them there.
func (o *deviceOp) Do(...gorgonia.Value) (gorgonia.Value, error) {
	return nil, fmt.Errorf("%v: %w: runs on the tape machine only", o, op.ErrNoMachine)
}

// DiffWRT claims every input, so that SymDiff is called.
func (o *deviceOp) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range wrt {
		wrt[i] = true
	}
	return wrt
}

// SymDiff says that GPU operators have no gradient.
func (o *deviceOp) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("%v: %w", o, op.ErrNoGradient)
}

// DoDiff says that GPU operators have no gradient.
func (o *deviceOp) DoDiff(gorgonia.ExecutionContext, gorgonia.Nodes, *gorgonia.Node) error {
	return fmt.Errorf("%v: %w", o, op.ErrNoGradient)
}

// CUDADo runs the operator on the machine's GPU.
func (o *deviceOp) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (v gorgonia.Value, err error) {
	if err := o.Stopped(); err != nil {
		return nil, err
	}
	m, err := machineOf(extern, dev)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	c := &call{runner: m.runner, o: o, prealloc: prealloc, in: in}
	if o.isPrivate(in) {
		err = m.inContext(func() error { return c.run(&v) })
	} else {
		err = m.afterInputs(func() error { return c.run(&v) })
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	return v, nil
}

// isPrivate reports whether the operator touches no memory of the machine.
func (o *deviceOp) isPrivate(in []gorgonia.Value) bool {
	for i, v := range in {
		if _, ours := v.(*deviceTensor); ours {
			continue
		}
		if !isCopied(o.Placement(), i, v) {
			return false
		}
		if from, _, _ := onHost(o, i, v); from == nil {
			return false
		}
	}
	return !o.CallsExtern()
}

// run runs the call's operator. It runs in the device's context.
func (c *call) run(v *gorgonia.Value) (err error) {
	if number, mode, ok := c.o.BoundTo().Current(); ok {
		pass := c.o.BoundTo().Pass()
		if err := c.beginStep(number, stepKind{c.o.Placement().Plan(), mode, pass.Kind, pass.Select}); err != nil {
			return err
		}
	}
	if err := c.place(); err != nil {
		return err
	}
	if err := c.copyInputs(); err != nil {
		return err
	}
	*v, err = c.o.impl.run(c)
	return errors.Join(err, c.finish(*v))
}

// place finds the memory that is planned for the operator's run.
func (c *call) place() error {
	at := c.o.Placement()
	plan := at.Plan()
	mode := exec.ModeOf(c.o)
	if plan == nil {
		in := make([]any, len(c.in))
		for i, v := range c.in {
			in[i] = v
		}
		alone, transient, err := exec.Alone(c.o, mode, in)
		if err != nil {
			return err
		}
		if err := c.grow(&c.arenas.alone, transient); err != nil {
			return err
		}
		at = alone
	}
	cursor, err := at.Start(mode)
	c.mode, c.source = mode, &planned{c.runner, plan, cursor}
	return err
}

// OnGPU is true: the operator takes memory of the GPU.
func (o *deviceOp) OnGPU() bool { return true }

// PlanMemory requests the memory of one run, by executing it as a plan.
func (o *deviceOp) PlanMemory(r *exec.Run) error {
	c := &call{runner: planner, o: o, mode: r.Mode, source: &planning{run: r}}
	for i := range r.Arity() {
		c.in = append(c.in, planInput(r, i))
	}
	if err := c.copyInputs(); err != nil {
		return err
	}
	v, err := o.impl.run(c)
	if t, ours := v.(*deviceTensor); ours {
		r.Note(t)
	}
	return err
}

// planInput is input i of an operator while its memory is planned.
func planInput(r *exec.Run, i int) gorgonia.Value {
	note, shape, dt := r.Input(i)
	switch v := note.(type) {
	case *deviceTensor:
		return v
	case gorgonia.Value:
		return machineValue{v.Shape(), v.Dtype()}
	}
	return machineValue{shape, dt}
}

var (
	_ exec.DeviceOp     = (*deviceOp)(nil)
	_ gorgonia.ADOp     = (*deviceOp)(nil)
	_ gorgonia.CUDADoer = (*deviceOp)(nil)
)
