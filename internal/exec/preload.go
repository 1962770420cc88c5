package exec

import "gorgonia.org/gorgonia"

// A tape machine copies an input of the graph to the GPU just before its first reader runs,
// and the copy waits for everything that is queued. An operator that starts a model takes the
// graph's other inputs as well, so that all copies come before the first kernel.

// Preloader is an operator that can take inputs which it does not read.
type Preloader interface {
	// Preload returns the operator with further inputs of the given types.
	Preload(types []gorgonia.TensorType) gorgonia.Op
}

// Preload returns o with the inputs that ids' graph has so far, and all inputs of the
// result: ids and then those. It leaves out scalars.
func Preload(o Preloader, ids *gorgonia.Node) (gorgonia.Op, []*gorgonia.Node) {
	inputs := []*gorgonia.Node{ids}
	var types []gorgonia.TensorType
	for _, n := range ids.Graph().Inputs() {
		if t, ok := n.Type().(gorgonia.TensorType); ok && n != ids && n.Op() == nil {
			inputs, types = append(inputs, n), append(types, t)
		}
	}
	return o.Preload(types), inputs
}
