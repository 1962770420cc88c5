//go:build cuda

package cudaop

import (
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
)

// driverReserve is free memory that is left to the driver and libraries when a graph is checked
// against the free memory: modules take some, and kernels that spill registers.
const driverReserve = 256 << 20

// Reserve takes the memory of a graph's operators on the GPU of its machine, but for their
// weights. It returns an error that wraps ErrMemory, and takes nothing, if less is free than
// the graph takes with its weights. modes are those of its steps.
func Reserve(vm gorgonia.VM, g *gorgonia.ExprGraph, modes []exec.Mode) error {
	m, ok := vm.(gorgonia.CUDAMachine)
	if !ok || !slices.ContainsFunc(g.AllNodes(), isDeviceOp) {
		return nil
	}
	need, err := PlanMemory(g, modes)
	if err != nil {
		return err
	}
	d, err := deviceOf(m, 0)
	if err != nil {
		return err
	}
	return d.runOnEngine(func() error {
		free, all, err := memInfo()
		if err != nil {
			return fmt.Errorf("cudaop: free memory: %w", err)
		}
		if need.Total()+driverReserve > free {
			return fmt.Errorf("cudaop: %w: the graph needs %s (weights %s, column tables %s, scores %s, activations %s, inputs and results %s); of the GPU's %s are %s free, of which %s stay in reserve",
				ErrMemory, gib(need.Total()), gib(need.Weights), gib(need.Columns), gib(need.Scores), gib(need.Activations), gib(need.Machine), gib(all), gib(free), gib(driverReserve))
		}
		for _, p := range plansOf(g) {
			if err := d.reserve(p); err != nil {
				return err
			}
		}
		return nil
	})
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

// PlanMemory returns the GPU memory that steps of the given modes of a graph take. A graph that
// no Workspace has planned is planned with all results left to the machine.
func PlanMemory(g *gorgonia.ExprGraph, modes []exec.Mode) (Need, error) {
	plans := plansOf(g)
	if len(plans) == 0 {
		p, err := exec.New(g, exec.Options{Modes: modes, MachineResults: true})
		if err != nil {
			return Need{}, fmt.Errorf("cudaop: %w", err)
		}
		plans = append(plans, p)
	}
	order, err := inOrder(g)
	if err != nil {
		return Need{}, err
	}
	var need Need
	for _, w := range weightsOf(order) {
		need.Weights += w.bytes()
	}
	for _, p := range plans {
		need.Columns += p.GPU.Of(exec.Columns)
		need.Scores += p.GPU.Of(exec.Scores)
		need.Activations += p.GPU.Of(exec.Activations)
	}
	for _, n := range order {
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
