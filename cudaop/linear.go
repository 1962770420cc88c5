//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// linear runs op.Linear, by cuBLAS.
type linear struct {
	weight *op.Weight
	bias   []float32
}

func (r *linear) shape([]tensor.Shape) error { return nil }
func (r *linear) ownsResult() bool           { return false }

func (r *linear) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	w, err := c.matrix(r.weight, c.o.dtype())
	if err != nil {
		return nil, err
	}
	s := c.in[0].Shape()
	v, y, err := c.result(s[0], s[1], r.weight.Rows)
	if err != nil {
		return nil, err
	}
	beta := float32(0)
	if r.bias != nil {
		bias, err := c.vector(r.bias)
		if err != nil {
			return nil, err
		}
		k, err := c.kernel("layers", "repeat")
		if err != nil {
			return nil, err
		}
		if err := k.launch(s[0]*s[1], address(bias), address(y), integer(r.weight.Rows), elementType(v.Dtype())); err != nil {
			return nil, err
		}
		beta = 1
	}
	return v, c.blas.linear(y, x, w, s[0]*s[1], r.weight.Cols, r.weight.Rows, beta, c.o.dtype(), v.Dtype())
}

// logits runs op.Logits. Rows that nobody wants cost as much as others, so that
// the product is one.
type logits struct{ weight *op.Weight }

func (r *logits) shape([]tensor.Shape) error { return nil }
func (r *logits) ownsResult() bool           { return false }

func (r *logits) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	w, err := c.matrix(r.weight, c.o.dtype())
	if err != nil {
		return nil, err
	}
	s, rows := c.in[0].Shape(), c.in[1].Shape()[0]
	chosen, err := c.room(int64(rows) * int64(s[2]) * int64(c.o.dtype().Size()))
	if err != nil {
		return nil, err
	}
	bad, err := c.gather(x, 1, chosen, s[0]*s[1], s[2], true, c.o.dtype())
	if err != nil {
		return nil, err
	}
	if bad >= 0 {
		return nil, fmt.Errorf("%w: rows[%d] is not one of the input's %d rows", op.ErrValue, bad, s[0]*s[1])
	}
	v, y, err := c.result(rows, r.weight.Rows)
	if err != nil {
		return nil, err
	}
	return v, c.blas.linear(y, chosen, w, rows, r.weight.Cols, r.weight.Rows, 0, c.o.dtype(), v.Dtype())
}
