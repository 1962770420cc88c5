//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Operators read copies of the graph's inputs, which the first reader in a step makes from the
// host. To read an input in the machine's own GPU memory an operator has to wait for the
// engine's thread, which takes longer than launching a kernel: at the start of a step while
// the GPU is idle, and in each block, where two rotations read the positions.

// maxCopied bounds the bytes of an input that is copied: this much takes a GPU a few
// microseconds.
const maxCopied = 4 << 20

// isCopied reports whether input i of an operator is an input of the graph that is copied.
func isCopied(at *exec.Placement, i int, v gorgonia.Value) bool {
	return i < maxInputs && at.GraphInput(i) != nil && int64(v.MemSize()) <= maxCopied
}

// onHost returns where the value of an operator's input i is on the host, if a copy of it
// serves the whole step in progress; else nil.
func onHost(o *deviceOp, i int, v gorgonia.Value) (from unsafe.Pointer, node *gorgonia.Node, number uint64) {
	node, _, number = exec.StepInput(o, i)
	if node == nil { // outside a step inputs may change at any time
		return nil, nil, 0
	}
	t, ok := node.Value().(*tensor.Dense)
	if !ok || t.MemSize() != v.MemSize() || t.Dtype() != v.Dtype() || t.RequiresIterator() {
		return nil, nil, 0
	}
	data := reflect.ValueOf(t.Data())
	if data.Kind() != reflect.Slice {
		return nil, nil, 0
	}
	return data.UnsafePointer(), node, number
}

// copyInputs finds the copies of inputs of the graph, and makes those that the step does not
// have yet.
func (c *call) copyInputs() error {
	for i, v := range c.in {
		if !isCopied(c.o.Placement(), i, v) {
			continue
		}
		at, err := c.keep(c.o.Placement().GraphInput(i), int64(v.MemSize()), exec.Activations)
		if err != nil {
			return err
		}
		if c.isPlan() {
			continue
		}
		from, node, number := onHost(c.o, i, v)
		if from == nil {
			continue
		}
		if c.copied[node] != number {
			if err := c.queue.toGPU(at, from, int64(v.MemSize())); err != nil {
				return fmt.Errorf("cudaop: copy of an input: %w", err)
			}
			c.copied[node] = number
		}
		c.copies[i] = at
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
