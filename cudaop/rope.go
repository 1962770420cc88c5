//go:build cuda

package cudaop

import (
	"math"
	"sync"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(s exec.RoPE) (implementation, error) {
		return &rope{heads: s.Heads, frequencies: frequencies(s.Heads.Dim, s.Theta)}, nil
	})
}

// rope runs op.NewRoPE.
type rope struct {
	layerOp
	heads       kernel.Heads
	frequencies []float64 // of the pairs of a head, in half-turns a position
}

func (r *rope) shape([]tensor.Shape) error { return checkSplit(r.heads) }

func (r *rope) weights() ([]kernel.Projection, []byte) { return nil, bytesOf(r.frequencies) }

func (r *rope) run(c *call) (gorgonia.Value, error) {
	positions, err := c.at(1, tensor.Int32)
	if err != nil {
		return nil, err
	}
	frequencies, err := c.vector(bytesOf(r.frequencies))
	if err != nil {
		return nil, err
	}
	return c.split(r.heads, positions, frequencies)
}

// rotation is what the frequencies of RoPE depend on.
type rotation struct {
	dim   int
	theta float64
}

// rotations are the known frequencies: all layers share one slice, which is uploaded once.
var rotations sync.Map // rotation -> []float64

func frequencies(dim int, theta float64) []float64 {
	f := make([]float64, dim/2)
	for d := range f {
		f[d] = math.Pow(theta, -2*float64(d)/float64(dim)) / math.Pi
	}
	known, _ := rotations.LoadOrStore(rotation{dim, theta}, f)
	return known.([]float64)
}
