//go:build cuda

package cudaop

import (
	"fmt"
	"unsafe"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// embedding runs op.Embed.
type embedding struct{ table *op.Weight }

func (r *embedding) shape([]tensor.Shape) error { return nil }
func (r *embedding) ownsResult() bool           { return false }

func (r *embedding) run(c *call) (gorgonia.Value, error) {
	table, err := c.matrix(r.table, c.o.dtype())
	if err != nil {
		return nil, err
	}
	s := c.in[0].Shape()
	v, out, err := c.result(s[0], s[1], r.table.Cols)
	if err != nil {
		return nil, err
	}
	bad, err := c.gather(table, 0, out, r.table.Rows, r.table.Cols, false, v.Dtype())
	if err != nil {
		return nil, err
	}
	if bad >= 0 {
		return nil, fmt.Errorf("%w: the token id at row %d, position %d is outside the vocabulary [0, %d)", op.ErrValue, bad/s[1], bad%s[1], r.table.Rows)
	}
	return v, nil
}

// gather queues the copy of chosen rows of a table [rows, cols] of the operator's own
// type, to out of type dt. Input i of the
// operator holds their indices; a negative one gives zeros if optional is set. It
// returns the position of an index that is outside the table, or -1.
func (c *call) gather(table cu.DevicePtr, i int, out cu.DevicePtr, rows, cols int, optional bool, dt tensor.Dtype) (bad int, err error) {
	index, err := c.at(i, tensor.Int32)
	if err != nil {
		return -1, err
	}
	k, err := c.kernel("layers", "gather")
	if err != nil {
		return -1, err
	}
	worst, err := c.room(4)
	if err != nil {
		return -1, err
	}
	var found int32
	if err := cu.MemcpyHtoD(worst, unsafe.Pointer(&found), 4); err != nil {
		return -1, fmt.Errorf("cudaop: gather: %w", err)
	}
	var negative uint64
	if optional {
		negative = 1
	}
	if err := k.launch(c.in[i].Shape().TotalSize(), address(table), address(index), address(out), address(worst),
		integer(rows), integer(cols), negative, c.elements(), elementType(dt)); err != nil {
		return -1, err
	}
	if err := cu.MemcpyDtoH(unsafe.Pointer(&found), worst, 4); err != nil {
		return -1, fmt.Errorf("cudaop: gather: %w", err)
	}
	return int(found) - 1, nil
}
