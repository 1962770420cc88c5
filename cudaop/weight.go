//go:build cuda

package cudaop

import (
	"fmt"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/tensor"
)

// matrixKey is a weight, by where it lies on the host, and its element type on the
// GPU.
type matrixKey struct {
	data *byte
	dt   tensor.Dtype
}

// matrix returns a weight on the GPU, as float32 or bfloat16. It is copied there once
// for all operators and steps of the machine.
func (d *device) matrix(w *op.Weight, dt tensor.Dtype) (cu.DevicePtr, error) {
	key := matrixKey{&w.Data[0], dt}
	if at, ok := d.matrices[key]; ok {
		return at, nil
	}
	data := w.Data
	switch {
	case dt == tensor.Float32 && w.DType != op.F32:
		wide := make([]float32, w.Rows*w.Cols)
		for i := range w.Rows {
			w.Row(wide[i*w.Cols:(i+1)*w.Cols], i)
		}
		data = unsafe.Slice((*byte)(unsafe.Pointer(&wide[0])), 4*len(wide))
	case dt == bfloat16Dtype && w.DType != op.BF16:
		data = make([]byte, 2*w.Rows*w.Cols)
		row := make([]float32, w.Cols)
		for i := range w.Rows {
			w.Row(row, i)
			bf16.Encode(data[2*i*w.Cols:2*(i+1)*w.Cols], row)
		}
	}
	at, err := d.upload(unsafe.Pointer(&data[0]), len(data))
	if err != nil {
		return 0, err
	}
	d.matrices[key] = at
	return at, nil
}

// vector returns a weight of one dimension on the GPU, as it is.
func (d *device) vector(w []float32) (cu.DevicePtr, error) {
	if at, ok := d.vectors[&w[0]]; ok {
		return at, nil
	}
	at, err := d.upload(unsafe.Pointer(&w[0]), 4*len(w))
	if err != nil {
		return 0, err
	}
	d.vectors[&w[0]] = at
	return at, nil
}

func (d *device) upload(from unsafe.Pointer, bytes int) (cu.DevicePtr, error) {
	at, err := d.memory.get(int64(bytes))
	if err != nil {
		return 0, err
	}
	if err := cu.MemcpyHtoD(at, from, int64(bytes)); err != nil {
		d.memory.put(at)
		return 0, fmt.Errorf("cudaop: copy of %d bytes of weights: %w", bytes, err)
	}
	return at, nil
}
