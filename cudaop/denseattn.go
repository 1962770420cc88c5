//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(s exec.DenseAttn) (implementation, error) { return &denseAttn{p: s.Attention}, nil })
}

// denseAttn runs op.NewDenseAttn.
type denseAttn struct {
	layerOp
	p exec.Attention
}

func (r *denseAttn) shape(in []tensor.Shape) error       { return checkAttention(in) }
func (r *denseAttn) run(c *call) (gorgonia.Value, error) { return denseResult(c, r.p) }

// denseResult is full attention as an operator's result.
func denseResult(c *call, p exec.Attention) (gorgonia.Value, error) {
	h, err := c.selected(p)
	if err != nil {
		return nil, err
	}
	v, out, err := c.attentionResult()
	if err != nil {
		return nil, err
	}
	return v, c.dense(h, out, 0)
}
