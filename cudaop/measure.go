//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"gorgonia.org/cu"
)

func init() { gpu.RegisterMeasure(measure) }

func measure(o gpu.MeasureOptions, report func(gpu.Measurement) error) error {
	if err := Available(); err != nil {
		return err
	}
	return measured(func(r *runner) error {
		for _, dim := range o.HeadDims {
			for _, n := range o.Lens {
				if err := r.measureLength(o, n, dim, report); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// measureLength makes the measurements of the options at one length.
func (d *runner) measureLength(o gpu.MeasureOptions, n, dim int, report func(gpu.Measurement) error) error {
	return d.outside(func(c *call) error { return c.measure(o, n, dim, report) })
}

func (c *call) measure(o gpu.MeasureOptions, n, dim int, report func(gpu.Measurement) error) error {
	h := &heads{batch: 1, heads: o.Heads, kvHeads: o.KVHeads, n: n, dim: dim, dt: bfloat16Dtype, scale: 1 / math.Sqrt(float64(dim))}
	var err error
	for i, at := range []*cu.DevicePtr{&h.q, &h.k, &h.v} {
		if *at, err = c.random(i, []int{o.Heads, o.KVHeads, o.KVHeads}[i]*n*dim); err != nil {
			return err
		}
	}
	out := output{dt: bfloat16Dtype}
	if out.at, err = c.scratch(2 * int64(o.Heads*n) * int64(dim)); err != nil {
		return err
	}
	lse, err := c.scratch(4 * int64(o.Heads*n))
	if err != nil {
		return err
	}
	row := gpu.Measurement{N: n, Heads: o.Heads, KVHeads: o.KVHeads, HeadDim: dim, Samples: o.Samples}
	time := func(kernel string, group int, sparsity, flops float64, run func() error) error {
		if !slices.Contains(o.Kernels, kernel) {
			return nil
		}
		m := row
		m.Kernel, m.Group, m.Sparsity = kernel, group, sparsity
		if m.MS, err = c.milliseconds(o.Samples, run); err != nil {
			return err
		}
		m.TFLOPS = flops / m.MS / 1e9
		return report(m)
	}

	pairs := float64(o.Heads) * float64(n) * float64(n) * float64(dim)
	dense := func() error { return c.dense(h, out, lse) }
	if err := time("dense", 0, 0, 4*pairs, dense); err != nil {
		return err
	}
	if err := dense(); err != nil { // the scores need its log-sum-exp
		return err
	}
	for _, group := range o.Groups {
		if err := c.measureGroup(o, h, out, lse, group, pairs, dense, time); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) measureGroup(o gpu.MeasureOptions, h *heads, out output, lse cu.DevicePtr, group int, pairs float64, dense func() error,
	time func(kernel string, group int, sparsity, flops float64, run func() error) error) error {
	u, pitch := groups(h.n, group), scorePitch(h.n)
	scores, err := c.scratch(2 * int64(h.heads*u) * int64(pitch))
	if err != nil {
		return err
	}
	bits, err := c.scratch(4 * int64(h.heads*u) * int64(words(h.n)))
	if err != nil {
		return err
	}
	collect := func() error { return c.scores(h, lse, scores, group, pitch, scoresLog16) }
	if err := time("scores", group, 0, 2*pairs, collect); err != nil {
		return err
	}
	if err := collect(); err != nil {
		return err
	}
	for _, sparsity := range o.Sparsities {
		kept := exec.Selection{Sparsity: sparsity}.Keep(h.n)
		keep, err := c.keepCounts(exec.Attention{Selection: exec.Selection{Sparsity: sparsity}}, []int{h.n})
		if err != nil {
			return err
		}
		topk := func() error { return c.topk(scores, bits, keep, 0, 1, h.heads, u, h.n, pitch, scoresLog16) }
		if err := time("topk", group, sparsity, 0, topk); err != nil {
			return err
		}
		refresh := func() error { return errors.Join(dense(), collect(), topk()) }
		if err := time("refresh", group, sparsity, 0, refresh); err != nil {
			return err
		}
		if !slices.Contains(o.Kernels, "columnsparse") {
			continue
		}
		if err := c.fillHeads(bits, columns.Random(h.n, group, kept, 0), h.heads); err != nil {
			return err
		}
		useful := pairs * float64(kept) / float64(h.n)
		if err := time("columnsparse", group, sparsity, 4*useful, func() error { return c.sparse(h, table{bits, 1, h.heads}, out, group) }); err != nil {
			return err
		}
	}
	return nil
}

// random returns n normally distributed values as bfloat16: a million, repeated.
func (c *call) random(seed, n int) (cu.DevicePtr, error) {
	r := rand.New(rand.NewPCG(1, uint64(seed)))
	block := make([]byte, 2*min(n, 1<<20))
	for i := 0; i < len(block); i += 2 {
		b := bf16.FromFloat32(float32(r.NormFloat64()))
		block[i], block[i+1] = byte(b), byte(b>>8)
	}
	at, err := c.scratch(2 * int64(n))
	if err != nil {
		return 0, err
	}
	for from := 0; from < 2*n; from += len(block) {
		size := min(len(block), 2*n-from)
		if err := c.queue.toGPU(at+cu.DevicePtr(from), unsafe.Pointer(&block[0]), int64(size)); err != nil {
			return 0, fmt.Errorf("cudaop: random values: %w", err)
		}
	}
	return at, nil
}

// milliseconds is the median time of run over samples, each of enough runs for a
// millisecond, which is far above what an event costs.
func (c *call) milliseconds(samples int, run func() error) (float64, error) {
	start, err := cu.MakeEvent(cu.DefaultEvent)
	if err != nil {
		return 0, fmt.Errorf("cudaop: event: %w", err)
	}
	defer cu.DestroyEvent(&start)
	end, err := cu.MakeEvent(cu.DefaultEvent)
	if err != nil {
		return 0, fmt.Errorf("cudaop: event: %w", err)
	}
	defer cu.DestroyEvent(&end)
	sample := func(runs int) (float64, error) {
		if err := start.Record(cu.NoStream); err != nil {
			return 0, fmt.Errorf("cudaop: event: %w", err)
		}
		for range runs {
			if err := errors.Join(run(), c.queue.flush()); err != nil {
				return 0, err
			}
		}
		if err := errors.Join(end.Record(cu.NoStream), end.Synchronize()); err != nil {
			return 0, fmt.Errorf("cudaop: event: %w", err)
		}
		ms, err := start.Elapsed(end)
		return ms / float64(runs), err
	}
	if _, err := sample(1); err != nil { // loads the module
		return 0, err
	}
	once, err := sample(1)
	if err != nil {
		return 0, err
	}
	runs := max(1, int(math.Ceil(1/max(once, 1e-3))))
	times := make([]float64, samples)
	for i := range times {
		if times[i], err = sample(runs); err != nil {
			return 0, err
		}
	}
	slices.Sort(times)
	return times[samples/2], nil
}

// fillHeads copies the column table of one head to several on the GPU.
func (d *runner) fillHeads(bits cu.DevicePtr, table []uint32, heads int) error {
	size := 4 * int64(len(table))
	if err := d.queue.toGPU(bits, unsafe.Pointer(&table[0]), size); err != nil {
		return fmt.Errorf("cudaop: columns: %w", err)
	}
	for h := range heads - 1 {
		if err := d.queue.copy(bits+cu.DevicePtr(int64(h+1)*size), bits, size); err != nil {
			return err
		}
	}
	return nil
}
