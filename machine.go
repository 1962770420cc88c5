package pulsecol

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// Machine is a gorgonia.VM. Each of its runs is one denoising step under a controller. The
// zero Machine is closed.
type Machine struct {
	vm     gorgonia.VM
	graph  *gorgonia.ExprGraph // nil from Attach
	ctl    *Controller
	once   bool // runs its graph once
	ran    bool // since the last Reset, or with once at all
	closed bool
}

var errNoContext = errors.New("pulsecol: the context is nil")

// Attach puts vm under ctl. vm runs a graph whose Attention layers belong to
// ctl; from now on it must be run through the Machine only. If vm is a tape machine, a
// graph with layers of another controller is an error that wraps ErrOwner, and layers of
// ctl in another graph are an error. Prefer NewMachine, which also checks the graph.
//
// A Lisp machine leaves the gradients of a step with the nodes, for Node.Grad; where
// they cannot be computed the step fails with an error that wraps op.ErrNoGradient.
// Gorgonia's Lisp machine runs its graph once, Reset or not. So does a Machine around
// it, whose next step is an error that wraps ErrRanOnce: Close it, and attach a new
// gorgonia.NewLispMachine of the graph for every step. The controller keeps its
// generation and its columns, and the graph's inputs sum up gradients until they are
// zeroed. gorgonia.ExecuteFwdOnly leaves out the backward pass; a machine of
// gorgonia.ExecuteBwdOnly runs nothing, which is an error of the step.
func Attach(vm gorgonia.VM, ctl *Controller) (*Machine, error) {
	if vm == nil {
		return nil, errors.New("pulsecol: Attach: the machine is nil")
	}
	if _, ok := vm.(*Machine); ok {
		return nil, fmt.Errorf("pulsecol: Attach: the machine already has a controller: %w", ErrAttached)
	}
	if err := ctl.canRun(graphOf(vm)); err != nil {
		return nil, err
	}
	_, lisp := vm.(interface {
		LastRun() (*gorgonia.Node, bool)
	})
	m := &Machine{vm: vm, ctl: ctl, once: lisp}
	ctl.machines = append(ctl.machines, m)
	return m, nil
}

// graphOf returns the graph of a tape machine, nil of others. Its Prog is exported, the
// type of the result is not.
func graphOf(vm gorgonia.VM) *gorgonia.ExprGraph {
	prog := reflect.ValueOf(vm).MethodByName("Prog")
	if !prog.IsValid() || prog.Type().NumIn() != 0 || prog.Type().NumOut() != 1 {
		return nil
	}
	if p, ok := prog.Call(nil)[0].Interface().(interface{ Graph() *gorgonia.ExprGraph }); ok {
		return p.Graph()
	}
	return nil
}

// canRun returns why a machine under c cannot run g, nil if g is nil or it can.
func (c *Controller) canRun(g *gorgonia.ExprGraph) error {
	switch {
	case c == nil:
		return errors.New("pulsecol: the machine's controller is nil")
	case c.closed:
		return ErrClosed
	case slices.ContainsFunc(c.machines, func(m *Machine) bool { return g == nil || m.graph == nil || m.graph == g }):
		return ErrAttached
	case g == nil:
		return nil
	}
	if err := c.step.Owns(g); err != nil {
		return err
	}
	for _, l := range c.layers {
		if l.used && !l.state.In(g) {
			return fmt.Errorf("pulsecol: the attention of %s is not in the machine's graph", l.path)
		}
	}
	return nil
}

// NewMachine compiles g into a tape machine under ctl. Unlike
// gorgonia.NewTapeMachine it returns an error where that panics, where op.Check
// finds that g would compute wrong values, where a layer of ctl is in another graph
// and, wrapping ErrOwner, where g has layers of another controller or is in a machine of
// one that is not closed; clones of a graph share its layers. Where a GPU has less
// memory free than g takes, the error wraps ErrMemory. An error changes nothing.
func NewMachine(g *gorgonia.ExprGraph, ctl *Controller, opts ...gorgonia.VMOpt) (m *Machine, err error) {
	if g == nil {
		return nil, errors.New("pulsecol: NewMachine: the graph is nil")
	}
	if err := op.Check(g); err != nil {
		return nil, err
	}
	if err := ctl.canRun(g); err != nil {
		return nil, err
	}
	vm, err := cudaop.NewTapeMachine(g, opts...)
	if err != nil {
		return nil, fmt.Errorf("pulsecol: NewMachine: %w", err)
	}
	if m, err = Attach(vm, ctl); err != nil {
		return nil, err
	}
	if err := cudaop.Reserve(vm, g, ctl.Modes()); err != nil {
		return nil, errors.Join(fmt.Errorf("pulsecol: NewMachine: %w", err), m.Close())
	}
	m.graph = g
	ctl.step.Bind(g)
	return m, nil
}

