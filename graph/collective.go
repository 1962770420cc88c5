package graph

import (
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// AllGather is the concatenation of x of all ranks along an axis, in their order.
func AllGather(path string, x *gorgonia.Node, axis int, ranks op.Ranks) (*gorgonia.Node, error) {
	return collective(x, func(dims int) (gorgonia.Op, error) { return op.NewAllGather(path, dims, axis, ranks) })
}

// AllReduce is the sum of x of all ranks.
func AllReduce(path string, x *gorgonia.Node, ranks op.Ranks) (*gorgonia.Node, error) {
	return collective(x, func(dims int) (gorgonia.Op, error) { return op.NewAllReduce(path, dims, ranks) })
}

// ReduceScatter is this rank's part along an axis of the sum of x of all ranks.
func ReduceScatter(path string, x *gorgonia.Node, axis int, ranks op.Ranks) (*gorgonia.Node, error) {
	return collective(x, func(dims int) (gorgonia.Op, error) { return op.NewReduceScatter(path, dims, axis, ranks) })
}

// collective adds an operator of x's dimensions to the graph.
func collective(x *gorgonia.Node, of func(dims int) (gorgonia.Op, error)) (*gorgonia.Node, error) {
	dims := 1 // of nil and of what is no tensor, which apply refuses
	if x != nil {
		if t, ok := x.Type().(gorgonia.TensorType); ok {
			dims = t.Dims
		}
	}
	o, err := of(dims)
	if err != nil {
		return nil, err
	}
	return apply(o, x)
}
