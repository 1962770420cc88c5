package op

import (
	"errors"

	"github.com/pulsecol/pulsecol/internal/mapped"
)

// Errors that callers may test for with errors.Is.
var (
	// ErrShape: an input's type, rank or sizes do not fit the operator.
	ErrShape = errors.New("wrong shape")
	// ErrValue: a value at run time is not what the operator needs.
	ErrValue = errors.New("wrong value")
	// ErrNoGradient: the operator is not differentiable. gorgonia.Grad hides it from
	// errors.Is; Grad does not.
	ErrNoGradient = errors.New("has no gradient")
	// ErrMerged: Gorgonia would silently run another operator instead.
	ErrMerged = errors.New("merged")
	// ErrNoMachine: an operator with a State ran outside the machine its
	// controller is attached to.
	ErrNoMachine = errors.New("ran outside the machine of its controller")
	// ErrOwner: an operator belongs to another controller, or to its machine.
	ErrOwner = errors.New("belongs to another controller")
	// ErrOrder: the operators of one layer did not run in order within a step.
	ErrOrder = errors.New("ran out of order")
	// ErrStale: there is no column table, or an error left it half built.
	ErrStale = errors.New("no valid column table")
	// ErrStopped: the context of the step was done before the operator was.
	ErrStopped = errors.New("stopped")
	// ErrLost: weights lie in a file that was cut short, or could not be read.
	ErrLost = mapped.ErrLost
	// ErrInternal: a defect of this package, caught at the operator's boundary.
	ErrInternal = errors.New("internal error")
	// ErrGraph: Check found something that Gorgonia would compute wrongly.
	ErrGraph = errors.New("graph would compute wrong values")
)
