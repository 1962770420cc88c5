//go:build cuda

package cudaop

import (
	"errors"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
)

// Operators read copies of the graph's inputs. To read an input in the machine's GPU memory an
// operator has to wait for the engine's thread, which takes longer than launching a kernel.
// The first reader in a step copies it; later ones read the copy like any other value. In
// each block two rotations read the positions.

// maxCopied bounds the bytes of an input that is copied: this much takes a GPU a few
// microseconds.
const maxCopied = 4 << 20

// isCopied reports whether input i of an operator is an input of the graph that is copied.
func isCopied(at *exec.Placement, i int, v gorgonia.Value) bool {
	return i < maxInputs && at.GraphInput(i) != nil && int64(v.MemSize()) <= maxCopied
}

// hasCopy reports whether the copy of an operator's input i is of the step in progress.
func (d *runner) hasCopy(o *deviceOp, i int) bool {
	node, _, number := exec.StepInput(o, i)
	return node != nil && d.copied[node] == number
}

// copyInputs finds the copies of inputs of the graph. With queue set it queues those that
// the step does not have yet.
func (c *call) copyInputs(queue bool) error {
	for i, v := range c.in {
		if !isCopied(c.o.Placement(), i, v) {
			continue
		}
		at, err := c.keep(c.o.Placement().GraphInput(i), int64(v.MemSize()), exec.Activations)
		if err != nil {
			return err
		}
		node, _, number := exec.StepInput(c.o, i)
		switch {
		case c.isPlan() || node == nil: // outside a step inputs may change at any time
		case c.copied[node] == number:
			c.copies[i] = at
		case queue:
			if err := c.queue.copy(at, cu.DevicePtr(v.Uintptr()), int64(v.MemSize())); err != nil {
				return err
			}
			c.copied[node] = number
			c.copies[i] = at
		}
	}
	return nil
}

// input returns the address of input i, or of its copy.
func (c *call) input(i int) cu.DevicePtr {
	if i < maxInputs && c.copies[i] != 0 {
		return c.copies[i]
	}
	return cu.DevicePtr(c.in[i].Uintptr())
}

// firstRowKey is the key of what firstRow returns.
type firstRowKey struct{}

// firstRow returns the address of an int32: the position of the first row that the step
// computes over a cache. Kernels read it there, and take other positions relative to it, so
// that the steps of all blocks are the same commands.
func (c *call) firstRow() (cu.DevicePtr, error) {
	at, err := c.keep(firstRowKey{}, 4, exec.Activations)
	if err != nil || c.isPlan() || c.firstRowOf == c.step {
		return at, err
	}
	c.firstRowOf = c.step
	first := uint32(c.o.BoundTo().Pass().First)
	return at, errors.Join(c.queue.flush(), c.queue.fill(at, first, 1), c.queue.flush()) // a segment of its own
}
