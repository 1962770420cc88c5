package op

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Grad is gorgonia.Grad, the gradients of cost with respect to wrt, with two
// differences. A panic of Gorgonia becomes an error. And errors.Is finds the error of
// an operator, as ErrNoGradient, inside the returned one: gorgonia.Grad returns a
// gorgonia.SymDiffError, which has its message and no Unwrap. An input on which cost
// depends in no differentiable way is an ErrNoGradient as well.
func Grad(cost *gorgonia.Node, wrt ...*gorgonia.Node) (grads gorgonia.Nodes, err error) {
	defer func() {
		if r := recover(); r != nil {
			grads, err = nil, fmt.Errorf("op: gorgonia.Grad: %v", r)
		}
	}()
	grads, err = gorgonia.Grad(cost, wrt...)
	var failed gorgonia.SymDiffError
	if !errors.As(err, &failed) {
		return grads, err
	}
	switch at := failed.Node(); {
	case at == nil && slices.Contains(failed.Nodes(), cost):
		return nil, fmt.Errorf("op: %v %w with respect to %v: %w", cost, ErrNoGradient, gorgonia.Nodes(wrt), err)
	case at == nil:
		return nil, fmt.Errorf("op: %v %w with respect to %v: %w", cost, ErrNoGradient, failed.Nodes(), err)
	case failed.Grad() == nil: // Gorgonia's own
		return nil, err
	}
	// A second call of the failed operator's SymDiff returns its error.
	at := failed.Node()
	o, ok := at.Op().(exec.Operator)
	if !ok {
		return nil, err
	}
	var inputs gorgonia.Nodes
	for it := at.Graph().From(at.ID()); it.Next(); {
		inputs = append(inputs, it.Node().(*gorgonia.Node))
	}
	if _, cause := o.SymDiff(inputs, at, failed.Grad()); cause != nil {
		return nil, &gradError{err, cause}
	}
	return nil, err
}

// gradError is an error of gorgonia.Grad and the operator's error inside it.
type gradError struct{ error, cause error }

func (e *gradError) Error() string   { return e.error.Error() }
func (e *gradError) Unwrap() []error { return []error{e.error, e.cause} }

// gradient returns the gradient that a Lisp machine has bound to a node. It is a live
// view of the sum over the node's readers.
func gradient(n *gorgonia.Node) (*tensor.Dense, error) {
	v, err := n.Grad()
	if err != nil {
		return nil, fmt.Errorf("gradient of %v: %w", n, err)
	}
	t, ok := v.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("%w: the gradient of %v is a %T, want a *tensor.Dense", ErrValue, n, v)
	}
	return t, nil
}

// isZero reports whether all elements of a gradient are zero, NaN not being so.
func isZero(grad *tensor.Dense) bool {
	switch data := grad.Data().(type) {
	case []float32:
		return !slices.ContainsFunc(data, func(x float32) bool { return x != 0 })
	case []uint32:
		return !slices.ContainsFunc(data, func(x uint32) bool { return x != 0 })
	}
	return false
}
