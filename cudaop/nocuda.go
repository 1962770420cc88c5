//go:build !cuda

package cudaop

import (
	"context"
	"fmt"

	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// Compiled reports whether this program contains the CUDA operators.
const Compiled = false

// Available returns nil if operators can run on a GPU, and otherwise an error
// that wraps ErrUnavailable and says why not.
func Available() error {
	return fmt.Errorf("%w: the program was built without -tags cuda", ErrUnavailable)
}

// Wrap returns the CUDA implementation of an operator of package op. Without -tags cuda
// there is none, and it returns the operator as it is.
func Wrap(o gorgonia.Op, _ op.Precision) (gorgonia.Op, error) { return o, nil }

// NewTapeMachine is gorgonia.NewTapeMachine with errors for its panics.
func NewTapeMachine(g *gorgonia.ExprGraph, opts ...gorgonia.VMOpt) (vm gorgonia.VM, err error) {
	defer func() {
		if r := recover(); r != nil {
			vm, err = nil, fmt.Errorf("cudaop: tape machine: %v", r)
		}
	}()
	return gorgonia.NewTapeMachine(g, opts...), nil
}

// Close closes a machine.
func Close(vm gorgonia.VM) error { return vm.Close() }

// Flush does nothing: without -tags cuda nothing is buffered.
func Flush(gorgonia.VM) error { return nil }

// PlanMemory returns the GPU memory that graphs take: without -tags cuda none.
func PlanMemory([]op.Mode, ...*gorgonia.ExprGraph) (Need, error) { return Need{}, nil }

// Reserve returns nil: without -tags cuda no graph takes GPU memory.
func Reserve(gorgonia.VM, *gorgonia.ExprGraph, []op.Mode) error { return nil }

// Load does nothing: without -tags cuda weights stay where they are.
func Load(context.Context, gorgonia.VM, *gorgonia.ExprGraph, func(done, total int64)) error {
	return nil
}

func init() {
	gpu.RegisterMeasure(func(gpu.MeasureOptions, func(gpu.Measurement) error) error { return Available() })
}
