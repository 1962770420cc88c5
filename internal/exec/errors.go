package exec

import "errors"

// Errors of operators, for errors.Is. Package op exports all but ErrPlan.
var (
	ErrShape     = errors.New("wrong shape")
	ErrValue     = errors.New("wrong value")
	ErrNoMachine = errors.New("ran outside the machine of its controller")
	ErrOwner     = errors.New("belongs to another controller")
	ErrOrder     = errors.New("ran out of order")
	ErrStale     = errors.New("no valid column table")

	// ErrPlan: a run takes other memory than planned.
	ErrPlan = errors.New("memory plan")
)
