//go:build cuda

package cudaop

import (
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
)

func init() {
	register(func(s exec.SwiGLU) (implementation, error) {
		return &swiGLU{parts: []kernel.Projection{s.Gate, s.Up}}, nil
	})
}

// swiGLU runs op.NewSwiGLU in chunks of tokens: one product gives gate and up of a chunk,
// and a kernel combines them before the next chunk takes their memory. Few tokens are one
// kernel.
type swiGLU struct {
	layerOp
	parts []kernel.Projection // gate, up
}

// maxGateUp bounds the memory of gate and up, in bytes. From 2,048 tokens of an 8B model on
// the size of a chunk makes no difference to the time.
const maxGateUp = 512 << 20

func (r *swiGLU) weights() ([]kernel.Projection, []byte) { return r.parts, nil }

// chunk returns the number of tokens of n that are computed at a time, and the bytes of gate
// and up of one token, whose elements have the given size.
func (r *swiGLU) chunk(n int, size int64) (tokens int, row int64) {
	row = int64(outputs(r.parts)) * size
	chunks := max(1, int((int64(n)*row+maxGateUp-1)/maxGateUp))
	return min(n, ((n+chunks-1)/chunks+255)&^255), row
}

func (r *swiGLU) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	s, features := c.in[0].Shape(), r.parts[0].Weight.Rows
	v, y, err := c.result(s[0], s[1], features)
	if err != nil {
		return nil, err
	}
	dt := v.Dtype() // of gate and up as well
	k, err := c.typed("swiglu", dt)
	if err != nil {
		return nil, err
	}
	n := s[0] * s[1]
	tokens, row := r.chunk(n, int64(dt.Size()))
	gateUp, err := c.scratch(int64(tokens) * row)
	if err != nil {
		return nil, err
	}
	all, err := c.product(r.parts, y, x, 0, n, dt)
	if err != nil {
		return nil, err
	}
	if c.isFew(all) {
		all.out = features
		return v, c.multiplyFew(all, true)
	}
	for first := 0; first < n; first += tokens {
		count := min(tokens, n-first)
		from, to := x+cu.DevicePtr(int64(first*s[2])*int64(c.o.dtype().Size())), y+cu.DevicePtr(int64(first)*row/2)
		if err := c.project(r.parts, gateUp, from, 0, count, dt); err != nil {
			return nil, err
		}
		if err := k.launchRows(count, features, address(gateUp), address(to), integer(features), elementType(dt)); err != nil {
			return nil, err
		}
	}
	return v, nil
}
