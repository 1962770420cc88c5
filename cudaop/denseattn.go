//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// denseAttn runs op.DenseAttn.
type denseAttn struct{ p op.AttentionParams }

func (r *denseAttn) shape(in []tensor.Shape) error       { return checkAttention(in) }
func (r *denseAttn) ownsResult() bool                    { return false }
func (r *denseAttn) run(c *call) (gorgonia.Value, error) { return denseResult(c, r.p) }

// denseResult is full attention as an operator's result.
func denseResult(c *call, p op.AttentionParams) (gorgonia.Value, error) {
	h, err := c.wanted(p)
	if err != nil {
		return nil, err
	}
	v, out, err := c.attended()
	if err != nil {
		return nil, err
	}
	return v, c.dense(h, out, 0)
}
