package pulsecol_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// cacheRig is an attention layer under a cache, in one graph for each number of rows.
type cacheRig struct {
	t      *testing.T
	ctx    context.Context // of steps
	ctl    *pulsecol.Controller
	shape  kernel.Shape
	mask   []float32
	graphs map[int]*cacheGraph
}

type cacheGraph struct {
	q, k, v *gorgonia.Node
	y       *gorgonia.Node
	machine *pulsecol.Machine
}

func newCacheRig(t *testing.T, cfg pulsecol.Config, s kernel.Shape, mask []float32) *cacheRig {
	return &cacheRig{t, t.Context(), newController(t, cfg), s, mask, map[int]*cacheGraph{}}
}

// graph returns the graph of so many rows.
func (r *cacheRig) graph(rows int) *cacheGraph {
	if have := r.graphs[rows]; have != nil {
		return have
	}
	g := gorgonia.NewGraph()
	node := func(name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	}
	s := r.shape
	made := &cacheGraph{
		q: node("q", s.Batch, s.Heads, rows, s.HeadDim),
		k: node("k", s.Batch, s.KVHeads, rows, s.HeadDim),
		v: node("v", s.Batch, s.KVHeads, rows, s.HeadDim),
	}
	opts := []pulsecol.AttentionOption{pulsecol.WithCache(s.Len)}
	if r.mask != nil {
		mask := node("mask", s.Batch, s.Len)
		if err := gorgonia.Let(mask, dense(r.mask, s.Batch, s.Len)); err != nil {
			r.t.Fatal(err)
		}
		opts = append(opts, pulsecol.WithPaddingMask(mask))
	}
	made.y = must(pulsecol.Attention(made.q, made.k, made.v, r.ctl.Layer(0), opts...))(r.t)
	made.machine = must(pulsecol.NewMachine(g, r.ctl))(r.t)
	r.graphs[rows] = made
	return made
}

// step runs the next step on inputs of its rows and returns its output.
func (r *cacheRig) step(q, k, v []float32) ([]float32, error) {
	rows, s := r.ctl.Pass().Rows, r.shape
	g := r.graph(rows)
	for _, in := range []struct {
		n     *gorgonia.Node
		data  []float32
		heads int
	}{{g.q, q, s.Heads}, {g.k, k, s.KVHeads}, {g.v, v, s.KVHeads}} {
		if err := gorgonia.Let(in.n, dense(in.data, s.Batch, in.heads, rows, s.HeadDim)); err != nil {
			r.t.Fatal(err)
		}
	}
	defer g.machine.Reset()
	if err := g.machine.RunAllContext(r.ctx); err != nil {
		return nil, err
	}
	return slices.Clone(g.y.Value().Data().([]float32)), nil
}

// inputs draws queries, keys and values of a number of rows.
func (r *cacheRig) inputs(rng *rand.Rand, rows int) (q, k, v []float32) {
	s := r.shape
	return attncase.Normal(rng, s.Batch*s.Heads*rows*s.HeadDim, 1), attncase.Normal(rng, s.Batch*s.KVHeads*rows*s.HeadDim, 1), attncase.Normal(rng, s.Batch*s.KVHeads*rows*s.HeadDim, 1)
}

