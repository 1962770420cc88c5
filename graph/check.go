package graph

import (
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// Check returns an error for everything in g that Gorgonia would accept and may
// compute wrongly; see op.Check. pulsecol.NewMachine runs it. Call Check to find these
// problems while a graph is being built.
func Check(g *gorgonia.ExprGraph) error { return op.Check(g) }
