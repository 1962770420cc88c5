package op

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
)

// Check returns an error wrapping ErrGraph if running g would compute wrong
// values for reasons that Gorgonia does not see:
//
//   - Two different nodes have the same 32-bit hash. The compiler of the tape
//     machine would merge them (gorgonia pull request 581).
//   - An input has no name. Gorgonia merges it with any other unnamed input of its
//     shape, so that q, k and v become one node (gorgonia issues 492, 501).
//   - A constant tensor is identified by an abbreviated print of its value. Gorgonia
//     merges it with any other that prints alike.
//   - Something other than an operator of this package or gorgonia.Read consumes
//     a layer's column table. Gorgonia may overwrite what it consumes
//     (gorgonia issues 560, 569, 576).
//   - In a cuda build of Gorgonia, the graph has a gorgonia.Read and no GPU operator: the
//     machine then frees a GPU register that does not exist, and the program ends. Results
//     of such a graph may be read by Node.Value.
//
// It reports all findings, joined.
func Check(g *gorgonia.ExprGraph) error {
	if g == nil {
		return fmt.Errorf("op: %w: the graph is nil", ErrGraph)
	}
	var errs []error
	seen := map[uint32]*gorgonia.Node{}
	var read, gpu bool
	for _, n := range g.AllNodes() {
		read = read || isRead(n)
		if _, ok := n.Op().(gorgonia.CUDADoer); ok {
			gpu = true
		}
		h := n.Hashcode()
		if other := seen[h]; other != nil && other != n {
			errs = append(errs, fmt.Errorf("op: %w: nodes %d %v and %d %v have the same hash %#x; rename one", ErrGraph, other.ID(), other, n.ID(), n, h))
		}
		seen[h] = n
		if isConstant(n) && strings.Contains(n.Name(), "...") {
			errs = append(errs, fmt.Errorf("op: %w: constant node %d of shape %v is named by its abbreviated value; give it a name of its own", ErrGraph, n.ID(), n.Shape()))
		}
		if spec, ok := exec.SpecOf(n.Op()).(exec.GroupTopK); ok && spec.State != nil {
			for it := g.To(n.ID()); it.Next(); {
				reader := it.Node().(*gorgonia.Node)
				if _, ours := reader.Op().(exec.Operator); !ours && !isRead(reader) {
					errs = append(errs, fmt.Errorf("op: %w: %v reads the column table of %v, which Gorgonia may overwrite; use the controller's Columns", ErrGraph, reader, n.Op()))
				}
			}
		}
	}
	// A node without a name of its own makes one up when asked, so ask the graph.
	for _, n := range g.ByName("") {
		if n.Op() == nil {
			errs = append(errs, fmt.Errorf("op: %w: input node %d of shape %v has no name; give it one with gorgonia.WithName", ErrGraph, n.ID(), n.Shape()))
		}
	}
	if gorgonia.CUDA && read && !gpu {
		errs = append(errs, fmt.Errorf("op: %w: it has a gorgonia.Read and no GPU operator, on which Gorgonia's cuda build ends the program; use Node.Value", ErrGraph))
	}
	return errors.Join(errs...)
}

// isConstant reports whether n is a constant, whose operator is not exported.
func isConstant(n *gorgonia.Node) bool {
	return n.Op() != nil && strings.Contains(fmt.Sprintf("%T", n.Op()), "constant")
}

// isRead reports whether n is gorgonia.Read, whose operator is not exported. A
// statement has no type.
func isRead(n *gorgonia.Node) bool { return n.Type() == nil && n.Op() != nil }