// Load copies the graph's weights to the GPU, if it runs there. Without Load the first step
// copies them. report, if not nil, gets the bytes copied so far and the total. When ctx is
// done, Load returns its error.
func (m *Machine) Load(ctx context.Context, report func(done, total int64)) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.leave()
	if m.graph == nil {
		return nil
	}
	if err := cudaop.Load(ctx, m.vm, m.graph, report); err != nil {
		return fmt.Errorf("pulsecol: load weights: %w", err)
	}
	return nil
}

// Controller returns the machine's controller.
func (m *Machine) Controller() *Controller { return m.ctl }

// RunAll runs one denoising step: it takes the step's mode from the controller,
// runs the program from its start (resetting first if that was not done), and
// counts the step. On an error the step does not count and may be run again.
func (m *Machine) RunAll() error { return m.RunAllContext(context.Background()) }

// RunAllContext is RunAll that ctx may cancel. When ctx is done, the operators of package
// op return (those of attention only if the machine comes from Attach), and the step fails
// with ctx's error. The delay does not depend on the length of the step.
func (m *Machine) RunAllContext(ctx context.Context) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.leave()
	switch {
	case m.ran && m.once:
		return ErrRanOnce
	case m.ran:
		m.vm.Reset()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.ctl.begin(ctx); err != nil {
		return err
	}
	m.ran = true
	err := cause(m.vm.RunAll())
	if flushed := cudaop.Flush(m.vm); err == nil {
		err = flushed
	}
	if errors.Is(err, op.ErrStopped) {
		err = fmt.Errorf("pulsecol: %s: %w", m.ctl.stepName(m.ctl.done+1), ctx.Err())
	}
	return m.ctl.end(err)
}

// enter begins what only one machine of a controller does at a time, until leave.
func (m *Machine) enter(ctx context.Context) error {
	switch {
	case m.vm == nil:
		return ErrClosed
	case ctx == nil:
		return errNoContext
	case !m.ctl.running.CompareAndSwap(false, true):
		return ErrBusy
	case m.closed:
		m.leave()
		return ErrClosed
	}
	return nil
}

func (m *Machine) leave() { m.ctl.running.Store(false) }

// cause returns the error inside that of a tape machine, which has no Unwrap: errors.Is
// would not find op's errors in it.
func cause(err error) error {
	if vmErr, ok := err.(interface{ Err() error }); ok {
		return vmErr.Err()
	}
	return err
}

// Step is RunAll followed by Reset.
func (m *Machine) Step() error { return m.StepContext(context.Background()) }

// StepContext is RunAllContext followed by Reset.
func (m *Machine) StepContext(ctx context.Context) error {
	if err := m.RunAllContext(ctx); err != nil {
		return err
	}
	m.Reset()
	return nil
}

// Reset rewinds the machine for the next step. Column tables stay.
func (m *Machine) Reset() {
	if m.vm != nil {
		m.vm.Reset()
	}
	m.ran = m.ran && m.once
}

// Close closes the inner machine and frees the controller for another one. A
// second Close does nothing.
func (m *Machine) Close() error {
	if m.vm == nil {
		return nil
	}
	if !m.ctl.running.CompareAndSwap(false, true) {
		return ErrBusy
	}
	defer m.leave()
	if m.closed {
		return nil
	}
	m.closed = true
	m.ctl.machines = slices.DeleteFunc(m.ctl.machines, func(other *Machine) bool { return other == m })
	if m.graph != nil {
		m.ctl.step.Release()
	}
	return cudaop.Close(m.vm)
}

var _ gorgonia.VM = (*Machine)(nil)
