//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(s exec.KVCache) (implementation, error) { return &kvCache{s}, nil })
}

// kvCache runs op.NewKVCache. Keys and values have the type of the attention kernels.
type kvCache struct{ spec exec.KVCache }

func (r *kvCache) ownsResult() bool { return true }

func (r *kvCache) shape(in []tensor.Shape) error {
	if r.spec.Len > gpu.MaxLen {
		return fmt.Errorf("%w: %d tokens, the GPU kernels take at most %d", op.ErrShape, r.spec.Len, gpu.MaxLen)
	}
	return gpu.CheckHeadDim(in[0][3])
}

// cacheKey is the key of a layer's keys or values.
type cacheKey struct {
	s    *exec.State
	half exec.Half
}

func (r *kvCache) run(c *call) (gorgonia.Value, error) {
	s, st := c.in[0].Shape(), r.spec.State
	all := newDeviceTensor(c.o.headType(s[3]), []int{s[0], s[1], r.spec.Len, s[3]})
	bytes := int64(all.MemSize())
	x, err := c.as(all.dt, 0)
	if err != nil {
		return nil, err
	}
	if all.at, err = c.ofLayer(cacheKey{st, r.spec.Half}, bytes); err != nil {
		return nil, err
	}
	first, err := c.firstRow()
	if err != nil {
		return nil, err
	}
	if p, ok := c.source.(*planning); ok {
		p.run.ResultOfLayer()
	} else if err := r.admit(c, s, bytes); err != nil {
		return nil, err
	}
	k, err := c.kernel("cacherows", "cacherows")
	if err != nil {
		return nil, err
	}
	row, narrow := s[3]*int(all.dt.Size()), false // in units of the kernel
	if row%16 == 0 {
		row /= 16
	} else {
		row, narrow = row/4, true
	}
	return all, k.launchRows(s[0]*s[1], s[2]*row, address(x), address(all.at), address(first),
		integer(s[0]*s[1]), integer(s[2]), integer(r.spec.Len), integer(row), flag(narrow))
}

// admit checks the step against the graph's rows, of the shape s.
func (r *kvCache) admit(c *call, s tensor.Shape, bytes int64) error {
	st := r.spec.State
	if _, _, ok := st.Step().Current(); !ok {
		return op.ErrNoMachine
	}
	if pass := st.Step().Pass(); pass.Kind != exec.Whole && s[2] != pass.Rows {
		return fmt.Errorf("%w: the graph computes %d rows, the step (%v) %d from %d on", op.ErrValue, s[2], pass.Kind, pass.Rows, pass.First)
	}
	return st.Admit(r.spec.Half, exec.CacheShape{Batch: s[0], KVHeads: s[1], Len: r.spec.Len, HeadDim: s[3]}, c.runner, bytes)
}
