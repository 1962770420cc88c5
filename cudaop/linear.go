//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(s exec.Linear) (implementation, error) { return &linear{spec: s}, nil })
}

// linear runs op.NewLinear and op.NewAddLinear as one product.
type linear struct {
	layerOp
	spec exec.Linear
}

func (r *linear) weights() ([]kernel.Projection, []byte) { return r.spec.Parts, nil }

func (r *linear) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	s, parts := c.in[0].Shape(), r.spec.Parts
	out := []int{s[0], s[1], outputs(parts)}
	if !r.spec.Residual {
		v, y, err := c.result(out...)
		if err != nil {
			return nil, err
		}
		return v, c.project(parts, y, x, 0, s[0]*s[1], v.Dtype())
	}
	v, y, residual, err := c.sumResult(1, out...)
	if err != nil {
		return nil, err
	}
	return v, c.project(parts, y, x, residual, s[0]*s[1], v.Dtype())
}

// project queues the product of n rows of x, of the operator's own type, with the
// weights of projections; the result is of type to, as is the residual, which may be
// 0.
func (c *call) project(p []kernel.Projection, y, x, residual cu.DevicePtr, n int, to tensor.Dtype) error {
	product, err := c.product(p, y, x, residual, n, to)
	if err != nil {
		return err
	}
	return c.multiply(product)
}

// product describes what project queues.
func (c *call) product(p []kernel.Projection, y, x, residual cu.DevicePtr, n int, to tensor.Dtype) (product, error) {
	w, err := c.matrix(p, c.o.dtype())
	if err != nil {
		return product{}, err
	}
	bias, err := c.bias(p, to)
	return product{y: y, x: x, w: w, bias: bias, residual: residual, inPlace: residual == y, n: n, in: p[0].Weight.Cols, out: outputs(p), dt: c.o.dtype(), to: to}, err
}
