//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
	cublas "gorgonia.org/cu/blas"
	"gorgonia.org/gorgonia"
	"gorgonia.org/gorgonia/cuda"
)

// device has the state that the operators of one machine share on its GPU: loaded modules
// and memory. Gorgonia gives every machine a CUDA context of its own, in which neither
// the memory nor the modules of another machine are valid.
type device struct {
	engine       *cuda.Engine
	busy         sync.Mutex // guards the fields below, used by the engine's thread and others
	capability   int        // 90 for compute capability 9.0
	multiprocs   int
	modules      map[string]cu.Module
	kernels      map[string]*cudaKernel
	typedKernels map[typedKernel]*cudaKernel // of the layers
	heap         heap
	arenas       arenas
	step         uint64              // number of the step in progress
	checks       []check             // of the step
	layers       map[*layer]struct{} // that have memory here
	padded       lastPadding
	copied       map[*gorgonia.Node]uint64 // the step in which an input of the graph was copied last
	blas         blas
	queue        *queue
	matrices     uploads                // weights of projections
	biases       uploads                // of projections
	vectors      map[*byte]cu.DevicePtr // other numbers, by their address on the host
	staging      *staging               // of weights that are being loaded; nil at other times
	pinned       bool                   // by pinThread
}

// errClosed: the machine and its context were closed.
var errClosed = errors.New("the machine is closed")

// devices finds the device of an engine. An engine in it is not collected, so its
// address stays its own even if the machine was closed without Close.
var devices struct {
	sync.Mutex
	of map[*cuda.Engine]*device
}

// deviceOf returns the device that a machine runs an operator on.
func deviceOf(extern gorgonia.External, dev gorgonia.Device) (*device, error) {
	m, ok := extern.(gorgonia.CUDAMachine)
	if !ok || int(dev) < 0 || int(dev) >= len(m.Engines()) {
		return nil, fmt.Errorf("cudaop: a %T has no GPU %d; only the tape machine is supported", extern, int(dev))
	}
	engine := &m.Engines()[int(dev)]
	devices.Lock()
	defer devices.Unlock()
	if d := devices.of[engine]; d != nil {
		return d, nil
	}
	d, err := newDevice(engine)
	if err != nil {
		return nil, err
	}
	if devices.of == nil {
		devices.of = map[*cuda.Engine]*device{}
	}
	devices.of[engine] = d
	return d, nil
}

// planner is the device of calls that plan memory: it has no GPU and runs nothing.
var planner = &device{queue: &queue{discard: true}}

func (d *device) isPlanner() bool { return d == planner }

// newDevice reads the properties of an engine's GPU.
func newDevice(engine *cuda.Engine) (*device, error) {
	d := &device{
		engine: engine, modules: map[string]cu.Module{}, kernels: map[string]*cudaKernel{}, typedKernels: map[typedKernel]*cudaKernel{},
		layers: map[*layer]struct{}{}, copied: map[*gorgonia.Node]uint64{},
		matrices: uploads{}, biases: uploads{}, vectors: map[*byte]cu.DevicePtr{},
		heap: newHeap(), arenas: arenas{kept: map[*exec.Plan]cu.DevicePtr{}, loose: map[any]block{}},
	}
	d.queue = newQueue(&d.blas)
	on := engine.Context().Device
	major, minor, err := on.ComputeCapability()
	if err != nil {
		return nil, fmt.Errorf("cudaop: compute capability: %w", err)
	}
	d.capability = 10*major + minor
	if d.multiprocs, err = on.Attribute(cu.MultiprocessorCount); err != nil {
		return nil, fmt.Errorf("cudaop: number of multiprocessors: %w", err)
	}
	return d, nil
}

// runOnEngine runs f on the engine's own thread, in its context, after all that the machine
// has queued. The thread matters: the machine's own goroutine is not locked to one,
// and a CUDA context is current for a thread; and the engine may drain its queue on
// that thread at any time, so no other code should.
func (d *device) runOnEngine(f func() error) error {
	return d.runUnordered(func() error {
		if err := d.engine.DoWork(); err != nil {
			return fmt.Errorf("cudaop: earlier work of the machine: %w", err)
		}
		return f()
	})
}

// inContext runs f in the device's context on the caller's thread, whatever the machine
// has queued: f must not touch the machine's memory. Going to the engine's thread and
// back takes longer than launching a kernel.
func (d *device) inContext(f func() error) (err error) {
	own := d.engine.Context().CUDAContext()
	if own == (cu.CUContext{}) {
		return errClosed
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.PushCurrentCtx(own); err != nil {
		return fmt.Errorf("cudaop: context: %w", err)
	}
	defer func() {
		if _, e := cu.PopCurrentCtx(); err == nil && e != nil {
			err = fmt.Errorf("cudaop: context: %w", e)
		}
	}()
	return d.guarded(f)
}

// guarded runs f alone, and makes a panic an error.
func (d *device) guarded(f func() error) (err error) {
	d.busy.Lock()
	defer d.busy.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cudaop: internal error: %v", r)
		}
	}()
	return f()
}

// runUnordered runs f on the engine's thread without waiting for what the machine has queued
// there. No command is buffered when it returns.
func (d *device) runUnordered(f func() error) (err error) {
	if d.engine.Context().CUDAContext() == (cu.CUContext{}) {
		return errClosed
	}
	d.engine.Context().Do(func() error {
		err = d.guarded(func() error {
			return d.withContext(func() error { return errors.Join(d.queue.flush(), f(), d.queue.flush()) })
		})
		return nil // an error would end the engine's goroutine, and Close would wait for it for ever
	})
	return err
}

