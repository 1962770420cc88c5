package diffusion

import (
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// Memory is what a run takes, in bytes.
type Memory struct {
	Weights   int64 // of the checkpoint, mapped: shared between processes
	Workspace int64 // activations of a block, scores of a refresh, and logits
	Columns   int64 // column tables of all layers
}

// Total is the sum of the parts.
func (m Memory) Total() int64 { return m.Weights + m.Workspace + m.Columns }

// PredictMemory returns what running a shape takes beside its weights, by
// building the graph without running it.
func PredictMemory(build Builder, s Shape, cfg pulsecol.Config) (Memory, error) {
	ctl, err := pulsecol.NewController(cfg)
	if err != nil {
		return Memory{}, err
	}
	g := gorgonia.NewGraph()
	m, err := build(g, s, ctl)
	if err != nil {
		return Memory{}, err
	}
	op.NewWorkspace().Plan(g, m.Logits)
	refreshes, columns := ctl.PlanBytes(g)
	ws, err := op.Rehearse(g, refreshes)
	return Memory{Workspace: ws, Columns: columns}, err
}
