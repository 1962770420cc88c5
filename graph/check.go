package graph

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// Check returns an error for everything in g that Gorgonia would accept and may
// compute wrongly. It reports what op.Check finds (equal hashes of different
// nodes, a column table read by something that may overwrite it) and two habits
// that lose values while a graph is being built:
//
//   - an input without a name, which Gorgonia merges with any other unnamed input
//     of its shape (gorgonia issues 492, 501);
//   - a constant tensor known by an abbreviated print of its value, which Gorgonia
//     merges with any other that prints alike.
func Check(g *gorgonia.ExprGraph) error {
	errs := []error{op.Check(g)}
	if g == nil {
		return errs[0]
	}
	// A node without a name of its own makes one up when asked, so ask the graph.
	for _, n := range g.ByName("") {
		if n.Op() == nil {
			errs = append(errs, fmt.Errorf("graph: %w: input node %d of shape %v has no name; give it one with gorgonia.WithName", op.ErrGraph, n.ID(), n.Shape()))
		}
	}
	for _, n := range g.AllNodes() {
		if isConstant(n) && strings.Contains(n.Name(), "...") {
			errs = append(errs, fmt.Errorf("graph: %w: constant node %d of shape %v is named by its abbreviated value; give it a name of its own", op.ErrGraph, n.ID(), n.Shape()))
		}
	}
	return errors.Join(errs...)
}

// isConstant reports whether n is a constant, whose operator is not exported.
func isConstant(n *gorgonia.Node) bool {
	return n.Op() != nil && strings.Contains(fmt.Sprintf("%T", n.Op()), "constant")
}
