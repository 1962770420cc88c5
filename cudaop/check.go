//go:build cuda

package cudaop

import (
	"fmt"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
)

// check is an error that a kernel may find in its input. Reading it at once would make the
// host wait for the GPU in the middle of a step, so the next operator whose result goes to the
// machine reads it, because that operator waits anyway.
type check struct {
	o       *deviceOp
	word    cu.DevicePtr // int32: 0, or 1 plus the position of the error
	explain func(position int) error
}

// checkKey is that of an operator's word.
type checkKey struct{ o *deviceOp }

// check returns a word that is 0 for a kernel to write to.
func (c *call) check(explain func(position int) error) (word cu.DevicePtr, err error) {
	if word, err = c.keep(checkKey{c.o}, 4, exec.Activations); err != nil || c.isPlan() {
		return word, err
	}
	c.checks = append(c.checks, check{c.o, word, explain})
	return word, c.queue.fill(word, 0, 1)
}

// checked returns the first thing that kernels have found wrong.
func (c *call) checked() error {
	defer func() { c.checks = c.checks[:0] }()
	for _, ch := range c.checks {
		var found int32
		if err := c.queue.toHost(unsafe.Pointer(&found), ch.word, 4); err != nil {
			return fmt.Errorf("cudaop: check: %w", err)
		}
		switch {
		case found == 0:
		case ch.o == c.o: // the caller adds its name
			return ch.explain(int(found) - 1)
		default:
			return fmt.Errorf("%v: %w", ch.o, ch.explain(int(found)-1))
		}
	}
	return nil
}
