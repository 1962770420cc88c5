package exec

import (
	"fmt"
	"hash"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
)

// Operator is an operator of package op. Its CUDA implementation embeds it, and has its
// identity, its shapes and its place in a plan.
type Operator interface {
	gorgonia.SDOp
	Planned

	// Spec returns the operator's parameters: one of the structs of spec.go.
	Spec() any
	// Layer returns the state of the attention layer that the operator belongs to, nil for
	// none.
	Layer() *State
	// Bind makes the operator compute under a step.
	Bind(s *Step)
	// BoundTo returns the step of the latest Bind, nil before.
	BoundTo() *Step
	// Stopped returns an error if the context of the operator's step is done.
	Stopped() error
	// CheckInputs checks number and types of the operator's inputs.
	CheckInputs(in []*gorgonia.Node) error
	// MergesWith reports whether other, which has the same hash, computes the same result.
	MergesWith(other gorgonia.Op) bool
	// WriteHashFor writes the identity of the operator's implementation on a device. It
	// differs from the operator's own.
	WriteHashFor(device string, h hash.Hash)
}

// DeviceOp is an operator's implementation on a GPU.
type DeviceOp interface {
	Operator
	// Unwrap returns the operator of package op.
	Unwrap() Operator
	// Precision is what values between operators are rounded to: Float32 or BFloat16.
	Precision() kernel.Precision
}

// Unwrap returns the operator of package op that o implements on a device, and any other
// operator as it is.
func Unwrap(o gorgonia.Op) gorgonia.Op {
	if d, ok := o.(DeviceOp); ok {
		return d.Unwrap()
	}
	return o
}

// SpecOf returns the Spec of an operator of package op or of its implementation on a
// device, nil of any other.
func SpecOf(o gorgonia.Op) any {
	if s, ok := o.(Operator); ok {
		return s.Spec()
	}
	return nil
}

// ModeOf returns the mode that an operator runs in: that of its own step, else that of the
// attention layers it is planned with, else Dense.
func ModeOf(o interface {
	StepMode() (m Mode, known bool)
	Placement() *Placement
}) Mode {
	if m, known := o.StepMode(); known {
		return m
	}
	if plan := o.Placement().Plan(); plan != nil {
		return plan.Mode()
	}
	return Dense
}

// StepInput returns the node of input i of an operator if it is an input of the graph, whose
// value is the same all through a step. It returns the step in progress and its number too,
// which no other step has. Without a step or a plan the node is nil.
func StepInput(o Operator, i int) (in *gorgonia.Node, step *Step, number uint64) {
	in, step = o.Placement().GraphInput(i), o.BoundTo()
	number, _, running := step.Current()
	if in == nil || !running {
		return nil, nil, 0
	}
	return in, step, number
}

// Describe returns the type and shape of a node, for errors.
func Describe(n *gorgonia.Node) string {
	if n == nil {
		return "nil"
	}
	if n.Type() == nil {
		return "a statement, which has no value"
	}
	if t, ok := n.Type().(gorgonia.TensorType); ok {
		return fmt.Sprintf("%v of shape %v", t.Of, n.Shape())
	}
	return fmt.Sprintf("a scalar %v", n.Type())
}
