//go:build cuda

package cudaop

import (
	"fmt"

	_ "github.com/pulsecol/pulsecol/cudaop/compat" // so that vendoring keeps the headers that cudaenv points to
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
)

// Compiled reports whether this program contains the CUDA operators.
const Compiled = true

// minCapability is that of the first GPUs with bf16: Ampere.
const minCapability = 80

// Available returns nil if operators can run on the first GPU, the one that
// Gorgonia uses, and otherwise an error that wraps ErrUnavailable and says why not.
// Without a working driver a program with the cuda tag does not reach Available:
// gorgonia.org/cu ends it at its start, with a message.
func Available() error {
	n, err := cu.NumDevices()
	if err == nil && n == 0 {
		return fmt.Errorf("%w: the driver finds no GPU", ErrUnavailable)
	}
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	dev, err := cu.GetDevice(0)
	if err != nil {
		return fmt.Errorf("%w: GPU 0: %v", ErrUnavailable, err)
	}
	major, minor, err := dev.ComputeCapability()
	if err != nil {
		return fmt.Errorf("%w: GPU 0: %v", ErrUnavailable, err)
	}
	if 10*major+minor < minCapability {
		return fmt.Errorf("%w: GPU 0 has compute capability %d.%d, want at least %d.%d", ErrUnavailable, major, minor, minCapability/10, minCapability%10)
	}
	return nil
}

// Wrap returns the CUDA implementation of an operator of package op, which takes the same
// inputs and gives the same results, to the precision p. With Float32 it rounds nothing but
// sums. With BFloat16, the meaning of AutoPrecision, it computes from values rounded to that,
// and sums in float32. Between such operators that a Workspace has planned, values stay on
// the GPU in that form.
//
// The error wraps op.ErrValue and names an unsupported parameter: Int16 or Int8, and outside a
// controller's layer padding masks and selections other than single columns.
func Wrap(o gorgonia.Op, p op.Precision) (gorgonia.Op, error) {
	switch p {
	case op.AutoPrecision:
		p = op.BFloat16
	case op.Float32, op.BFloat16:
	default:
		return nil, fmt.Errorf("cudaop: %v: %w: precision %v runs on the CPU only", o, op.ErrValue, p)
	}
	inner, impl, err := implement(o)
	if err != nil {
		return nil, fmt.Errorf("cudaop: %v: %w", o, err)
	}
	return &deviceOp{Operator: inner, precision: p, impl: impl}, nil
}
