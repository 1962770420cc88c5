//go:build cuda

package cudaop

import (
	"fmt"
	"math"
	"sync"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// layerThreads is the number of threads of a block of the layers' kernels.
const layerThreads = 256

// takeHeads runs op.SplitHeads, and with frequencies op.RoPE.
type takeHeads struct {
	heads       op.Heads
	frequencies []float64 // of the pairs of a head, in half-turns a position
}

func newRotation(h op.Heads, theta float64) *takeHeads {
	return &takeHeads{heads: h, frequencies: frequencies(h.Dim, theta)}
}

// rotation is what the frequencies of RoPE depend on.
type rotation struct {
	dim   int
	theta float64
}

// rotations are the frequencies that are known: those of all layers lie in one place.
var rotations sync.Map // rotation -> []float64

func frequencies(dim int, theta float64) []float64 {
	f := make([]float64, dim/2)
	for d := range f {
		f[d] = math.Pow(theta, -2*float64(d)/float64(dim)) / math.Pi
	}
	known, _ := rotations.LoadOrStore(rotation{dim, theta}, f)
	return known.([]float64)
}

func (r *takeHeads) weights() ([]op.Projection, []byte) { return nil, bytesOf(r.frequencies) }

func (r *takeHeads) shape([]tensor.Shape) error {
	if r.heads.Dim%2 != 0 || r.heads.Dim > 2*layerThreads {
		return fmt.Errorf("%w: head dimension %d, the GPU kernel takes even ones up to %d", op.ErrShape, r.heads.Dim, 2*layerThreads)
	}
	return nil
}

func (r *takeHeads) ownsResult() bool { return false }

func (r *takeHeads) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	var positions, frequencies cu.DevicePtr
	if r.frequencies != nil {
		if positions, err = c.at(1, tensor.Int32); err != nil {
			return nil, err
		}
		if frequencies, err = c.vector(bytesOf(r.frequencies)); err != nil {
			return nil, err
		}
	}
	s, h := c.in[0].Shape(), r.heads
	v, out, err := c.result(s[0], h.Count, s[1], h.Dim)
	if err != nil {
		return nil, err
	}
	k, err := c.typed("rope", c.o.dtype())
	if err != nil {
		return nil, err
	}
	first := x + cu.DevicePtr(h.First*h.Dim*int(c.o.dtype().Size()))
	tokens, together := s[0]*s[1], layerThreads/(h.Dim/2) // of a block
	return v, k.launch((tokens+together-1)/together, address(first), address(positions), address(frequencies), address(out),
		integer(tokens), integer(s[1]), integer(h.Count), integer(h.Dim), integer(s[2]), elementType(v.Dtype()))
}

// mergeHeads runs op.MergeHeads.
type mergeHeads struct{}

func (mergeHeads) shape([]tensor.Shape) error { return nil }
func (mergeHeads) ownsResult() bool           { return false }

func (mergeHeads) run(c *call) (gorgonia.Value, error) {
	s := c.in[0].Shape()
	shape := []int{s[0], s[2], s[1] * s[3]}
	if t, ours := c.in[0].(*deviceTensor); ours && t.bnhd { // merged already
		if v, err := c.inPlace(0, shape...); v != nil || err != nil {
			return v, err
		}
	}
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	v, out, err := c.result(shape...)
	if err != nil {
		return nil, err
	}
	return v, c.merge(x, c.o.dtype(), out, v.Dtype(), s[0], s[1], s[2], s[3])
}

// merge queues the copy of heads [batch,heads,n,dim] of one type to [batch,n,heads*dim]
// of another.
func (c *call) merge(x cu.DevicePtr, from tensor.Dtype, out cu.DevicePtr, to tensor.Dtype, batch, heads, n, dim int) error {
	k, err := c.typed("mergeheads", from)
	if err != nil {
		return err
	}
	vectors := heads * ((dim + 7) / 8) // of a token
	return k.launchRows(batch*n, vectors, address(x), address(out), integer(n), integer(heads), integer(dim), elementType(to))
}