func (d *device) withContext(f func() error) (err error) {
	if d.pinned { // it is the thread's
		return f()
	}
	own := d.engine.Context().CUDAContext()
	// The engine makes its cuBLAS handle on this thread without its context, so that
	// Gorgonia's matrix products run in another, whose work is not ordered with ours.
	other, err := cu.CurrentContext()
	if err != nil {
		return fmt.Errorf("cudaop: current context: %w", err)
	}
	if other != (cu.CUContext{}) && other != own {
		switch err := cu.Synchronize(); err {
		case nil:
		case cu.ContextIsDestroyed: // of a closed machine, on a thread that Go uses again
			if err := cu.SetCurrentContext(cu.CUContext{}); err != nil {
				return fmt.Errorf("cudaop: context: %w", err)
			}
		default:
			return fmt.Errorf("cudaop: earlier work of the machine: %w", err)
		}
	}
	if err := cu.PushCurrentCtx(own); err != nil {
		return fmt.Errorf("cudaop: context: %w", err)
	}
	defer func() {
		if _, e := cu.PopCurrentCtx(); err == nil && e != nil {
			err = fmt.Errorf("cudaop: context: %w", e)
		}
	}()
	return f()
}

// lifecycle makes and closes machines one at a time, so that none closes while the
// libraries of another are in its context.
var lifecycle sync.Mutex

// NewTapeMachine is gorgonia.NewTapeMachine with errors for its panics, for several
// machines at a time. Gorgonia makes a CUDA context current on one
// thread and continues on any thread, where another machine's context may be current, or a
// destroyed one. Then it fails and waits for ever for an engine that has not started, or makes
// its cuBLAS handle in the other machine's context and crashes if that machine closes first.
func NewTapeMachine(g *gorgonia.ExprGraph, opts ...gorgonia.VMOpt) (vm gorgonia.VM, err error) {
	lifecycle.Lock()
	defer lifecycle.Unlock()
	defer func() {
		if r := recover(); r != nil {
			vm, err = nil, fmt.Errorf("cudaop: tape machine: %v", r)
		}
	}()
	onOneThread(func() { vm = gorgonia.NewTapeMachine(g, opts...) })
	m, ok := vm.(gorgonia.CUDAMachine)
	if !ok {
		return vm, nil
	}
	for i := range m.Engines() {
		d, err := deviceOf(m, gorgonia.Device(i))
		if err == nil {
			err = d.pinThread()
		}
		if err != nil {
			return nil, errors.Join(err, closeMachine(vm))
		}
	}
	return vm, nil
}

// pinThread reserves the engine's thread for the engine, with its context and a cuBLAS handle
// in that. Go does not use the thread for anything else.
func (d *device) pinThread() (err error) {
	d.engine.Context().Do(func() error {
		runtime.LockOSThread() // a second time: the thread ends with the engine's goroutine
		blas := d.engine.BLASContext()
		if err = blas.Close(); err != nil { // still in the context that it was made in
			err = fmt.Errorf("cudaop: cuBLAS: %w", err)
			return nil
		}
		if err = cu.SetCurrentContext(d.engine.Context().CUDAContext()); err != nil {
			err = fmt.Errorf("cudaop: context: %w", err)
			return nil
		}
		if err = blas.Init(cublas.WithContext(d.engine.Context())); err != nil {
			err = fmt.Errorf("cudaop: cuBLAS: %w", err)
		}
		d.pinned = err == nil
		return nil
	})
	return err
}

// onOneThread runs f on one thread and leaves that without a context.
func onOneThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer cu.SetCurrentContext(cu.CUContext{})
	f()
}

// Close closes a machine of a graph with GPU operators: it frees their GPU memory, then closes
// the machine. Use it instead of the machine's own Close, which does not free that memory and
// can wait for ever: Gorgonia closes a copy of each engine, and if the engine is still
// starting, the copy's lock stays locked. Machines of pulsecol close through it.
func Close(vm gorgonia.VM) error {
	lifecycle.Lock()
	defer lifecycle.Unlock()
	return closeMachine(vm)
}

func closeMachine(vm gorgonia.VM) (err error) {
	if m, ok := vm.(gorgonia.CUDAMachine); ok {
		for i := range m.Engines() {
			if err := shutDown(&m.Engines()[i]); err != nil {
				return err
			}
		}
	}
	onOneThread(func() { err = vm.Close() })
	return err
}

// engineTimeout is far above the second or two that an engine takes to start.
const engineTimeout = time.Minute

// shutDown waits until an engine has started and frees its device.
func shutDown(engine *cuda.Engine) error {
	devices.Lock()
	d := devices.of[engine]
	delete(devices.of, engine)
	devices.Unlock()
	if d == nil {
		d = &device{engine: engine, queue: newQueue(nil)}
	}
	done := make(chan error, 1)
	go func() { done <- d.runUnordered(d.release) }()
	select {
	case err := <-done:
		return err
	case <-time.After(engineTimeout):
		return fmt.Errorf("cudaop: Close: the machine's engine does not answer after %v; an error has ended it, and its memory is held until the program ends", engineTimeout)
	}
}

// release frees everything, on the engine's thread. It continues if counts cannot be read any
// more.
func (d *device) release() error {
	for l := range d.layers {
		_ = l.count()
	}
	if err := d.queue.close(); err != nil {
		return err
	}
	if err := d.blas.close(); err != nil {
		return err
	}
	if err := d.heap.releaseAll(); err != nil {
		return err
	}
	for name, m := range d.modules {
		if err := m.Unload(); err != nil {
			return fmt.Errorf("cudaop: unload %s: %w", name, err)
		}
	}
	if d.pinned { // Gorgonia would close these in an arbitrary context
		if err := errors.Join(d.engine.BLASContext().Close(), d.engine.CUDNNContext().Close()); err != nil {
			return fmt.Errorf("cudaop: cuBLAS, cuDNN: %w", err)
		}
	}
	return nil
}
