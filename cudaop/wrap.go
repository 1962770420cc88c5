//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"

	_ "github.com/pulsecol/pulsecol/cudaop/compat" // so that vendoring keeps the headers that cudaenv points to
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Compiled reports whether this program contains the CUDA operators.
const Compiled = true

// minCapability is that of the first GPUs with bf16: Ampere.
const minCapability = 80

// Available returns nil if operators can run on the first GPU, the one that
// Gorgonia uses, and otherwise an error that wraps ErrUnavailable and says why not.
// Without a working driver a program with the cuda tag does not get this far:
// gorgonia.org/cu ends it at its start, with a message.
func Available() error {
	n, err := cu.NumDevices()
	if err == nil && n == 0 {
		return fmt.Errorf("%w: the driver finds no GPU", ErrUnavailable)
	}
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	dev, err := cu.GetDevice(0)
	if err != nil {
		return fmt.Errorf("%w: GPU 0: %v", ErrUnavailable, err)
	}
	major, minor, err := dev.ComputeCapability()
	if err != nil {
		return fmt.Errorf("%w: GPU 0: %v", ErrUnavailable, err)
	}
	if 10*major+minor < minCapability {
		return fmt.Errorf("%w: GPU 0 has compute capability %d.%d, want at least %d.%d", ErrUnavailable, major, minor, minCapability/10, minCapability%10)
	}
	return nil
}

// Supports returns an error if GPU operators cannot do attention with a head
// dimension.
func Supports(headDim int) error { return checkHeadDim(headDim) }

// Wrap returns the GPU twin of an operator of package op. The twin takes the same
// inputs and gives the same results, to the precision p: with Float32 it rounds
// nothing but sums, with BFloat16, which AutoPrecision stands for, it computes from
// values rounded to that, and sums in float32. Between twins that a Workspace has
// planned, values stay on the GPU in that form.
//
// The error says what the GPU operators cannot do: Int16, and without a State padding
// masks and other selections than single columns.
func Wrap(o gorgonia.Op, p op.Precision) (gorgonia.Op, error) {
	var r runner
	var err error
	switch p {
	case op.AutoPrecision:
		p = op.BFloat16
	case op.Float32, op.BFloat16:
	default:
		return nil, fmt.Errorf("cudaop: %v: %w: precision %v runs on the CPU only", o, op.ErrValue, p)
	}
	switch o := o.(type) {
	case *op.ScoreCollect:
		r, err = &scoreCollect{o.Params()}, checkParams(o.Params())
	case *op.GroupTopK:
		r, err = &groupTopK{o, o.Params(), o.Len()}, checkParams(o.Params())
	case *op.ColumnSparseAttn:
		r, err = &columnSparseAttn{o.Params()}, checkParams(o.Params())
	case *op.DenseAttn:
		r = &denseAttn{o.Params()}
	case *op.Embed:
		r = &embedding{only(o.Table())}
	case *op.Linear:
		parts, residual := o.Params()
		r = &linear{parts, residual}
	case *op.TakeRows:
		r = takeRows{}
	case *op.Logits:
		r = &logits{weight: o.Weight()}
	case *op.RMSNorm:
		r = &rmsNorm{o.Weight(), o.Eps()}
	case *op.RoPE:
		r = newRotation(o.Params())
	case *op.SplitHeads:
		r = &takeHeads{heads: o.Params()}
	case *op.MergeHeads:
		r = mergeHeads{}
	case *op.SwiGLU:
		gate, up := o.Params()
		r = &swiGLU{[]op.Projection{gate, up}}
	case *op.Add:
		r = add{}
	default:
		return nil, fmt.Errorf("cudaop: %v, a %T, has no GPU twin", o, o)
	}
	if err != nil {
		return nil, fmt.Errorf("cudaop: %v: %w", o, err)
	}
	return &Op{Operator: o.(op.Operator), precision: p, runner: r}, nil
}

// Op is the GPU twin of an operator.
type Op struct {
	op.Operator
	precision op.Precision // Float32 or BFloat16
	runner    runner
}

// runner does an operator's work.
type runner interface {
	// shape checks what the operator's own InferShape lets pass and the GPU
	// operators cannot do.
	shape(in []tensor.Shape) error
	// ownsResult says that the result never belongs to the machine.
	ownsResult() bool
	// run queues the work, or asks for its memory. It runs in the device's context.
	run(c *call) (gorgonia.Value, error)
}

// Twin returns the operator that o stands for.
func (o *Op) Twin() op.Operator { return o.Operator }