// TestCache holds generations with a cache to the reference: every kind of step, every
// pattern, attention switched off and on and columns dropped in the middle of a block.
func TestCache(t *testing.T) {
	kinds, columns := map[string]int{}, 0
	for seed := range uint64(120) {
		rng := attncase.Rand(seed)
		s := kernel.Shape{Batch: 1 + rng.IntN(2), KVHeads: 1 + rng.IntN(2), HeadDim: 2 + rng.IntN(15)}
		s.Heads = s.KVHeads * []int{1, 2, 7}[rng.IntN(3)]
		prompt, length, blocks := rng.IntN(20), 1+rng.IntN(7), 1+rng.IntN(4)
		s.Len = prompt + length*blocks
		cfg := pulsecol.Config{
			Sparsity: []float64{0, 0.5, 0.8, 0.99}[rng.IntN(4)], GroupSize: 1 + rng.IntN(9),
			Cache: []pulsecol.Cache{pulsecol.PrefixCache, pulsecol.DualCache}[rng.IntN(2)], PrefillEvery: rng.IntN(4),
			Pattern:  []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.Columns{}, pulsecol.Blocks{Size: 3}, pulsecol.Streaming{Width: 6, SinkFraction: 0.1}}[rng.IntN(4)],
			Schedule: []pulsecol.Schedule{pulsecol.Uniform{Refreshes: 1 + rng.IntN(5), Eta: 1}, pulsecol.Skip{Fraction: 0.3}, pulsecol.Always{}, pulsecol.AlwaysDense{}}[rng.IntN(4)],
		}
		var w watcher
		cfg.Observer = &w
		var mask []float32
		if rng.IntN(3) == 0 {
			a := kernel.Operands{Shape: s}
			attncase.PadLeft(&a, prompt/2, 0)
			mask = a.Valid
		}
		what := fmt.Sprintf("seed %d: %+v, %+v", seed, s, cfg)
		r := newCacheRig(t, cfg, s, mask)
		want := &cacheReference{cfg: cfg, Shape: s, valid: mask, k: make([]float64, s.Batch*s.KVHeads*s.Len*s.HeadDim)}
		want.v = slices.Clone(want.k)
		steps := 1 + rng.IntN(5)
		if err := r.ctl.Start(blocks * steps); err != nil {
			t.Fatal(err)
		}
		shift, number, previous, off := rng.IntN(2), 0, 0, false // shift: row i predicts token i+1
		for i := range blocks {
			b := pulsecol.Block{Len: s.Len, First: max(prompt+i*length-shift, 0), End: prompt + (i+1)*length}
			if err := r.ctl.SetBlock(b); err != nil {
				t.Fatal(err)
			}
			for j := range steps {
				switch rng.IntN(12) {
				case 0, 1:
					off = !off
					r.ctl.SetDense(off)
				case 2:
					r.ctl.Invalidate()
					want.filled, want.pending = false, true
				}
				number++
				p := r.ctl.Pass()
				wantPass, selects := want.next(b, i, j, previous, number, blocks*steps, off)
				if p != wantPass {
					t.Fatalf("%s, block %d, step %d: %+v, want %+v", what, i, j, p, wantPass)
				}
				q, k, v := r.inputs(rng, p.Rows)
				got, err := r.step(q, k, v)
				if err != nil {
					t.Fatalf("%s, block %d, step %d: %v", what, i, j, err)
				}
				y := want.step(p, b, selects, q, k, v)
				for at := range got {
					batch, row := at/(s.Heads*p.Rows*s.HeadDim), at/s.HeadDim%p.Rows
					if mask != nil && mask[batch*s.Len+p.First+row] == 0 {
						got[at], y[at] = 0, 0 // padding has no meaning
					}
				}
				tol.CloseAbs(t, got, y, want.tolerance())
				if t.Failed() {
					t.Fatalf("%s, block %d, step %d: %+v", what, i, j, p)
				}
				kinds[fmt.Sprintf("%v %v", p.Kind, p.Mode)]++
				if seen := w.seen[number-1]; seen.Block != b || seen.First != p.First || seen.Rows != p.Rows {
					t.Errorf("%s, block %d, step %d: observed rows %d+%d in block %+v", what, i, j, seen.First, seen.Rows, seen.Block)
				}
				if selects || p.Kind == pulsecol.BlockStep && p.Mode == pulsecol.Reuse {
					want.checkBlock(t, r.ctl, b, w.seen[number-1].BlockColumns)
					columns++
				}
			}
			previous = b.First
		}
		for _, g := range r.graphs {
			g.machine.Close()
		}
		if err := r.ctl.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if columns < 200 {
		t.Errorf("the columns of a block were compared in %d steps, want at least 200", columns)
	}
	for _, kind := range []string{"prefill dense", "prefill refresh", "prefill reuse", "commit dense", "commit reuse", "block dense", "block reuse"} {
		if kinds[kind] < 10 {
			t.Errorf("%d steps were of the kind %q, want at least 10: %v", kinds[kind], kind, kinds)
		}
	}
}
