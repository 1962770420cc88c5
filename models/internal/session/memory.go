package session

import (
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// PredictMemory returns the memory of running a shape, without its weights, by
// building the graph without running it. With a cache blocks have so many active
// rows.
func PredictMemory(build Builder, s models.Shape, cfg pulsecol.Config, active int) (models.Memory, error) {
	ctl, err := pulsecol.NewController(cfg)
	if err != nil {
		return models.Memory{}, err
	}
	g := gorgonia.NewGraph()
	m, err := build(g, s, ctl)
	if err != nil {
		return models.Memory{}, err
	}
	lmhead.Defer(m.Logits.Op()) // as in a session
	ws := op.NewWorkspace()
	if err := ws.Plan(g, ctl.Modes(), m.Logits); err != nil {
		return models.Memory{}, err
	}
	if _, onGPU := m.Logits.Op().(exec.DeviceOp); onGPU {
		need, err := cudaop.PlanMemory(g, ctl.Modes())
		return models.Memory{Workspace: 4 * int64(m.Logits.Shape().TotalSize()), GPU: need}, err
	}
	mem := models.Memory{Workspace: ws.Bytes(), Columns: ctl.ColumnBytes(g)}
	if s.Cached > 0 {
		active = min(active, s.Cached)
		if cfg.Cache == pulsecol.PrefixCache {
			active = s.Cached
		}
		mem.Cache = ctl.CacheBytes(g, active)
	}
	return mem, nil
}
