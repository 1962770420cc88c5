//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
)

// leaf is a copy of one of the graph's inputs. To read what the machine has copied an
// operator goes through the engine's thread, which takes longer than to launch a kernel;
// copies of our own are read like any other value. Rotations alone read the positions
// twice in each block.
type leaf struct {
	at     cu.DevicePtr
	step   *op.Step
	number uint64 // of the step that the value is of
}

// leafBytes bounds what is copied: this much takes a GPU a few microseconds.
const leafBytes = 4 << 20

// leaf returns the copy of an operator's input i, 0 if there is none in this step.
func (d *device) leaf(o *Op, i int) cu.DevicePtr {
	node, step, number := o.Leaf(i)
	if l := d.leaves[node]; node != nil && l.step == step && l.number == number {
		return l.at
	}
	return 0
}

// copyLeaves queues copies of those of the inputs that have none yet in this step.
func (c *call) copyLeaves() error {
	for i, in := range c.in {
		node, step, number := c.o.Leaf(i)
		bytes := int64(in.MemSize())
		if node == nil || bytes > leafBytes || c.leaf(c.o, i) != 0 {
			continue
		}
		l := c.leaves[node] // of a step before
		if l.at == 0 {
			var err error
			if l.at, err = c.memory.get(bytes); err != nil {
				return err
			}
		}
		if err := c.queue.copy(l.at, cu.DevicePtr(in.Uintptr()), bytes); err != nil {
			return err
		}
		c.leaves[node] = leaf{l.at, step, number}
	}
	return nil
}

// input returns where input i lies, or its copy.
func (c *call) input(i int) cu.DevicePtr {
	if at := c.leaf(c.o, i); at != 0 {
		return at
	}
	return cu.DevicePtr(c.in[i].Uintptr())
}
