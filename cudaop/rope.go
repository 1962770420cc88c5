//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rope runs op.RoPE.
type rope struct {
	heads, dim int
	theta      float64
}

// maxRotated is the largest head dimension that the kernel has room for.
const maxRotated = 512

func (r *rope) shape([]tensor.Shape) error {
	if r.dim > maxRotated {
		return fmt.Errorf("%w: head dimension %d, the GPU kernel takes up to %d", op.ErrShape, r.dim, maxRotated)
	}
	return nil
}

func (r *rope) ownsResult() bool { return false }

func (r *rope) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	positions, err := c.at(1, tensor.Int32)
	if err != nil {
		return nil, err
	}
	s := c.in[0].Shape()
	v, out, err := c.result(s[0], r.heads, s[1], r.dim)
	if err != nil {
		return nil, err
	}
	k, err := c.kernel("layers", "rope")
	if err != nil {
		return nil, err
	}
	return v, k.launch(s[0]*s[1], address(x), address(positions), address(out),
		integer(s[1]), integer(r.heads), integer(r.dim), float(r.theta), c.elements(), elementType(v.Dtype()))
}
