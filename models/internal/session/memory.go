package session

import (
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// Memory is what a run takes, in bytes.
type Memory struct {
	Weights   int64 // of the checkpoint, as far as it is read; mapped: shared between processes
	Workspace int64 // activations of a block, scores of a refresh, and logits; of a run on a GPU a copy of these alone
	Columns   int64 // column tables of all layers

	// Checkpoint is what Weights would be with a checkpoint in bfloat16 where the weights
	// are random and share memory; else Weights.
	Checkpoint int64

	GPU cudaop.Need // of a run on a GPU, zero on the CPU
}

// Total is the sum of the parts in the host's memory.
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
	lmhead.Defer(m.Logits.Op()) // as in a session
	ws := op.NewWorkspace()
	if err := ws.Plan(g, ctl.Modes(), m.Logits); err != nil {
		return Memory{}, err
	}
	if _, onGPU := m.Logits.Op().(exec.DeviceOp); onGPU {
		need, err := cudaop.PlanMemory(g, ctl.Modes())
		return Memory{Workspace: 4 * int64(m.Logits.Shape().TotalSize()), GPU: need}, err
	}
	return Memory{Workspace: ws.Bytes(), Columns: ctl.ColumnBytes(g)}, nil
}
