package exec

import "gorgonia.org/tensor"

// Held is a tensor that is the value of a node in more than one run, or of more than one
// node. Gorgonia's UnbindAllNonInputs clears every *tensor.Dense that is the value of a node
// and puts it into a pool. It does not touch values of other types, such as Held.
type Held struct{ *tensor.Dense }

// hold makes a tensor around data without copying it.
func hold[E float32 | uint32](data []E, shape ...int) *Held {
	return &Held{tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))}
}
