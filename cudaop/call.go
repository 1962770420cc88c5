//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/memplan"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// call is one run of an operator, or the planning of a run, which requests its memory and
// queues nothing. The same code does both, so that a plan has exactly the memory of a run.
type call struct {
	*runner
	o         *deviceOp // nil for work outside of operators
	prealloc  gorgonia.Value
	in        []gorgonia.Value
	mode      exec.Mode
	source    source
	copies    [maxInputs]cu.DevicePtr // of inputs of the graph; 0 where the machine's own is read
	workspace cu.DevicePtr            // of cuBLASLt; 0: a product takes its own
}

// maxInputs is the number of inputs of ColumnSparseAttn: q, k, v, columns, rows and padding
// mask. An embedding may have more, whose values it does not read.
const maxInputs = 6

// source provides a call's memory.
type source interface {
	// take returns memory of a kind. key identifies memory that is kept or handed off.
	take(kind exec.Kind, key any, bytes int64, c exec.Class) (cu.DevicePtr, error)
}

// planning requests memory from a plan. Its addresses are distinct and must not be read.
type planning struct{ run *exec.Run }

// lastPlanned is the latest of the addresses that stand for planned memory.
var lastPlanned atomic.Uint64

func (p *planning) take(kind exec.Kind, key any, bytes int64, c exec.Class) (at cu.DevicePtr, err error) {
	switch kind {
	case exec.KindScratch:
		p.run.Scratch(bytes, c)
	case exec.KindSpare:
		p.run.Spare(bytes)
	case exec.KindKept:
		err = p.run.Keep(key, bytes, c)
	case exec.KindLayer:
		p.run.OfLayer(key, bytes)
	case exec.KindHandoff:
		err = p.run.Handoff(key, bytes, c)
	case exec.KindAfter:
		err = p.run.After(key, bytes)
	case exec.KindResult:
		err = p.run.ResultOf(c, bytes)
	}
	return plannedAddress(), err
}

func plannedAddress() cu.DevicePtr { return cu.DevicePtr(lastPlanned.Add(memplan.Alignment)) }

// planned returns the planned memory.
type planned struct {
	runner *runner
	plan   *exec.Plan // nil if the operator was planned alone
	cursor exec.Cursor
}

func (p *planned) take(kind exec.Kind, _ any, bytes int64, _ exec.Class) (cu.DevicePtr, error) {
	s, err := p.cursor.Next(kind, bytes)
	if err != nil {
		return 0, err
	}
	return p.runner.locate(p.plan, s)
}

// borrowed takes memory from the driver until the call is done.
type borrowed struct {
	runner *runner
	taken  []cu.DevicePtr
}

func (b *borrowed) take(_ exec.Kind, _ any, bytes int64, _ exec.Class) (cu.DevicePtr, error) {
	at, err := b.runner.heap.get(bytes)
	if err == nil {
		b.taken = append(b.taken, at)
	}
	return at, err
}

// outside runs f as a call that belongs to no operator. It runs in the device's context.
func (d *runner) outside(f func(c *call) error) error {
	from := &borrowed{runner: d}
	err := errors.Join(f(&call{runner: d, source: from}), d.queue.wait())
	for _, at := range from.taken {
		err = errors.Join(err, d.heap.release(at))
	}
	return err
}

// isPlan reports whether the call plans memory and runs nothing.
func (c *call) isPlan() bool { _, ok := c.source.(*planning); return ok }

// scratch returns memory for the time of the call.
func (c *call) scratch(bytes int64) (cu.DevicePtr, error) {
	return c.source.take(exec.KindScratch, nil, bytes, exec.Activations)
}

// ofLayer returns memory that an attention layer keeps from step to step, the same for all
// graphs of its controller: at least bytes.
func (c *call) ofLayer(key any, bytes int64) (cu.DevicePtr, error) {
	return c.source.take(exec.KindLayer, key, bytes, exec.Cache)
}

// keep returns memory that stays from step to step, the same for every call with the key.
func (c *call) keep(key any, bytes int64, class exec.Class) (cu.DevicePtr, error) {
	return c.source.take(exec.KindKept, key, bytes, class)
}

// handOff returns memory that stays until another operator adopts or drops the key.
func (c *call) handOff(key any, bytes int64, class exec.Class) (cu.DevicePtr, error) {
	return c.source.take(exec.KindHandoff, key, bytes, class)
}

// drop ends the use of memory that was handed off.
func (c *call) drop(key any) {
	if p, ok := c.source.(*planning); ok {
		p.run.Drop(key)
	}
}

// adopt makes memory that was handed off the operator's result, if the result is planned;
// otherwise it is drop.
func (c *call) adopt(key any) {
	if p, ok := c.source.(*planning); ok {
		p.run.Adopt(key)
	}
}

// begin starts a part of a layer's attention and returns the step's mode.
func (c *call) begin(s *exec.State, part exec.Part) (exec.Mode, error) {
	if c.isPlan() {
		return c.mode, nil
	}
	return s.Begin(c.o, part)
}

// addTime adds the time since start to that of a layer's steps of a mode.
func (c *call) addTime(s *exec.State, m exec.Mode, start time.Time) {
	if !c.isPlan() {
		s.AddTime(m, start)
	}
}

