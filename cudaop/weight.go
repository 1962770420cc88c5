//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/cu"
	"gorgonia.org/tensor"
)

// uploaded are the weights of projections on the GPU, one after the other, or their
// biases.
type uploaded struct {
	of []kernel.Projection
	dt tensor.Dtype
	at cu.DevicePtr
}

// uploads are indexed by the host address of the first weight.
type uploads map[*byte][]uploaded

func (u uploads) find(p []kernel.Projection, dt tensor.Dtype) (at cu.DevicePtr, ok bool) {
	for _, have := range u[&p[0].Weight.Data[0]] {
		if have.dt == dt && slices.EqualFunc(have.of, p, sameProjection) {
			return have.at, true
		}
	}
	return 0, false
}

func (u uploads) add(p []kernel.Projection, dt tensor.Dtype, at cu.DevicePtr) {
	u[&p[0].Weight.Data[0]] = append(u[&p[0].Weight.Data[0]], uploaded{p, dt, at})
}

// sameProjection reports whether two projections have the same memory on the host.
func sameProjection(a, b kernel.Projection) bool {
	v, w := &a.Weight, &b.Weight
	return &v.Data[0] == &w.Data[0] && v.Rows == w.Rows && v.Cols == w.Cols && v.DType == w.DType &&
		len(a.Bias) == len(b.Bias) && (len(a.Bias) == 0 || &a.Bias[0] == &b.Bias[0])
}

// keep removes the uploads that others lack, and returns where they are.
func (u uploads) keep(others uploads) (gone []cu.DevicePtr) {
	for first, list := range u {
		u[first] = slices.DeleteFunc(list, func(have uploaded) bool {
			_, ok := others.find(have.of, have.dt)
			if !ok {
				gone = append(gone, have.at)
			}
			return !ok
		})
		if len(u[first]) == 0 {
			delete(u, first)
		}
	}
	return gone
}

// single is the projection of one weight without a bias.
func single(w kernel.Matrix) []kernel.Projection { return []kernel.Projection{{Weight: w}} }

// outputs is the number of outputs of all projections.
func outputs(p []kernel.Projection) (n int) {
	for i := range p {
		n += p[i].Weight.Rows
	}
	return n
}

// biased reports whether one of the projections has a bias.
func biased(p []kernel.Projection) bool {
	return slices.ContainsFunc(p, func(p kernel.Projection) bool { return p.Bias != nil })
}

// matrix returns the weights of projections of the same inputs on the GPU, one after
// the other, as float32 or bfloat16. They are copied there once for all operators
// and machines.
func (d *runner) matrix(p []kernel.Projection, dt tensor.Dtype) (cu.DevicePtr, error) {
	if at, ok := d.matrices.find(p, dt); ok || d.isPlanner() {
		return at, nil
	}
	row := int64(p[0].Weight.Cols) * int64(dt.Size())
	at, err := d.heap.get(int64(outputs(p)) * row)
	if err != nil {
		return 0, err
	}
	to := at
	for i := range p {
		w := &p[i].Weight
		data, err := encoded(w, dt)
		if err == nil {
			err = d.upload(to, unsafe.Pointer(&data[0]), len(data))
		}
		if err != nil {
			return 0, errors.Join(err, d.heap.release(at))
		}
		to += cu.DevicePtr(int64(w.Rows) * row)
	}
	d.matrices.add(p, dt, at)
	return at, nil
}

// encoded returns a weight as float32 or bfloat16, which it may be already.
func encoded(w *kernel.Matrix, dt tensor.Dtype) ([]byte, error) {
	encode := bf16.Encode
	switch {
	case dt == tensor.Float32 && w.DType != kernel.F32:
		encode = func(dst []byte, row []float32) {
			copy(dst, unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 4*len(row)))
		}
	case dt == bfloat16Dtype && w.DType != kernel.BF16:
	default:
		return w.Data, nil
	}
	size := w.Cols * int(dt.Size())
	data := make([]byte, w.Rows*size)
	err := inParts(w.Rows, runtime.GOMAXPROCS(0), func(from, to int) {
		row := make([]float32, w.Cols)
		for i := from; i < to; i++ {
			w.Row(row, i)
			encode(data[i*size:(i+1)*size], row)
		}
	})
	return data, err
}

// bias returns the biases of projections on the GPU, one after the other with zeros
// where there is none; 0 if there is none at all.
func (d *runner) bias(p []kernel.Projection, dt tensor.Dtype) (cu.DevicePtr, error) {
	if !biased(p) {
		return 0, nil
	}
	if at, ok := d.biases.find(p, dt); ok || d.isPlanner() {
		return at, nil
	}
	all := make([]float32, 0, outputs(p))
	for i := range p {
		all = append(all, p[i].Bias...)
		all = append(all, make([]float32, p[i].Weight.Rows-len(p[i].Bias))...)
	}
	data := unsafe.Slice((*byte)(unsafe.Pointer(&all[0])), 4*len(all))
	if dt == bfloat16Dtype {
		data = make([]byte, 2*len(all))
		bf16.Encode(data, all)
	}
	at, err := d.heap.get(int64(len(data)))
	if err != nil {
		return 0, err
	}
	if err := d.upload(at, unsafe.Pointer(&data[0]), len(data)); err != nil {
		return 0, errors.Join(err, d.heap.release(at))
	}
	d.biases.add(p, dt, at)
	return at, nil
}

// bytesOf returns numbers as their bytes.
func bytesOf[E float32 | float64](x []E) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

// vector returns bytes of the host on the GPU, where they are copied once.
func (d *runner) vector(x []byte) (cu.DevicePtr, error) {
	if at, ok := d.vectors[&x[0]]; ok || d.isPlanner() {
		return at, nil
	}
	at, err := d.heap.get(int64(len(x)))
	if err != nil {
		return 0, err
	}
	if err := d.upload(at, unsafe.Pointer(&x[0]), len(x)); err != nil {
		return 0, errors.Join(err, d.heap.release(at))
	}
	d.vectors[&x[0]] = at
	return at, nil
}

func (d *runner) upload(to cu.DevicePtr, from unsafe.Pointer, bytes int) error {
	var err error
	if d.staging != nil {
		err = d.staging.copy(to, unsafe.Slice((*byte)(from), bytes))
	} else {
		err = d.queue.toGPU(to, from, int64(bytes))
	}
	if err != nil {
		return fmt.Errorf("cudaop: copy of %d bytes of weights: %w", bytes, err)
	}
	return nil
}
