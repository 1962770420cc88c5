package cudaop

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// Compiled reports whether this program contains the CUDA operators.
const Compiled = false

// Available returns nil if operators can run on a GPU, and otherwise an error
// that wraps ErrUnavailable and says why not.
func Available() error {
	return fmt.Errorf("%w: this version of pulsecol has CPU operators only", ErrUnavailable)
}

// Wrap returns the GPU twin of an operator of package op. An operator that has
// none, which without CUDA is every operator, is returned as it is.
func Wrap(o gorgonia.Op) (gorgonia.Op, error) { return o, nil }