// at returns the address of an input that must have the given element type.
func (c *call) at(i int, dt tensor.Dtype) (cu.DevicePtr, error) {
	if got := c.in[i].Dtype(); got != dt {
		return 0, fmt.Errorf("%w: input %d has dtype %v, want %v", op.ErrValue, i, got, dt)
	}
	return c.as(dt, i)
}

// operand returns the address of an input in the operator's own type.
func (c *call) operand(i int) (cu.DevicePtr, error) { return c.as(c.o.dtype(), i) }

// as returns the address of an input as float32 or bfloat16: that of a copy if it is of the
// other type, or in the layout BNHD.
func (c *call) as(dt tensor.Dtype, i int) (cu.DevicePtr, error) {
	in := c.in[i]
	if t, ours := in.(*deviceTensor); ours && t.bnhd {
		to, err := c.scratch(int64(t.Size()) * int64(dt.Size()))
		if err != nil {
			return 0, err
		}
		return to, c.toBHND(t, to, dt)
	}
	if in.Dtype() == dt {
		return c.input(i), nil
	}
	from, name := tensor.Float32, "f32_to_bf16"
	if dt == tensor.Float32 {
		from, name = bfloat16Dtype, "bf16_to_f32"
	}
	at, err := c.at(i, from)
	if err != nil {
		return 0, err
	}
	n := in.Shape().TotalSize()
	to, err := c.scratch(int64(n) * int64(dt.Size()))
	if err != nil {
		return 0, err
	}
	return to, c.convert(name, at, to, n)
}

// toBHND queues the conversion of a value in the layout BNHD to the layout of its shape, BHND,
// with elements of a type.
func (c *call) toBHND(t *deviceTensor, to cu.DevicePtr, dt tensor.Dtype) error {
	s := t.sh // merging undoes itself with heads for tokens and tokens for heads
	return c.merge(t.at, t.dt, to, dt, s[0], s[2], s[1], s[3])
}

// convert runs one of the kernels that change the type of n elements.
func (c *call) convert(name string, from, to cu.DevicePtr, n int) error {
	k, err := c.kernel("convert", name)
	if err != nil {
		return err
	}
	return k.launchRows(1, n, address(from), address(to), integer(n))
}

// result returns the operator's result and its address: memory of the machine as float32, or
// memory of the operators in the operator's own type.
func (c *call) result(shape ...int) (v gorgonia.Value, at cu.DevicePtr, err error) {
	if !c.o.Placement().PlannedResult() {
		return c.machineResult(tensor.Float32, shape...)
	}
	t := newDeviceTensor(c.o.dtype(), shape)
	if t.at, err = c.source.take(exec.KindResult, nil, int64(t.MemSize()), exec.Activations); err != nil {
		return nil, 0, err
	}
	return t, t.at, nil
}

// inPlace is the result in the memory of input i, which is as large, where the plan allows
// it; else nil.
func (c *call) inPlace(i int, shape ...int) (*deviceTensor, error) {
	in, ours := c.in[i].(*deviceTensor)
	if !ours || in.dt != c.o.dtype() {
		return nil, nil
	}
	t := newDeviceTensor(in.dt, shape)
	switch from := c.source.(type) {
	case *planning:
		if !from.run.InPlace(i) {
			return nil, nil
		}
		t.at = in.at
	case *planned:
		if !from.cursor.Is(exec.KindInPlace) {
			return nil, nil
		}
		var err error
		if t.at, err = from.take(exec.KindInPlace, nil, int64(t.MemSize()), exec.Activations); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// sumResult is result for an operator that adds input i, of the result's shape: in place
// where that is possible. It returns the input's address too, in the result's type.
func (c *call) sumResult(i int, shape ...int) (v gorgonia.Value, at, in cu.DevicePtr, err error) {
	t, err := c.inPlace(i, shape...)
	if t != nil || err != nil {
		if err != nil {
			return nil, 0, 0, err
		}
		return t, t.at, t.at, nil
	}
	if v, at, err = c.result(shape...); err != nil {
		return nil, 0, 0, err
	}
	in, err = c.as(v.Dtype(), i)
	return v, at, in, err
}

// machineResult returns the memory that the machine has for the result.
func (c *call) machineResult(dt tensor.Dtype, shape ...int) (gorgonia.Value, cu.DevicePtr, error) {
	if c.isPlan() {
		return machineValue{shape, dt}, plannedAddress(), nil
	}
	if c.prealloc == nil || c.prealloc.Dtype() != dt || c.prealloc.Size() != tensor.Shape(shape).TotalSize() {
		return nil, 0, fmt.Errorf("%w: the machine gave %v for a result %v of %v", op.ErrValue, describe(c.prealloc), shape, dt)
	}
	return c.prealloc, cu.DevicePtr(c.prealloc.Uintptr()), nil
}

func describe(v gorgonia.Value) string {
	if v == nil {
		return "nothing"
	}
	return fmt.Sprintf("a %T %v of %v", v, v.Shape(), v.Dtype())
}

// finish ends a run whose result is v. It waits for a result in the machine's memory, because
// Gorgonia's own operators may run in another context.
func (c *call) finish(v gorgonia.Value) error {
	if v == nil {
		return nil
	}
	if _, ours := v.(*deviceTensor); ours {
		return nil
	}
	if err := c.queue.wait(); err != nil {
		return fmt.Errorf("cudaop: %w", err)
	}
	return c.checked()
}
