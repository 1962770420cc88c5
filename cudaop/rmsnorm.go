//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
)

func init() {
	register(func(s exec.RMSNorm) (implementation, error) { return &rmsNorm{spec: s}, nil })
}

// rmsNorm runs op.NewRMSNorm.
type rmsNorm struct {
	layerOp
	spec exec.RMSNorm
}

func (r *rmsNorm) weights() ([]kernel.Projection, []byte) { return nil, bytesOf(r.spec.Weight) }

func (r *rmsNorm) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	w, err := c.vector(bytesOf(r.spec.Weight))
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
	return v, k.launch(s[0]*s[1], address(x), address(w), address(out), integer(s[2]), float(float64(r.spec.Eps)), elementType(v.Dtype()))
}
