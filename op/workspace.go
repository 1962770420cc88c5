package op

import (
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
)

// Workspace is the memory of a graph's intermediate values. Gorgonia keeps every value
// of a run alive; a Workspace places the results of this package's operators in one arena,
// by the order in which the graph runs, so that values share memory when they are needed
// at different times.
//
// Several graphs may share a Workspace if they do not run at the same time. It is not
// safe for concurrent use.
type Workspace struct {
	plans     []workspacePlan
	transient []float32 // as large as the largest plan requires
	kept      []float32 // likewise, of results that are kept
}

// workspacePlan is the plan of a graph.
type workspacePlan struct {
	*exec.Plan
	graph *gorgonia.ExprGraph
}

// NewWorkspace returns an empty workspace.
func NewWorkspace() *Workspace { return new(Workspace) }

// Plan makes the operators of g that belong to this package take their results from the
// workspace, in steps of the given modes; a graph without attention layers under a
// controller has the mode Dense alone. It comes after the graph is complete and before its
// first run.
//
// A result keeps memory of its own if anything but an operator of this package reads it
// (Gorgonia's own operators may keep or overwrite it), or if its operator stands at several
// nodes. The result of a node in keep has one place for all runs: it may be read directly,
// without a copy, until the next run of a graph of the workspace.
func (w *Workspace) Plan(g *gorgonia.ExprGraph, modes []Mode, keep ...*gorgonia.Node) error {
	plan, err := exec.New(g, exec.Options{Modes: modes, Keep: keep})
	if err != nil {
		return fmt.Errorf("op: Workspace: %w", err)
	}
	w.plans = append(w.plans, workspacePlan{plan, g})
	for _, n := range g.AllNodes() {
		if p, ok := n.Op().(interface{ setWorkspace(*Workspace) }); ok {
			p.setWorkspace(w)
		}
	}
	return nil
}

// Bytes is the host memory of all planned graphs together.
func (w *Workspace) Bytes() (bytes int64) {
	var kept, transient int64
	for _, p := range w.plans {
		kept, transient = max(kept, p.Host.Persistent), max(transient, p.Host.Transient)
	}
	return kept + transient
}

// Forget ends the use of the workspace by g, which does not run any more.
func (w *Workspace) Forget(g *gorgonia.ExprGraph) {
	w.plans = slices.DeleteFunc(w.plans, func(p workspacePlan) bool { return p.graph == g })
}

// Free drops the memory; the next run takes it again. Values of earlier runs stay valid
// while they are referenced.
func (w *Workspace) Free() { w.transient, w.kept = nil, nil }

// at returns the memory of a slot of a plan, elements float32.
func (w *Workspace) at(p *exec.Plan, s exec.Slot, elements int) []float32 {
	memory, need := &w.transient, int(p.Host.Transient/4)
	if s.Persistent() {
		memory, need = &w.kept, int(p.Host.Persistent/4)
	}
	if len(*memory) < need {
		if *memory != nil {
			w.release(s.Persistent())
		}
		*memory = make([]float32, need)
	}
	offset, _ := s.Offset()
	first := int(offset / 4)
	return (*memory)[first : first+elements : first+elements]
}

// release ends the use of the memory of kept or of other results. Nodes of graphs that do
// not run have them for values, and would hold the memory.
func (w *Workspace) release(kept bool) {
	for _, p := range w.plans {
		for _, n := range p.graph.AllNodes() {
			if o, ok := n.Op().(interface{ release(kept bool) }); ok {
				o.release(kept)
			}
		}
	}
}
