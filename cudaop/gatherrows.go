//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(exec.GatherRows) (implementation, error) { return gatherRows{}, nil })
}

// gatherRows runs op.NewGatherRows.
type gatherRows struct{ layerOp }

func (gatherRows) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	s, rows := c.in[0].Shape(), c.in[1].Shape()[0]
	v, out, err := c.result(1, rows, s[2])
	if err != nil {
		return nil, err
	}
	return v, c.gather(x, 1, out, s[0]*s[1], s[2], true, v.Dtype(), func(i int) error {
		return fmt.Errorf("%w: rows[%d] is not one of the input's %d rows", op.ErrValue, i, s[0]*s[1])
	})
}

// gather queues the copy of selected rows of a table [rows, cols] of the operator's own
// type, to out of type dt. Input i of the operator holds their indices; a negative
// one gives zeros if optional is set. An index outside the table makes the step fail
// with the error that explain gives for its position.
func (c *call) gather(table cu.DevicePtr, i int, out cu.DevicePtr, rows, cols int, optional bool, dt tensor.Dtype, explain func(int) error) error {
	index, err := c.at(i, tensor.Int32)
	if err != nil {
		return err
	}
	k, err := c.typed("gatherrows", c.o.dtype())
	if err != nil {
		return err
	}
	worst, err := c.check(explain)
	if err != nil {
		return err
	}
	return k.launch(c.in[i].Shape().TotalSize(), address(table), address(index), address(out), address(worst),
		integer(rows), integer(cols), flag(optional), elementType(dt))
}
