//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// takeRows runs op.TakeRows.
type takeRows struct{}

func (takeRows) shape([]tensor.Shape) error { return nil }
func (takeRows) ownsResult() bool           { return false }

func (takeRows) run(c *call) (gorgonia.Value, error) {
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
