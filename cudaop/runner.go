//go:build cuda

package cudaop

import (
	"errors"
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
)

// runner is what the machines of one controller share on a device: memory and the queue of
// commands. They run one at a time. A machine whose graph has no layers of a controller has
// a runner of its own.
type runner struct {
	*device
	key      any // in device.runners
	machines []*machine
	closed   bool

	arenas     arenas
	step       uint64              // number of the step in progress
	checks     []check             // of the step
	layers     map[*layer]struct{} // that have memory here
	padded     lastPadding
	copied     map[*gorgonia.Node]uint64 // the step in which an input of the graph was copied last
	firstRowOf uint64                    // the step that firstRow has written last
	blas       blas
	queue      *queue
	kernels    map[string]*cudaKernel
	staging    *staging // of weights that are being loaded; nil at other times

	typedKernels map[typedKernel]*cudaKernel // of the layers
}

func newRunner(d *device, key any) *runner {
	r := &runner{
		device: d, key: key,
		layers: map[*layer]struct{}{}, copied: map[*gorgonia.Node]uint64{},
		kernels: map[string]*cudaKernel{}, typedKernels: map[typedKernel]*cudaKernel{},
		arenas: arenas{kept: map[*exec.Plan]cu.DevicePtr{}, loose: map[any]block{}},
	}
	r.queue = newQueue(&r.blas)
	return r
}

// planner is the runner of calls that plan memory: it has no GPU and runs nothing.
var planner = &runner{device: new(device), queue: &queue{discard: true}}

func (r *runner) isPlanner() bool { return r == planner }

// flushed runs f in the context with no command buffered before it and after it.
func (r *runner) flushed(f func() error) error {
	return r.inContext(func() error {
		if r.closed {
			return errClosed
		}
		return errors.Join(r.queue.flush(), f(), r.queue.flush())
	})
}

// beginStep begins a step if it is not the one in progress.
func (r *runner) beginStep(number uint64, at stepKind) error {
	if number == r.step {
		return nil
	}
	r.step = number
	r.checks = r.checks[:0] // may be left of a step that failed
	return r.queue.restart(at)
}

// release frees everything of the runner. It continues if counts cannot be read any more.
func (r *runner) release() error {
	for l := range r.layers {
		_ = l.count()
	}
	r.closed = true
	delete(r.runners, r.key)
	if err := r.queue.close(); err != nil {
		return err
	}
	if err := r.blas.close(); err != nil {
		return err
	}
	blocks := []cu.DevicePtr{r.arenas.transient.at, r.arenas.alone.at}
	for _, at := range r.arenas.kept {
		blocks = append(blocks, at)
	}
	for _, b := range r.arenas.loose {
		blocks = append(blocks, b.at)
	}
	for _, at := range blocks {
		if err := r.heap.release(at); err != nil {
			return err
		}
	}
	return nil
}

// measured runs f with a runner of its own on GPU 0.
func measured(f func(r *runner) error) error {
	d, err := openDevice(0)
	if err != nil {
		return err
	}
	r := newRunner(d, new(int))
	err = r.flushed(func() error { return f(r) })
	if e := d.inContext(r.release); e != nil {
		err = errors.Join(err, fmt.Errorf("cudaop: %w", e))
	}
	return err
}
