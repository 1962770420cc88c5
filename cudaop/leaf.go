//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
)

// leaves are copies of the graph's inputs, of the step in progress. To read what the
// machine has copied an operator goes through the engine's thread, which takes longer
// than to launch a kernel; copies of our own are read like any other value. Rotations
// alone read the positions twice in each block.
type leaves struct {
	step   *op.Step
	number uint64 // of the step
	copies map[*gorgonia.Node]cu.DevicePtr
}

// leafBytes bounds what is copied: this much takes a GPU a few microseconds.
const leafBytes = 4 << 20

// of returns the copy of the operator's input i, 0 if there is none.
func (l *leaves) of(o *Op, i int) cu.DevicePtr {
	node, step, number := o.Leaf(i)
	if node == nil || l.step != step || l.number != number {
		return 0
	}
	return l.copies[node]
}

// copyLeaves queues copies of those of the inputs that have none yet in this step.
func (c *call) copyLeaves() error {
	for i, in := range c.in {
		node, step, number := c.o.Leaf(i)
		bytes := int64(in.MemSize())
		if node == nil || bytes > leafBytes || c.leaves.of(c.o, i) != 0 {
			continue
		}
		if l := &c.leaves; l.step != step || l.number != number {
			for _, at := range l.copies {
				c.memory.put(at)
			}
			*l = leaves{step, number, map[*gorgonia.Node]cu.DevicePtr{}}
		}
		at, err := c.memory.get(bytes)
		if err != nil {
			return err
		}
		if err := cu.MemcpyDtoD(at, cu.DevicePtr(in.Uintptr()), bytes); err != nil {
			c.memory.put(at)
			return fmt.Errorf("cudaop: copy of the input %v: %w", node, err)
		}
		c.leaves.copies[node] = at
	}
	return nil
}

// input returns where input i lies, or its copy.
func (c *call) input(i int) cu.DevicePtr {
	if at := c.leaves.of(c.o, i); at != 0 {
		return at
	}
	return cu.DevicePtr(c.in[i].Uintptr())
}
