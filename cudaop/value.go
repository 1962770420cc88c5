//go:build cuda

package cudaop

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// bfloat16 is an element type of values on the GPU between operators; tensor has
// none.
type bfloat16 uint16

var bfloat16Dtype = tensor.Dtype{Type: reflect.TypeOf(bfloat16(0))}

// dtype is the element type of an operator's values on the GPU.
func (o *Op) dtype() tensor.Dtype {
	if o.precision == op.Float32 {
		return tensor.Float32
	}
	return bfloat16Dtype
}

// resident is a value in GPU memory of the operators' own. The machine passes it
// from one operator to the next and knows nothing of its memory.
type resident struct {
	at       cu.DevicePtr
	sh       tensor.Shape
	dt       tensor.Dtype
	byTokens bool // heads [B,H,N,D] that lie as [B,N,H,D]
	readers  int  // operators that have yet to read it; at 0 its memory is free
}

func (r *resident) Shape() tensor.Shape { return r.sh }
func (r *resident) Size() int           { return r.sh.TotalSize() }
func (r *resident) Data() any           { return nil }
func (r *resident) Dtype() tensor.Dtype { return r.dt }
func (r *resident) Uintptr() uintptr    { return uintptr(r.at) }
func (r *resident) MemSize() uintptr    { return uintptr(r.Size()) * r.dt.Size() }

func (r *resident) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "GPU value %v of %v", r.sh, r.dt) }

// placeholder stands for a result that this step does not have.
func placeholder() *resident { return &resident{sh: tensor.Shape{1, 1, 1, 1}, dt: bfloat16Dtype} }

// releaseOn makes a workspace's Reset take back values that nobody will read: those
// of a run that failed.
func (d *device) releaseOn(ws *op.Workspace) {
	if slices.Contains(d.workspaces, ws) {
		return
	}
	d.workspaces = append(d.workspaces, ws)
	ws.OnReset(func() {
		for r := range d.live {
			d.memory.put(r.at)
		}
		clear(d.live)
		d.dropChecks()
		d.memory.sort() // so that the next step's commands have the addresses of the last one's
	})
}

// call is one run of an operator.
type call struct {
	*device
	o        *Op
	prealloc gorgonia.Value
	in       []gorgonia.Value
	scratch  []cu.DevicePtr
}

// room returns memory for the time of the call.
func (c *call) room(bytes int64) (cu.DevicePtr, error) {
	p, err := c.memory.get(bytes)
	if err == nil {
		c.scratch = append(c.scratch, p)
	}
	return p, err
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

// as returns the address of an input as float32 or bfloat16: that of a copy if it is
// of the other type, or lies by tokens.
func (c *call) as(dt tensor.Dtype, i int) (cu.DevicePtr, error) {
	in := c.in[i]
	if r, ours := in.(*resident); ours && r.byTokens {
		to, err := c.room(int64(r.Size()) * int64(dt.Size()))
		if err != nil {
			return 0, err
		}
		return to, c.byHeads(r, to, dt)
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
	to, err := c.room(int64(n) * int64(dt.Size()))
	if err != nil {
		return 0, err
	}
	return to, c.convert(name, at, to, n)
}

// byHeads queues the copy of a value that lies by tokens to where it lies as its shape
// says, as elements of a type.
func (c *call) byHeads(r *resident, to cu.DevicePtr, dt tensor.Dtype) error {
	s := r.sh // merging undoes itself with heads for tokens and tokens for heads
	return c.merge(r.at, r.dt, to, dt, s[0], s[2], s[1], s[3])
}

// convert runs one of the kernels that change the type of n elements.
func (c *call) convert(name string, from, to cu.DevicePtr, n int) error {
	k, err := c.kernel("convert", name)
	if err != nil {
		return err
	}
	return k.launchRows(1, n, address(from), address(to), integer(n))
}

// result returns the operator's result and where it goes: to the machine as
// float32, or to the next operators in the operator's own type.
func (c *call) result(shape ...int) (v gorgonia.Value, at cu.DevicePtr, err error) {
	_, readers := c.o.Planned()
	if readers == 0 {
		return c.machineResult(tensor.Float32, shape...)
	}
	r := &resident{sh: slices.Clone(shape), dt: c.o.dtype(), readers: readers}
	if r.at, err = c.memory.get(int64(r.MemSize())); err != nil {
		return nil, 0, err
	}
	return r, r.at, nil
}

// over is the result in the memory of input i, which is as large, if this operator is
// its last reader and it is of the result's type; else nil.
func (c *call) over(i int, shape ...int) *resident {
	_, readers := c.o.Planned()
	over, ours := c.in[i].(*resident)
	for j, other := range c.in {
		ours = ours && (j == i || other != c.in[i]) // which is one reader
	}
	if !ours || readers == 0 || over.readers != 1 || over.dt != c.o.dtype() {
		return nil
	}
	r := &resident{at: over.at, sh: slices.Clone(shape), dt: over.dt, readers: readers}
	over.at = 0 // its memory is the result's now
	return r
}

// resultOver is over for an input of the result's shape, or else result. It returns
// the input's address too, in the result's type.
func (c *call) resultOver(i int, shape ...int) (v gorgonia.Value, at, in cu.DevicePtr, err error) {
	if r := c.over(i, shape...); r != nil {
		return r, r.at, r.at, nil
	}
	if v, at, err = c.result(shape...); err != nil {
		return nil, 0, 0, err
	}
	in, err = c.as(v.Dtype(), i)
	return v, at, in, err
}

// elementType is the number that the kernels know a type of elements by.
func elementType(dt tensor.Dtype) uint64 {
	if dt == tensor.Float32 {
		return 1
	}
	return 0
}

// machineResult returns the room that the machine made for the result.
func (c *call) machineResult(dt tensor.Dtype, shape ...int) (gorgonia.Value, cu.DevicePtr, error) {
	if c.prealloc == nil || c.prealloc.Dtype() != dt || c.prealloc.Size() != tensor.Shape(shape).TotalSize() {
		return nil, 0, fmt.Errorf("%w: the machine gave %v as room for a result %v of %v", op.ErrValue, describe(c.prealloc), shape, dt)
	}
	return c.prealloc, cu.DevicePtr(c.prealloc.Uintptr()), nil
}

func describe(v gorgonia.Value) string {
	if v == nil {
		return "nothing"
	}
	return fmt.Sprintf("a %T %v of %v", v, v.Shape(), v.Dtype())
}

// finish takes back the call's memory, and that of inputs which nobody reads any
// more. What goes to the machine must be there when the call returns: Gorgonia's
// own operators may run in another context.
func (c *call) finish(v gorgonia.Value) error {
	for _, p := range c.scratch {
		c.memory.put(p)
	}
	for i, in := range c.in {
		r, ok := in.(*resident)
		if !ok || slices.Contains(c.in[:i], in) { // a node that is an input twice is one reader
			continue
		}
		if r.readers--; r.readers == 0 {
			delete(c.live, r)
			c.memory.put(r.at)
		}
	}
	if v == nil {
		return nil
	}
	if r, ours := v.(*resident); ours {
		if r.readers > 0 {
			ws, _ := c.o.Planned()
			c.live[r] = struct{}{}
			c.releaseOn(ws)
		}
		return nil
	}
	if err := c.queue.wait(); err != nil {
		return fmt.Errorf("cudaop: %w", err)
	}
	return c.checked()
}
