package exec

import (
	"slices"

	"gorgonia.org/tensor"
)

// Held is a tensor that is the value of a node in more than one run, or of more than one
// node. Gorgonia's UnbindAllNonInputs clears every *tensor.Dense that is the value of a node
// and puts it into a pool. It does not touch values of other types, such as Held.
type Held struct{ *tensor.Dense }

// hold makes a tensor around data without copying it.
func hold[E float32 | uint32](data []E, shape ...int) *Held {
	return &Held{tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))}
}

// Empty ends the use of a tensor's memory by whatever has the tensor.
func Empty(t *tensor.Dense) {
	*t = *tensor.New(tensor.WithShape(0), tensor.WithBacking([]float32(nil)))
}

// views are the tensors around one piece of memory, by their shapes: values of nodes in
// several graphs. They hold the memory until they are emptied.
type views []*Held

// mostViews bounds the views of a piece of memory. The oldest are emptied.
const mostViews = 64

// view returns the view of a shape, which begins with the memory's first element.
func view[E float32 | uint32](v *views, data []E, shape ...int) *Held {
	for _, h := range *v {
		if slices.Equal(h.Shape(), tensor.Shape(shape)) {
			return h
		}
	}
	if len(*v) == mostViews {
		Empty((*v)[0].Dense)
		*v = slices.Delete(*v, 0, 1)
	}
	h := hold(data, shape...)
	*v = append(*v, h)
	return h
}

// empty ends the use of the memory.
func (v *views) empty() {
	for _, h := range *v {
		Empty(h.Dense)
	}
	*v = nil
}
