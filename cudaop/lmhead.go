//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(s exec.LMHead) (implementation, error) { return &lmHead{weight: single(s.Weight)}, nil })
}

// lmHead runs op.NewLMHead. It computes rows that are not selected too, so that there is one
// product.
type lmHead struct {
	weight   []kernel.Projection
	deferred *deferredLogits // nil: the logits are computed in the step
}

func (r *lmHead) shape([]tensor.Shape) error { return nil }
func (r *lmHead) ownsResult() bool           { return r.deferred != nil }

func (r *lmHead) weights() ([]kernel.Projection, []byte) { return r.weight, nil }

func (r *lmHead) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	rows := c.in[1].Shape()[0]
	if r.deferred != nil {
		return r.deferred.run(c, x, rows)
	}
	v, y, err := c.result(rows, outputs(r.weight))
	if err != nil {
		return nil, err
	}
	return v, c.project(r.weight, y, x, 0, rows, v.Dtype())
}
