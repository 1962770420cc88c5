//go:build cuda

package cudaop

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// splitHeads runs op.SplitHeads.
type splitHeads struct{ heads, dim int }

func (r *splitHeads) shape([]tensor.Shape) error { return nil }
func (r *splitHeads) ownsResult() bool           { return false }

func (r *splitHeads) run(c *call) (gorgonia.Value, error) {
	s := c.in[0].Shape()
	return c.swapAxes(s[0], s[1], r.heads, r.dim, s[0], r.heads, s[1], r.dim)
}

// mergeHeads runs op.MergeHeads.
type mergeHeads struct{}

func (mergeHeads) shape([]tensor.Shape) error { return nil }
func (mergeHeads) ownsResult() bool           { return false }

func (mergeHeads) run(c *call) (gorgonia.Value, error) {
	s := c.in[0].Shape()
	return c.swapAxes(s[0], s[1], s[2], s[3], s[0], s[2], s[1]*s[3])
}

// vectorElements is how many elements of a row the layers' kernels move at a time.
const vectorElements = 8

// swapAxes turns the operator's input, seen as [batch,p,q,dim], into [batch,q,p,dim],
// which is the result under the given shape.
func (c *call) swapAxes(batch, p, q, dim int, shape ...int) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	v, out, err := c.result(shape...)
	if err != nil {
		return nil, err
	}
	k, err := c.kernel("layers", "swap_axes")
	if err != nil {
		return nil, err
	}
	return v, k.launchRows(1, batch*p*q*((dim+vectorElements-1)/vectorElements), address(x), address(out),
		integer(batch), integer(p), integer(q), integer(dim), c.elements(), elementType(v.Dtype()))
}
