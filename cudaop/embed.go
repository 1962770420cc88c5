//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// embedding runs op.Embed.
type embedding struct{ table []op.Projection }

func (r *embedding) shape([]tensor.Shape) error { return nil }
func (r *embedding) ownsResult() bool           { return false }

func (r *embedding) weights() ([]op.Projection, []byte) { return r.table, nil }

func (r *embedding) run(c *call) (gorgonia.Value, error) {
	table, err := c.matrix(r.table, c.o.dtype())
	if err != nil {
		return nil, err
	}
	s, w := c.in[0].Shape(), &r.table[0].Weight
	v, out, err := c.result(s[0], s[1], w.Cols)
	if err != nil {
		return nil, err
	}
	return v, c.gather(table, 0, out, w.Rows, w.Cols, false, v.Dtype(), func(i int) error {
		return fmt.Errorf("%w: the token id at row %d, position %d is outside the vocabulary [0, %d)", op.ErrValue, i/s[1], i%s[1], w.Rows)
	})
}

// gather queues the copy of chosen rows of a table [rows, cols] of the operator's own
// type, to out of type dt. Input i of the operator holds their indices; a negative
// one gives zeros if optional is set. One outside of the table makes the step fail
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
