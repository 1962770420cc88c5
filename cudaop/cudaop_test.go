package cudaop_test

import (
	"errors"
	"testing"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/op"
)

// TestWithoutCUDA: in a program without the CUDA operators Available returns an error, and
// Wrap returns the operator unchanged.
func TestWithoutCUDA(t *testing.T) {
	if cudaop.Compiled {
		t.Skip("this program has the CUDA operators")
	}
	if err := cudaop.Available(); !errors.Is(err, cudaop.ErrUnavailable) {
		t.Errorf("Available: %v, want ErrUnavailable", err)
	}
	o := op.NewAdd("sum")
	if w, err := cudaop.Wrap(o, op.AutoPrecision); err != nil || w != o {
		t.Errorf("Wrap: %v, %v, want the operator itself", w, err)
	}
}
