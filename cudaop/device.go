//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"gorgonia.org/cu"
)

// device is a GPU, with what all machines of the process share on it: the context, modules,
// and weights. Its context is the primary one, in which Gorgonia's engines run too, because
// the headers in package compat give them no other.
type device struct {
	context    cu.CUContext
	capability int // 90 for compute capability 9.0
	multiprocs int
	busy       sync.Mutex // guards what follows, and the runners of the device
	modules    map[string]cu.Module
	functions  map[string]*function
	heap       heap
	matrices   uploads                // weights of projections
	biases     uploads                // of projections
	vectors    map[*byte]cu.DevicePtr // other numbers, by their address on the host
	runners    map[any]*runner        // by what their machines have in common
}

// errClosed: the machine was closed.
var errClosed = errors.New("the machine is closed")

// devices are those that were used, by their number. They stay until the process ends, as
// CUDA's libraries keep the primary context.
var devices struct {
	sync.Mutex
	of map[int]*device
}

// openDevice returns GPU number n.
func openDevice(n int) (*device, error) {
	devices.Lock()
	defer devices.Unlock()
	if d := devices.of[n]; d != nil {
		return d, nil
	}
	gpu, err := cu.GetDevice(n)
	if err != nil {
		return nil, fmt.Errorf("cudaop: GPU %d: %w", n, err)
	}
	d := &device{
		modules: map[string]cu.Module{}, functions: map[string]*function{}, heap: newHeap(),
		matrices: uploads{}, biases: uploads{}, vectors: map[*byte]cu.DevicePtr{}, runners: map[any]*runner{},
	}
	major, minor, err := gpu.ComputeCapability()
	if err != nil {
		return nil, fmt.Errorf("cudaop: compute capability: %w", err)
	}
	d.capability = 10*major + minor
	if d.multiprocs, err = gpu.Attribute(cu.MultiprocessorCount); err != nil {
		return nil, fmt.Errorf("cudaop: number of multiprocessors: %w", err)
	}
	if d.context, err = gpu.RetainPrimaryCtx(); err != nil {
		return nil, fmt.Errorf("cudaop: primary context: %w", err)
	}
	if devices.of == nil {
		devices.of = map[int]*device{}
	}
	devices.of[n] = d
	return d, nil
}

// inContext runs f in the device's context on the caller's thread, alone, and makes a panic
// an error. To go to an engine's thread and back takes longer than to launch a kernel, so f
// must not need what a machine has queued there.
func (d *device) inContext(f func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.PushCurrentCtx(d.context); err != nil {
		return fmt.Errorf("cudaop: context: %w", err)
	}
	defer func() {
		if _, e := cu.PopCurrentCtx(); err == nil && e != nil {
			err = fmt.Errorf("cudaop: context: %w", e)
		}
	}()
	d.busy.Lock()
	defer d.busy.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cudaop: internal error: %v", r)
		}
	}()
	return f()
}
