//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// linear runs op.Linear as one product.
type linear struct {
	parts    []op.Projection
	residual bool
}

func (r *linear) shape([]tensor.Shape) error { return nil }
func (r *linear) ownsResult() bool           { return false }

func (r *linear) weights() ([]op.Projection, []byte) { return r.parts, nil }

func (r *linear) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	s := c.in[0].Shape()
	out := []int{s[0], s[1], outputs(r.parts)}
	if !r.residual {
		v, y, err := c.result(out...)
		if err != nil {
			return nil, err
		}
		return v, c.project(r.parts, y, x, 0, s[0]*s[1], v.Dtype())
	}
	v, y, residual, err := c.resultOver(1, out...)
	if err != nil {
		return nil, err
	}
	return v, c.project(r.parts, y, x, residual, s[0]*s[1], v.Dtype())
}

// project queues the product of n rows of x, of the operator's own type, with the
// weights of projections; the result is of type to, as is the residual, which may be
// 0.
func (c *call) project(p []op.Projection, y, x, residual cu.DevicePtr, n int, to tensor.Dtype) error {
	w, err := c.matrix(p, c.o.dtype())
	if err != nil {
		return err
	}
	bias, err := c.bias(p, to)
	if err != nil {
		return err
	}
	return c.multiply(product{y: y, x: x, w: w, bias: bias, residual: residual, inPlace: residual == y, n: n, in: p[0].Weight.Cols, out: outputs(p), dt: c.o.dtype(), to: to})
}

// swiGLU runs op.SwiGLU: one product gives gate and up of some tokens side by side,
// and a kernel what becomes of them, before the next tokens take their place.
type swiGLU struct{ parts []op.Projection }

// maxGateUp is the most memory that gate and up take, in bytes. From 2,048 tokens of
// an 8B model on it makes no difference how many there are at a time.
const maxGateUp = 512 << 20

func (r *swiGLU) shape([]tensor.Shape) error { return nil }
func (r *swiGLU) ownsResult() bool           { return false }

func (r *swiGLU) weights() ([]op.Projection, []byte) { return r.parts, nil }

// together is how many of n tokens have gate and up at a time, of row bytes each;
// size is that of an element.
func (r *swiGLU) together(n int, size int64) (rows int, row int64) {
	row = int64(outputs(r.parts)) * size
	chunks := max(1, int((int64(n)*row+maxGateUp-1)/maxGateUp))
	return min(n, ((n+chunks-1)/chunks+255)&^255), row
}

func (r *swiGLU) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	s, features := c.in[0].Shape(), r.parts[0].Weight.Rows
	v, y, err := c.result(s[0], s[1], features)
	if err != nil {
		return nil, err
	}
	dt := v.Dtype() // of gate and up as well
	k, err := c.typed("swiglu", dt)
	if err != nil {
		return nil, err
	}
	n := s[0] * s[1]
	rows, row := r.together(n, int64(dt.Size()))
	both, err := c.scratch(int64(rows) * row)
	if err != nil {
		return nil, err
	}
	for first := 0; first < n; first += rows {
		count := min(rows, n-first)
		from, to := x+cu.DevicePtr(int64(first*s[2])*int64(c.o.dtype().Size())), y+cu.DevicePtr(int64(first)*row/2)
		if err := c.project(r.parts, both, from, 0, count, dt); err != nil {
			return nil, err
		}
		if err := k.launchRows(count, features, address(both), address(to), integer(features), elementType(dt)); err != nil {
			return nil, err
		}
	}
	return v, nil
}
