package op

import (
	"errors"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/mapped"
)

// Errors that callers may test for with errors.Is.
var (
	// ErrShape: an input's type, rank or sizes do not fit the operator.
	ErrShape = exec.ErrShape
	// ErrValue: a parameter or a value at run time is outside of the operator's range.
	ErrValue = exec.ErrValue
	// ErrNoGradient: the operator is not differentiable. gorgonia.Grad hides it from
	// errors.Is; Grad does not.
	ErrNoGradient = errors.New("has no gradient")
	// ErrMerged: Gorgonia would silently run another operator instead.
	ErrMerged = errors.New("merged")
	// ErrNoMachine: an operator of a controller's layer ran outside the machine that the
	// controller is attached to.
	ErrNoMachine = exec.ErrNoMachine
	// ErrOwner: an operator belongs to another controller, or to its machine.
	ErrOwner = exec.ErrOwner
	// ErrOrder: the operators of one layer did not run in order within a step.
	ErrOrder = exec.ErrOrder
	// ErrStale: there is no column table, or an error interrupted its refresh.
	ErrStale = exec.ErrStale
	// ErrStopped: the context of the step was done before the operator was.
	ErrStopped = errors.New("stopped")
	// ErrLost: a file with weights was truncated or could not be read.
	ErrLost = mapped.ErrLost
	// ErrInternal: a defect of this package, caught at the operator's boundary.
	ErrInternal = errors.New("internal error")
	// ErrGraph: Check found something that Gorgonia would compute wrongly.
	ErrGraph = errors.New("graph would compute wrong values")
)
