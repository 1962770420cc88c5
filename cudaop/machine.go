//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/gorgonia/cuda"
)

// machine is a Gorgonia machine on a GPU: its engine, which copies inputs and results, and
// the runner of its operators.
type machine struct {
	*runner
	engine  *cuda.Engine
	plans   []*exec.Plan // of its graph
	weights []weights    // of its graph
}

// machines finds the machine of an engine. An engine in it is not collected, so its address
// stays its own even if the machine was closed without Close.
var machines struct {
	sync.Mutex
	of map[*cuda.Engine]*machine
}

// machineOf returns the machine that runs an operator on a GPU.
func machineOf(extern gorgonia.External, dev gorgonia.Device) (*machine, error) {
	vm, ok := extern.(gorgonia.CUDAMachine)
	if !ok || int(dev) < 0 || int(dev) >= len(vm.Engines()) {
		return nil, fmt.Errorf("cudaop: a %T has no GPU %d; only the tape machine is supported", extern, int(dev))
	}
	return openMachine(&vm.Engines()[int(dev)], int(dev), nil)
}

// openMachine returns the machine of the engine of GPU number n. A new one has the runner of
// a controller's step; nil stands for one of its own.
func openMachine(engine *cuda.Engine, n int, step *exec.Step) (*machine, error) {
	machines.Lock()
	defer machines.Unlock()
	if m := machines.of[engine]; m != nil {
		return m, nil
	}
	d, err := openDevice(n)
	if err != nil {
		return nil, err
	}
	if d.context != engine.Context().CUDAContext() {
		return nil, errors.New("cudaop: a machine has a CUDA context of its own: the program was built without the headers that the command cudaop/cudaenv sets")
	}
	var key any = step
	if step == nil {
		key = engine
	}
	m := &machine{engine: engine}
	if err := d.inContext(func() error {
		if d.runners[key] == nil {
			d.runners[key] = newRunner(d, key)
		}
		m.runner = d.runners[key]
		m.runner.machines = append(m.runner.machines, m)
		return nil
	}); err != nil {
		return nil, err
	}
	if machines.of == nil {
		machines.of = map[*cuda.Engine]*machine{}
	}
	machines.of[engine] = m
	return m, nil
}

// find returns the machine of an engine, nil if there is none.
func find(engine *cuda.Engine) *machine {
	machines.Lock()
	defer machines.Unlock()
	return machines.of[engine]
}

// afterInputs runs f after all that the machine has queued, on the engine's own thread: the
// engine may drain its queue there at any time, so no other code should.
func (m *machine) afterInputs(f func() error) (err error) {
	if m.engine.Context().CUDAContext() == (cu.CUContext{}) {
		return errClosed
	}
	m.engine.Context().Do(func() error {
		if err = m.engine.DoWork(); err != nil {
			err = fmt.Errorf("cudaop: earlier work of the machine: %w", err)
			return nil // an error would end the engine's goroutine, and Close would wait for it for ever
		}
		err = m.flushed(f)
		return nil
	})
	return err
}

// pinThread reserves the engine's thread for the engine, with its context. Go does not use
// the thread for anything else.
func (m *machine) pinThread() (err error) {
	m.engine.Context().Do(func() error {
		runtime.LockOSThread() // a second time: the thread ends with the engine's goroutine
		if err = cu.SetCurrentContext(m.context); err != nil {
			err = fmt.Errorf("cudaop: context: %w", err)
		}
		return nil
	})
	return err
}

// close frees what no other machine needs.
func (m *machine) close() error {
	return m.inContext(func() error {
		r := m.runner
		r.machines = slices.DeleteFunc(r.machines, func(other *machine) bool { return other == m })
		if len(r.machines) == 0 {
			if err := r.release(); err != nil {
				return err
			}
		}
		for _, p := range m.plans {
			if err := r.forget(p); err != nil {
				return err
			}
		}
		return m.freeWeights()
	})
}

// NewTapeMachine is gorgonia.NewTapeMachine with errors for its panics. Gorgonia makes a CUDA
// context current on one thread and continues on any thread, where it fails and waits for
// ever for an engine that has not started. Machines of one controller's layers share memory.
func NewTapeMachine(g *gorgonia.ExprGraph, opts ...gorgonia.VMOpt) (vm gorgonia.VM, err error) {
	defer func() {
		if r := recover(); r != nil {
			vm, err = nil, fmt.Errorf("cudaop: tape machine: %v", r)
		}
	}()
	onOneThread(func() { vm = gorgonia.NewTapeMachine(g, opts...) })
	on, ok := vm.(gorgonia.CUDAMachine)
	if !ok {
		return vm, nil
	}
	for i := range on.Engines() {
		m, err := openMachine(&on.Engines()[i], i, stepOf(g))
		if err == nil {
			err = m.pinThread()
		}
		if err != nil {
			return nil, errors.Join(err, Close(vm))
		}
	}
	return vm, nil
}

// stepOf returns the step of the controller that has the layers of a graph, nil if there is
// none or more than one.
func stepOf(g *gorgonia.ExprGraph) (step *exec.Step) {
	for _, n := range g.AllNodes() {
		o, ok := n.Op().(*deviceOp)
		if !ok || o.Layer() == nil {
			continue
		}
		if step != nil && step != o.Layer().Step() {
			return nil
		}
		step = o.Layer().Step()
	}
	return step
}

// onOneThread runs f on one thread and leaves that without a context.
func onOneThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer cu.SetCurrentContext(cu.CUContext{})
	f()
}

// Close closes a machine of a graph with GPU operators: it frees their GPU memory that no
// other machine uses, then closes the machine. Use it instead of the machine's own Close,
// which does not free that memory and can wait for ever: Gorgonia closes a copy of each
// engine, and if the engine is still starting, the copy's lock stays locked. Machines of
// pulsecol close through it.
func Close(vm gorgonia.VM) (err error) {
	if on, ok := vm.(gorgonia.CUDAMachine); ok {
		for i := range on.Engines() {
			if err := shutDown(&on.Engines()[i]); err != nil {
				return err
			}
		}
	}
	onOneThread(func() { err = vm.Close() })
	return err
}

// engineTimeout is far above the second or two that an engine takes to start.
const engineTimeout = time.Minute

// shutDown waits until an engine has started and frees its machine's memory.
func shutDown(engine *cuda.Engine) error {
	machines.Lock()
	m := machines.of[engine]
	delete(machines.of, engine)
	machines.Unlock()
	if engine.Context().CUDAContext() == (cu.CUContext{}) {
		return errClosed
	}
	started := make(chan struct{})
	go func() {
		engine.Context().Do(func() error { return nil })
		close(started)
	}()
	select {
	case <-started:
	case <-time.After(engineTimeout):
		return fmt.Errorf("cudaop: Close: the machine's engine does not answer after %v; an error has ended it, and its memory is held until the program ends", engineTimeout)
	}
	if m == nil {
		return nil
	}
	return m.close()
}

// Flush submits the commands that a machine's operators have buffered, so that they run
// before a step ends and their errors are errors of the step.
func Flush(vm gorgonia.VM) error {
	on, ok := vm.(gorgonia.CUDAMachine)
	if !ok {
		return nil
	}
	for i := range on.Engines() {
		if m := find(&on.Engines()[i]); m != nil {
			if err := m.inContext(m.queue.flush); err != nil {
				return err
			}
		}
	}
	return nil
}
