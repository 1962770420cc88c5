//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
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
	if t, ours := c.in[0].(*deviceTensor); ours && t.cache != nil { // its operator has written them
		if p, ok := c.source.(*planning); ok {
			p.run.ResultOfLayer()
		}
		return t.cache, nil
	}
	s := c.in[0].Shape()
	x, err := c.as(c.o.headType(s[3]), 0)
	if err != nil {
		return nil, err
	}
	all, first, err := r.place(c, c.o, s)
	if err != nil {
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

// place returns the cache and the address of the position from which on rows of the shape s
// are written to it in the step in progress, as the result of c's operator. o is the cache's.
func (r *kvCache) place(c *call, o *deviceOp, s tensor.Shape) (all *deviceTensor, first cu.DevicePtr, err error) {
	all = newDeviceTensor(o.headType(s[3]), []int{s[0], s[1], r.spec.Len, s[3]})
	if all.at, err = c.ofLayer(cacheKey{r.spec.State, r.spec.Half}, int64(all.MemSize())); err != nil {
		return nil, 0, err
	}
	if first, err = c.firstRow(); err != nil {
		return nil, 0, err
	}
	if p, ok := c.source.(*planning); ok {
		p.run.ResultOfLayer()
		return all, first, nil
	}
	return all, first, r.admit(c, s, int64(all.MemSize()))
}

// cacheResult is result for heads of the shape s whose only reader puts them into a cache:
// they go there at once. v is nil for any other reader.
func (c *call) cacheResult(s ...int) (v *deviceTensor, first cu.DevicePtr, err error) {
	o, ok := c.o.Placement().Reader().(*deviceOp)
	if !ok {
		return nil, 0, nil
	}
	r, ok := o.impl.(*kvCache)
	if !ok {
		return nil, 0, nil
	}
	all, first, err := r.place(c, o, s)
	if err != nil {
		return nil, 0, err
	}
	v = newDeviceTensor(all.dt, s)
	v.at, v.cache = all.at, all
	return v, first, nil
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
