//go:build cuda

package cudaop

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/tensor"
)

// bfloat16 is an element type of values on the GPU between operators; tensor has
// none.
type bfloat16 uint16

var bfloat16Dtype = tensor.Dtype{Type: reflect.TypeOf(bfloat16(0))}

// dtype is the element type of an operator's values on the GPU.
func (o *deviceOp) dtype() tensor.Dtype {
	if o.precision == op.Float32 {
		return tensor.Float32
	}
	return bfloat16Dtype
}

// elementType is the number of an element type in the kernels.
func elementType(dt tensor.Dtype) uint64 {
	if dt == tensor.Float32 {
		return 1
	}
	return 0
}

// deviceTensor is a value in the operators' own GPU memory. The machine passes it from one
// operator to the next and does not access its memory.
type deviceTensor struct {
	at   cu.DevicePtr
	sh   tensor.Shape
	dt   tensor.Dtype
	bnhd bool // heads [B,H,N,D] in the layout [B,N,H,D]

	cache *deviceTensor // that the rows were written to; at is where it begins. nil for none
}

func newDeviceTensor(dt tensor.Dtype, shape []int) *deviceTensor {
	return &deviceTensor{sh: slices.Clone(shape), dt: dt}
}

func (t *deviceTensor) Shape() tensor.Shape { return t.sh }
func (t *deviceTensor) Size() int           { return t.sh.TotalSize() }
func (t *deviceTensor) Data() any           { return nil }
func (t *deviceTensor) Dtype() tensor.Dtype { return t.dt }
func (t *deviceTensor) Uintptr() uintptr    { return uintptr(t.at) }
func (t *deviceTensor) MemSize() uintptr    { return uintptr(t.Size()) * t.dt.Size() }

func (t *deviceTensor) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "GPU value %v of %v", t.sh, t.dt) }

// placeholder stands for a result that this step does not have.
func placeholder() *deviceTensor {
	return &deviceTensor{sh: tensor.Shape{1, 1, 1, 1}, dt: bfloat16Dtype}
}

// machineValue is a value of the machine's while memory is planned.
type machineValue struct {
	sh tensor.Shape
	dt tensor.Dtype
}

func (v machineValue) Shape() tensor.Shape { return v.sh }
func (v machineValue) Size() int           { return v.sh.TotalSize() }
func (v machineValue) Data() any           { return nil }
func (v machineValue) Dtype() tensor.Dtype { return v.dt }
func (v machineValue) Uintptr() uintptr    { return 0 }
func (v machineValue) MemSize() uintptr    { return uintptr(v.Size()) * v.dt.Size() }

func (v machineValue) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "value %v of %v", v.sh, v.dt) }
