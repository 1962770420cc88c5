//go:build cuda

package cudaop

import (
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/memplan"
	"gorgonia.org/gorgonia"
)

// driverReserve is free memory that is left to the driver and libraries when a graph is checked
// against the free memory: modules take some, and kernels that spill registers.
const driverReserve = 256 << 20

// Reserve takes the memory of a graph's operators on the GPU of its machine, but for their
// weights. It returns an error that wraps ErrMemory, and takes nothing, if less is free than
// the graph takes with its weights. modes are those of its steps.
func Reserve(vm gorgonia.VM, g *gorgonia.ExprGraph, modes []exec.Mode) error {
	on, ok := vm.(gorgonia.CUDAMachine)
	if !ok || !slices.ContainsFunc(g.AllNodes(), isDeviceOp) {
		return nil
	}
	need, err := PlanMemory(modes, g)
	if err != nil {
		return err
	}
	m, err := machineOf(on, 0)
	if err != nil {
		return err
	}
	order, err := inOrder(g)
	if err != nil {
		return err
	}
	m.plans, m.weights = plansOf(g), weightsOf(order)
	return m.flushed(func() error {
		free, all, err := memInfo()
		if err != nil {
			return fmt.Errorf("cudaop: free memory: %w", err)
		}
		held := m.heldFor()
		if need.Total()-held+driverReserve > free {
			return fmt.Errorf("cudaop: %w: the graph needs %s (weights %s, column tables %s, caches %s, scores %s, activations %s, inputs and results %s), of which other graphs hold %s; of the GPU's %s are %s free, of which %s stay in reserve",
				ErrMemory, gib(need.Total()), gib(need.Weights), gib(need.Columns), gib(need.Cache), gib(need.Scores), gib(need.Activations), gib(need.Machine), gib(held), gib(all), gib(free), gib(driverReserve))
		}
		for _, p := range m.plans {
			if err := m.reserve(p); err != nil {
				return err
			}
		}
		return nil
	})
}

// heldFor is the memory of the machine's graph that is held already.
func (m *machine) heldFor() (bytes int64) {
	for _, w := range m.weights {
		if w.isLoaded(m.device) {
			bytes += w.bytes()
		}
	}
	for _, p := range m.plans {
		bytes += min(p.GPU.Transient, m.arenas.transient.bytes)
		for key, size := range p.OfLayers() {
			bytes += min(memplan.Round(size), m.arenas.loose[key].bytes)
		}
	}
	return bytes
}

func isDeviceOp(n *gorgonia.Node) bool { _, ok := n.Op().(*deviceOp); return ok }

// plansOf returns the plans that a graph's GPU operators belong to.
func plansOf(g *gorgonia.ExprGraph) (plans []*exec.Plan) {
	for _, n := range g.AllNodes() {
		if o, ok := n.Op().(*deviceOp); ok {
			if p := o.Placement().Plan(); p != nil && !slices.Contains(plans, p) {
				plans = append(plans, p)
			}
		}
	}
	return plans
}

// PlanMemory returns the GPU memory that steps of the given modes take in graphs of one
// controller, which share what they can. A graph that no Workspace has planned is planned
// with all results left to the machine.
func PlanMemory(modes []exec.Mode, graphs ...*gorgonia.ExprGraph) (Need, error) {
	var need Need
	var all gorgonia.Nodes
	var plans []*exec.Plan
	for _, g := range graphs {
		own := plansOf(g)
		if len(own) == 0 {
			p, err := exec.New(g, exec.Options{Modes: modes, MachineResults: true})
			if err != nil {
				return Need{}, fmt.Errorf("cudaop: %w", err)
			}
			own = append(own, p)
		}
		plans = append(plans, own...)
		order, err := inOrder(g)
		if err != nil {
			return Need{}, err
		}
		all = append(all, order...)
	}
	for _, w := range weightsOf(all) {
		need.Weights += w.bytes()
	}
	arena := exec.Shared(plans)
	need.Columns, need.Cache = arena.Of(exec.Columns), arena.Of(exec.Cache)
	need.Scores, need.Activations = arena.Of(exec.Scores), arena.Of(exec.Activations)
	for _, n := range all {
		if o, ok := n.Op().(*deviceOp); n.Op() == nil || ok && o.CallsExtern() {
			need.Machine += int64(n.Shape().TotalSize()) * int64(n.Dtype().Size())
		}
	}
	return need, nil
}

// inOrder returns the nodes of a graph as a tape machine runs them.
func inOrder(g *gorgonia.ExprGraph) (gorgonia.Nodes, error) {
	order, err := gorgonia.Sort(g)
	if err != nil {
		return nil, fmt.Errorf("cudaop: order of the graph: %w", err)
	}
	slices.Reverse(order) // Sort lists results before what they are made of
	return order, nil
}

// size is that of an element between GPU operators of o's precision.
func (o *deviceOp) size() int64 { return int64(o.dtype().Size()) }
