package session

import (
	"slices"

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
// rows, and on a GPU there are graphs of other numbers of rows too: passes.
func PredictMemory(build Builder, s models.Shape, cfg pulsecol.Config, active int, passes ...int) (models.Memory, error) {
	ctl, err := pulsecol.NewController(cfg)
	if err != nil {
		return models.Memory{}, err
	}
	ws := op.NewWorkspace()
	add := func(s models.Shape) (*models.Graph, *gorgonia.ExprGraph, error) {
		g := gorgonia.NewGraph()
		m, err := build(g, s, ctl)
		if err != nil {
			return nil, nil, err
		}
		lmhead.Defer(m.Logits.Op()) // as in a session
		return m, g, ws.Plan(g, ctl.Modes(), m.Logits)
	}
	m, g, err := add(s)
	if err != nil {
		return models.Memory{}, err
	}
	if _, onGPU := m.Logits.Op().(exec.DeviceOp); onGPU {
		mem, graphs := models.Memory{Workspace: 4 * int64(m.Logits.Shape().TotalSize())}, []*gorgonia.ExprGraph{g}
		for _, rows := range passes {
			_, g, err := add(passShape(s, rows))
			if err != nil {
				return models.Memory{}, err
			}
			graphs = append(graphs, g)
		}
		mem.GPU, err = cudaop.PlanMemory(ctl.Modes(), graphs...)
		return mem, err
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

// passes returns the numbers of rows that the passes of a generation over a cache compute,
// other than all of them: of newTokens in blocks after a prompt, where active rows begin
// before tokens before a block.
func passes(cfg pulsecol.Config, prompt, newTokens, block, before int) (rows []int) {
	length := prompt + newTokens
	add := func(n int) {
		if n != length && !slices.Contains(rows, n) && len(rows) < maxPrograms-1 {
			rows = append(rows, n)
		}
	}
	for b := 0; b*block < newTokens; b++ {
		first := max(0, prompt+b*block-before)
		last := min(prompt+(b+1)*block, length)
		if cfg.Cache == pulsecol.PrefixCache {
			last = length
		}
		add(last - first)
		if every := cfg.PrefillEvery; b > 0 && (every == 0 || b%every != 0) {
			add(last - max(0, first-block))
		}
	}
	return rows
}
