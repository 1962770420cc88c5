//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
)

func init() {
	register(func(exec.Add) (implementation, error) { return add{}, nil })
}

// add runs op.NewAdd.
type add struct{ layerOp }

func (add) run(c *call) (gorgonia.Value, error) {
	a, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	b, err := c.operand(1)
	if err != nil {
		return nil, err
	}
	v, out, err := c.result(c.in[0].Shape()...)
	if err != nil {
		return nil, err
	}
	k, err := c.typed("add", c.o.dtype())
	if err != nil {
		return nil, err
	}
	n := c.in[0].Shape().TotalSize()
	return v, k.launchRows(1, n, address(a), address(b), address(out), integer(n), elementType(v.Dtype()))
}
