//go:build cuda

package cudaop_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// cachedRig is two attention layers over a cache, in one graph for each number of rows, with
// the keys and values that they should hold.
type cachedRig struct {
	ctl    *pulsecol.Controller
	cfg    pulsecol.Config
	a      [2]kernel.Operands // of each layer; Q has the rows of the step
	random *rand.Rand
	graphs map[int]*cachedGraph
}

type cachedGraph struct {
	in  [2][3]*gorgonia.Node // q, k and v of each layer
	out [2]*gorgonia.Value
	m   *pulsecol.Machine
}

func newCachedRig(t *testing.T, cfg pulsecol.Config, s kernel.Shape, padding []int) *cachedRig {
	cfg.Device = pulsecol.CUDA
	r := &cachedRig{ctl: must(pulsecol.NewController(cfg))(t), cfg: cfg, random: rand.New(rand.NewPCG(5, 7)), graphs: map[int]*cachedGraph{}}
	for i := range r.a {
		size := s.Batch * s.KVHeads * s.Len * s.HeadDim
		r.a[i] = kernel.Operands{Shape: s, K: make([]float32, size), V: make([]float32, size), Scale: float32(1 / math.Sqrt(float64(s.HeadDim)))}
		if padding == nil {
			continue
		}
		for _, pad := range padding {
			for j := range s.Len {
				r.a[i].Valid = append(r.a[i].Valid, float32(min(max(j-pad+1, 0), 1)))
			}
		}
	}
	t.Cleanup(func() {
		var err error
		for _, g := range r.graphs {
			err = errors.Join(err, g.m.Close())
		}
		if err := errors.Join(err, r.ctl.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// graph returns the graph of so many rows.
func (r *cachedRig) graph(t *testing.T, rows int) *cachedGraph {
	if have := r.graphs[rows]; have != nil {
		return have
	}
	g, s := gorgonia.NewGraph(), r.a[0].Shape
	opts := []pulsecol.AttentionOption{pulsecol.WithCache(s.Len)}
	if valid := r.a[0].Valid; valid != nil {
		opts = append(opts, pulsecol.WithPaddingMask(input(g, "mask", slices.Clone(valid), s.Batch, s.Len)))
	}
	made := new(cachedGraph)
	for i := range made.in {
		for j, heads := range []int{s.Heads, s.KVHeads, s.KVHeads} {
			made.in[i][j] = gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(s.Batch, heads, rows, s.HeadDim), gorgonia.WithName(fmt.Sprint(i, j)))
		}
		in := made.in[i]
		made.out[i] = read(must(pulsecol.Attention(in[0], in[1], in[2], r.ctl.Layer(i), opts...))(t))
	}
	made.m = must(pulsecol.NewMachine(g, r.ctl))(t)
	r.graphs[rows] = made
	return made
}

// step runs the next step on random rows, and holds its outputs, and columns that it selects,
// to the reference.
func (r *cachedRig) step(t *testing.T, b pulsecol.Block) pulsecol.Pass {
	t.Helper()
	pass, s := r.ctl.Pass(), r.a[0].Shape
	if pass.Rows == 0 {
		t.Fatal("no pass")
	}
	g := r.graph(t, pass.Rows)
	for i := range r.a {
		for j, heads := range []int{s.Heads, s.KVHeads, s.KVHeads} {
			x := make([]float32, s.Batch*heads*pass.Rows*s.HeadDim)
			for e := range x {
				x[e] = bf16.ToFloat32(bf16.FromFloat32(float32(r.random.NormFloat64())))
			}
			if err := gorgonia.Let(g.in[i][j], tensor.New(tensor.WithShape(s.Batch, heads, pass.Rows, s.HeadDim), tensor.WithBacking(x))); err != nil {
				t.Fatal(err)
			}
			if j == 0 {
				r.a[i].Q, r.a[i].Rows, r.a[i].First = x, pass.Rows, pass.First
				continue
			}
			all, size := [][]float32{r.a[i].K, r.a[i].V}[j-1], pass.Rows*s.HeadDim
			for head := range s.Batch * heads {
				copy(all[(head*s.Len+pass.First)*s.HeadDim:], x[head*size:(head+1)*size])
			}
		}
	}
	if err := g.m.Step(); err != nil {
		t.Fatalf("%v, %v: %v", pass.Kind, pass.Mode, err)
	}
	for i := range r.a {
		got := slices.Clone(floats(g.out[i]))
		r.checkOutput(t, i, pass, b, got)
	}
	return pass
}

// limit is the largest relative error of the output.
func (r *cachedRig) limit() float64 {
	if r.cfg.Precision == pulsecol.Float32 {
		return 2e-6
	}
	return outputError
}

// rowsOf returns the queries from .. to-1 of every head, of dim values each.
func rowsOf[F tol.Float](x []F, a *kernel.Operands, from, to int) (out []F) {
	for head := range a.Batch * a.Heads {
		for i := from; i < to; i++ {
			if a.Valid == nil || a.Valid[head/a.Heads*a.Len+a.First+i] != 0 {
				out = append(out, x[(head*a.Queries()+i)*a.HeadDim:][:a.HeadDim]...)
			}
		}
	}
	return out
}

func (r *cachedRig) checkOutput(t *testing.T, layer int, pass pulsecol.Pass, b pulsecol.Block, got []float32) {
	t.Helper()
	a, rows := &r.a[layer], pass.Rows
	from, to := b.First-pass.First, b.End-pass.First
	if r.cfg.Cache == pulsecol.PrefixCache {
		to = b.Len - pass.First
	}
	compare := func(table *kernel.Table, from, to int) {
		t.Helper()
		want, _ := ref.Attention[float64](a, table)
		tol.Close(t, rowsOf(got, a, from, to), rowsOf(want, a, from, to), r.limit())
	}
	static, sparse := r.cfg.Pattern.(pulsecol.Streaming)
	switch {
	case pass.Mode == pulsecol.Reuse && sparse:
		sinks := exec.Selection{SinkFraction: static.SinkFraction}.Sinks(a.Len)
		all := slices.Repeat([]uint32{^uint32(0)}, kernel.Words(a.Len))
		compare(&kernel.Table{Bits: all, Group: a.Len, SharedBatch: true, SharedHeads: true, Reach: static.Width / 2, Sinks: sinks}, 0, rows)
	case pass.Mode != pulsecol.Reuse:
		compare(nil, 0, rows)
	case pass.Kind == pulsecol.BlockStep:
		c := must(r.ctl.BlockColumns(layer))(t)
		compare(&kernel.Table{Bits: c.Bits, Group: c.Group, Reach: -1}, 0, rows)
	default:
		c := must(r.ctl.Columns(layer))(t)
		table := &kernel.Table{Bits: c.Bits, Group: c.Group, Reach: -1}
		compare(table, 0, from)
		compare(nil, from, to)
		compare(table, to, rows)
	}
	_, columns := r.cfg.Pattern.(pulsecol.Columns)
	if (columns || r.cfg.Pattern == nil) && r.cfg.Sparsity > 0 && pass.Kind != pulsecol.BlockStep {
		r.checkColumns(t, layer, from, to, b)
	}
}

// checkColumns holds the columns of the block to exact scores: all keys that score clearly above
// the last that should be kept are kept, and none clearly below it but those of the block.
func (r *cachedRig) checkColumns(t *testing.T, layer, from, to int, b pulsecol.Block) {
	t.Helper()
	a := r.a[layer]
	a.From, a.To = from, to
	c := must(r.ctl.BlockColumns(layer))(t)
	scores, n, w := ref.Scores[float64](&a, c.Group, 0), a.Len, kernel.Words(a.Len)
	if c.First != b.First || c.Rows != to-from || len(c.Bits) != len(scores)/n*w {
		t.Fatalf("columns of %d rows from %d on, %d words", c.Rows, c.First, len(c.Bits))
	}
	for row := range len(scores) / n {
		of, keys := scores[row*n:(row+1)*n], n
		if a.Valid != nil {
			keys = 0
			for _, v := range a.Valid[row/(len(scores)/n/a.Batch)*n:][:n] {
				keys += int(v)
			}
		}
		sorted := slices.Sorted(slices.Values(of))
		last := sorted[n-exec.Selection{Sparsity: r.cfg.Sparsity}.KeepDecimal(keys)]
		for j, score := range of {
			kept, own := c.Bits[row*w+j/32]>>(j%32)&1 != 0, j >= b.First && j < b.End
			if score > last*(1+4*scoreError) && !kept || score < last*(1-4*scoreError) && kept && !own || own && !kept {
				t.Fatalf("row %d: key %d with a score of %v, where the last kept has %v: kept is %v", row, j, score, last, kept)
			}
		}
	}
}

// TestCached: every kind of step over a cache, in every mode and pattern, against the float64
// reference.
func TestCached(t *testing.T) { onBoth(t, testCached) }

func testCached(t *testing.T) {
	shapes := []kernel.Shape{
		{Batch: 1, Heads: 4, KVHeads: 4, Len: 150, HeadDim: 128},
		{Batch: 2, Heads: 7, KVHeads: 1, Len: 140, HeadDim: 64},
		{Batch: 1, Heads: 4, KVHeads: 2, Len: 100, HeadDim: 40},
	}
	schedule := pulsecol.Uniform{Eta: 1, Refreshes: 2}
	for i, s := range shapes {
		for _, cache := range []pulsecol.Cache{pulsecol.DualCache, pulsecol.PrefixCache} {
			for j, cfg := range []pulsecol.Config{
				{Sparsity: 0.8, GroupSize: 32},
				{Sparsity: 0.7, GroupSize: 8, PrefillEvery: 2, Precision: pulsecol.Float32},
				{Sparsity: 0.3, GroupSize: 16, PrefillEvery: 1},
				{},
				{Sparsity: 0.6, GroupSize: 16, Pattern: pulsecol.Blocks{Size: 16}, PrefillEvery: 2},
				{Pattern: pulsecol.Streaming{Width: 60, SinkFraction: 0.1}, PrefillEvery: 2},
			} {
				cfg.Cache, cfg.Schedule = cache, schedule
				for _, padded := range []bool{false, true} {
					if padded != (i == 1) && j > 1 || cudaop.SM80Forced() && (i > 1 || j > 1) {
						continue
					}
					t.Run(fmt.Sprintf("%d,%v,%d,padded=%v", i, cache, j, padded), func(t *testing.T) {
						var padding []int
						if padded {
							padding = []int{10, 0}[:s.Batch]
						}
						generate(t, newCachedRig(t, cfg, s, padding))
					})
				}
			}
		}
	}
}

// generate runs two generations of four blocks.
func generate(t *testing.T, r *cachedRig) {
	kinds := map[pulsecol.PassKind]int{}
	n, size := r.a[0].Len, 21
	for range 2 {
		if err := r.ctl.Start(16); err != nil {
			t.Fatal(err)
		}
		for first := n - 4*size; first < n; first += size {
			b := pulsecol.Block{Len: n, First: first - 1, End: first + size}
			if err := r.ctl.SetBlock(b); err != nil {
				t.Fatal(err)
			}
			for step := range 4 {
				r.ctl.SetDense(step == 2 && first == n-4*size)
				kinds[r.step(t, b).Kind]++
			}
		}
	}
	if kinds[pulsecol.Prefill] < 2 || kinds[pulsecol.BlockStep] < 20 {
		t.Errorf("steps %v", kinds)
	}
	if st := r.ctl.Stats().Layers[0]; st.Cache < 2*int64(len(r.a[0].K)) {
		t.Errorf("a cache of %d bytes", st.Cache)
	}
}
