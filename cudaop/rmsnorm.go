//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rmsNorm runs op.RMSNorm.
type rmsNorm struct {
	weight []float32
	eps    float64
}

func (r *rmsNorm) shape([]tensor.Shape) error { return nil }
func (r *rmsNorm) ownsResult() bool           { return false }

func (r *rmsNorm) weights() ([]op.Projection, []byte) { return nil, bytesOf(r.weight) }

func (r *rmsNorm) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	w, err := c.vector(bytesOf(r.weight))
	if err != nil {
		return nil, err
	}
	s := c.in[0].Shape()
	v, out, err := c.result(s...)
	if err != nil {
		return nil, err
	}
	k, err := c.typed("rmsnorm", c.o.dtype())
	if err != nil {
		return nil, err
	}
	return v, k.launch(s[0]*s[1], address(x), address(w), address(out), integer(s[2]), float(r.eps), elementType(v.Dtype()))
}