// Precision returns what values are rounded to between o and other twins.
func (o *Op) Precision() op.Precision { return o.precision }

// InferShape is that of the operator, and an error for sizes the GPU operators
// cannot do.
func (o *Op) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.Operator.InferShape(ds...)
	if err != nil {
		return nil, err
	}
	in, err := gorgonia.DimSizersToShapes(ds)
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %v", o, op.ErrShape, err)
	}
	if err := o.runner.shape(in); err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	return s, nil
}

// CallsExtern is true if the machine is to make room for the result on the GPU.
func (o *Op) CallsExtern() bool {
	return !o.Placement().PlannedResult() && !o.runner.ownsResult()
}

func (o *Op) WriteHash(h hash.Hash) { o.WriteHashFor("cuda."+o.precision.String(), h) }

func (o *Op) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

func (o *Op) String() string { return "cuda." + o.Operator.String() }

// Do is an error: values are on the GPU, and only CUDADo reaches them there.
func (o *Op) Do(...gorgonia.Value) (gorgonia.Value, error) {
	return nil, fmt.Errorf("%v: %w: runs on the tape machine only", o, op.ErrNoMachine)
}

// DiffWRT claims every input, so that SymDiff is asked.
func (o *Op) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range wrt {
		wrt[i] = true
	}
	return wrt
}

// SymDiff says that GPU operators have no gradient.
func (o *Op) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("%v: %w", o, op.ErrNoGradient)
}

// DoDiff says that GPU operators have no gradient.
func (o *Op) DoDiff(gorgonia.ExecutionContext, gorgonia.Nodes, *gorgonia.Node) error {
	return fmt.Errorf("%v: %w", o, op.ErrNoGradient)
}

// CUDADo runs the operator on the machine's GPU.
func (o *Op) CUDADo(extern gorgonia.External, dev gorgonia.Device, prealloc gorgonia.Value, in ...gorgonia.Value) (v gorgonia.Value, err error) {
	if err := o.Stopped(); err != nil {
		return nil, err
	}
	d, err := deviceOf(extern, dev)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	c := &call{device: d, o: o, prealloc: prealloc, in: in}
	if o.isPrivate(d, in) {
		err = d.inContext(func() error { return c.run(false, &v) })
	} else {
		err = d.runOnEngine(func() error { return c.run(true, &v) })
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", o, err)
	}
	return v, nil
}

// isPrivate reports whether the operator touches no memory of the machine.
func (o *Op) isPrivate(d *device, in []gorgonia.Value) bool {
	for i, v := range in {
		if _, ours := v.(*deviceTensor); !ours && !(isCopied(o.Placement(), i, v) && d.hasCopy(o, i)) {
			return false
		}
	}
	return !o.CallsExtern()
}

// run runs the call's operator. queueCopies says that the machine's inputs may be read. It
// runs in the device's context.
func (c *call) run(queueCopies bool, v *gorgonia.Value) (err error) {
	if number, mode, stepping := c.o.StepInProgress(); stepping {
		if err := c.beginStep(number, mode); err != nil {
			return err
		}
	}
	if err := c.place(); err != nil {
		return err
	}
	if err := c.copyInputs(queueCopies); err != nil {
		return err
	}
	*v, err = c.o.runner.run(c)
	return errors.Join(err, c.finish(*v))
}

// place finds the memory that the operator's run was planned to take.
func (c *call) place() error {
	at := c.o.Placement()
	plan := at.Plan()
	mode, known := c.o.StepMode()
	if !known && plan != nil {
		mode = plan.Mode()
	}
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
	c.mode, c.source = mode, &planned{c.device, plan, cursor}
	return err
}

// beginStep begins a step if it is not the one in progress.
func (d *device) beginStep(number uint64, m op.Mode) error {
	if number == d.step {
		return nil
	}
	d.step = number
	d.checks = d.checks[:0] // of a step that has failed
	return d.queue.restart(m)
}

// OnGPU is true: the operator takes memory of the GPU.
func (o *Op) OnGPU() bool { return true }

// PlanMemory asks for the memory of one run, by going through it.
func (o *Op) PlanMemory(r *exec.Run) error {
	c := &call{device: planner, o: o, mode: r.Mode, source: &planning{run: r}}
	for i := range r.Arity() {
		c.in = append(c.in, planInput(r, i))
	}
	if err := c.copyInputs(false); err != nil {
		return err
	}
	v, err := o.runner.run(c)
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
	_ gorgonia.SDOp     = (*Op)(nil)
	_ gorgonia.ADOp     = (*Op)(nil)
	_ gorgonia.CUDADoer = (*Op)(nil)
)
