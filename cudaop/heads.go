//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(s exec.SplitHeads) (implementation, error) { return &splitHeads{heads: s.Heads}, nil })
	register(func(exec.MergeHeads) (implementation, error) { return mergeHeads{}, nil })
}

// layerThreads is the number of threads of a block of the layers' kernels.
const layerThreads = 256

// splitHeads runs op.NewSplitHeads.
type splitHeads struct {
	layerOp
	heads kernel.Heads
}

func (r *splitHeads) shape([]tensor.Shape) error { return checkSplit(r.heads) }

// checkSplit returns an error for heads that the kernel rope does not take.
func checkSplit(h kernel.Heads) error {
	if h.Dim%2 != 0 || h.Dim > 2*layerThreads {
		return fmt.Errorf("%w: head dimension %d, the GPU kernel takes even ones up to %d", op.ErrShape, h.Dim, 2*layerThreads)
	}
	return nil
}

func (r *splitHeads) run(c *call) (gorgonia.Value, error) { return c.split(r.heads, 0, 0) }

// split queues the change of heads of input 0 from the layout BNHD to BHND, as the
// operator's result. It rotates them if positions and frequencies are not 0.
func (c *call) split(h kernel.Heads, positions, frequencies cu.DevicePtr) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	s := c.in[0].Shape()
	v, out, pitch, at, err := c.headsResult(s[0], h.Count, s[1], h.Dim)
	if err != nil {
		return nil, err
	}
	k, err := c.typed("rope", c.o.dtype())
	if err != nil {
		return nil, err
	}
	first := x + cu.DevicePtr(h.First*h.Dim*int(c.o.dtype().Size()))
	tokens := s[0] * s[1]
	perBlock := min(layerThreads/(h.Dim/2), max(1, tokens/max(1, c.multiprocs))) // few tokens share no block
	return v, k.launch((tokens+perBlock-1)/perBlock, address(first), address(positions), address(frequencies), address(out),
		integer(tokens), integer(s[1]), integer(h.Count), integer(h.Dim), integer(s[2]), elementType(v.Dtype()), integer(perBlock), integer(pitch), address(at))
}

// headsResult is result for heads of the layout BHND, which may be a cache. Rows of a head
// follow those of the head before at a distance of pitch rows, from the row on that first
// points to; 0 is the first.
func (c *call) headsResult(batch, heads, n, dim int) (v gorgonia.Value, out cu.DevicePtr, pitch int, first cu.DevicePtr, err error) {
	cached, first, err := c.cacheResult(batch, heads, n, dim)
	if err != nil {
		return nil, 0, 0, 0, err
	}
	if cached != nil {
		return cached, cached.at, cached.cache.sh[2], first, nil
	}
	v, out, err = c.result(batch, heads, n, dim)
	return v, out, n, 0, err
}

// mergeHeads runs op.NewMergeHeads.
type mergeHeads struct{ layerOp }

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
