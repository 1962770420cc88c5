//go:build cuda

package cudaop

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// check is what a kernel may find wrong with its input. Asking at once would make the
// host wait for the GPU in the middle of a step, so that is left to the next
// operator whose result goes to the machine, which waits anyway.
type check struct {
	o       *Op
	word    cu.DevicePtr // int32: 0, or 1 plus the position of what is wrong
	explain func(position int) error
}

// check returns a word that is 0 for a kernel to write to.
func (c *call) check(explain func(position int) error) (word cu.DevicePtr, err error) {
	if word, err = c.memory.get(4); err != nil {
		return 0, err
	}
	c.checks = append(c.checks, check{c.o, word, explain})
	if ws, _ := c.o.Planned(); ws != nil {
		c.releaseOn(ws)
	}
	return word, c.queue.fill(word, 0, 1)
}

// checked returns the first thing that kernels have found wrong.
func (c *call) checked() error {
	defer c.dropChecks()
	for _, ch := range c.checks {
		var found int32
		if err := c.queue.toHost(unsafe.Pointer(&found), ch.word, 4); err != nil {
			return fmt.Errorf("cudaop: check: %w", err)
		}
		switch {
		case found == 0:
		case ch.o == c.o: // whose name the error gets anyway
			return ch.explain(int(found) - 1)
		default:
			return fmt.Errorf("%v: %w", ch.o, ch.explain(int(found)-1))
		}
	}
	return nil
}

func (d *device) dropChecks() {
	for _, c := range d.checks {
		d.memory.put(c.word)
	}
	d.checks = d.checks[:0]
}
