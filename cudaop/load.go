//go:build cuda

package cudaop

import (
	"context"
	"errors"
	"slices"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/memplan"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// weighted is an implementation with weights.
type weighted interface {
	// weights returns projections whose weights are one matrix on the GPU, or a vector.
	weights() ([]kernel.Projection, []byte)
}

// weights are the constant data of one operator.
type weights struct {
	parts  []kernel.Projection
	vector []byte // nil if there are parts
	dt     tensor.Dtype
}

// bytes is the memory that they take on the GPU.
func (w *weights) bytes() int64 {
	if w.parts == nil {
		return memplan.Round(int64(len(w.vector)))
	}
	size, out := int64(w.dt.Size()), int64(outputs(w.parts))
	n := memplan.Round(out * int64(w.parts[0].Weight.Cols) * size)
	if biased(w.parts) {
		n += memplan.Round(out * size)
	}
	return n
}

// load copies them to the GPU, if they are not there yet.
func (w *weights) load(d *runner) error {
	if w.parts == nil {
		_, err := d.vector(w.vector)
		return err
	}
	_, err := d.matrix(w.parts, w.dt)
	if err == nil {
		_, err = d.bias(w.parts, w.dt)
	}
	return err
}

// weightsOf lists the weights of operators in their order, each once.
func weightsOf(order gorgonia.Nodes) (all []weights) {
	matrices, vectors := uploads{}, map[*byte]bool{}
	for _, n := range order {
		o, ok := n.Op().(*deviceOp)
		if !ok {
			continue
		}
		t, ok := o.impl.(weighted)
		if !ok {
			continue
		}
		w := weights{dt: o.dtype()}
		w.parts, w.vector = t.weights()
		if w.parts == nil && len(w.vector) == 0 {
			continue
		}
		if w.parts == nil {
			if vectors[&w.vector[0]] {
				continue
			}
			vectors[&w.vector[0]] = true
		} else {
			if _, ok := matrices.find(w.parts, w.dt); ok {
				continue
			}
			matrices.add(w.parts, w.dt, cu.DevicePtr(1))
		}
		all = append(all, w)
	}
	return all
}

// isLoaded reports whether they are on the GPU.
func (w *weights) isLoaded(d *device) bool {
	if w.parts == nil {
		return d.vectors[&w.vector[0]] != 0
	}
	_, ok := d.matrices.find(w.parts, w.dt)
	if ok && biased(w.parts) {
		_, ok = d.biases.find(w.parts, w.dt)
	}
	return ok
}

// freeWeights frees the weights that no machine of the device has claimed.
func (d *device) freeWeights() error {
	matrices, biases, vectors := uploads{}, uploads{}, map[*byte]bool{}
	for _, r := range d.runners {
		if err := r.queue.flush(); err != nil { // commands that read them
			return err
		}
		for _, m := range r.machines {
			for _, w := range m.weights {
				if w.parts == nil {
					vectors[&w.vector[0]] = true
					continue
				}
				matrices.add(w.parts, w.dt, 0)
				biases.add(w.parts, w.dt, 0)
			}
		}
	}
	gone := append(d.matrices.keep(matrices), d.biases.keep(biases)...)
	for first, at := range d.vectors {
		if !vectors[first] {
			gone = append(gone, at)
			delete(d.vectors, first)
		}
	}
	for _, at := range gone {
		if err := d.heap.release(at); err != nil {
			return err
		}
	}
	return nil
}

// Load copies the weights of a graph's operators to the GPU of its machine, if another
// machine has not. Without Load the first step copies them. report, if not nil, is called
// before and after each tensor with the bytes copied so far and the total. When ctx is done
// Load returns its error, and keeps the copied weights.
func Load(ctx context.Context, vm gorgonia.VM, g *gorgonia.ExprGraph, report func(done, total int64)) (err error) {
	on, ok := vm.(gorgonia.CUDAMachine)
	if !ok {
		return nil
	}
	order, err := inOrder(g)
	if err != nil {
		return err
	}
	all := weightsOf(order)
	if len(all) == 0 {
		return nil
	}
	m, err := machineOf(on, 0)
	if err != nil {
		return err
	}
	if err := m.inContext(func() error {
		all = slices.DeleteFunc(all, func(w weights) bool { return w.isLoaded(m.device) })
		return nil
	}); err != nil || len(all) == 0 {
		return err
	}
	if err := m.flushed(func() (err error) { m.staging, err = newStaging(ctx); return err }); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, m.flushed(func() error {
			s := m.staging
			m.staging = nil
			return s.close()
		}))
	}()
	if report == nil {
		report = func(int64, int64) {}
	}
	var done, total int64
	for i := range all {
		total += all[i].bytes()
	}
	report(0, total)
	for i := range all {
		if err := m.flushed(func() error { return all[i].load(m.runner) }); err != nil {
			return err
		}
		done += all[i].bytes()
		report(done, total)
	}
	return nil
}
