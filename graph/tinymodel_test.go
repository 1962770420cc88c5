package graph_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// variable adds an input node that holds x.
func variable[E any](g *gorgonia.ExprGraph, name string, x []E, shape ...int) *gorgonia.Node {
	t := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))
	return gorgonia.NewTensor(g, t.Dtype(), len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(t))
}

// weights are those of the tiny model: matrix elements
// a sin(0.7r + 1.3c + 0.37rc + s), norms 1 + 0.1 cos(i+s), biases 0.05 sin(i+s).
type weights struct{ t testing.TB }

func (w weights) matrix(rows, cols int, a, s float64) op.Weight {
	v := make([]float32, 0, rows*cols)
	for r := range rows {
		for c := range cols {
			v = append(v, float32(a*math.Sin(0.7*float64(r)+1.3*float64(c)+0.37*float64(r*c)+s)))
		}
	}
	return must(op.NewWeightFloat32(rows, cols, v))(w.t)
}

func (w weights) norm(path string, s, eps float64) graph.Norm {
	return graph.Norm{Path: path, Weight: w.vector(8, 1, 0.1, math.Pi/2+s), Eps: eps}
}

func (w weights) vector(n int, at, a, s float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(at + a*math.Sin(float64(i)+s))
	}
	return v
}

// tiny is a model of two blocks with 8 features, 2 heads and a vocabulary of 7.
type tiny struct {
	kvHeads    int
	theta, eps float64
	bias       bool // on q, k and v
}

func (m tiny) block(t testing.TB, l int) *graph.Block {
	w, o := weights{t}, 10*float64(l+1)
	path := func(name string) string { return fmt.Sprintf("blocks.%d.%s", l, name) }
	projection := func(name string, rows, cols int, s float64) graph.Projection {
		return graph.Projection{Path: path(name), Weight: w.matrix(rows, cols, 0.3, s)}
	}
	qkv := func(name string, rows int, s float64) graph.Projection {
		p := projection(name, rows, 8, s)
		if m.bias {
			p.Bias = w.vector(rows, 0, 0.05, s)
		}
		return p
	}
	return &graph.Block{
		Path: fmt.Sprintf("blocks.%d", l), Heads: 2, KVHeads: m.kvHeads, HeadDim: 4, Theta: m.theta,
		AttentionNorm: w.norm(path("norm1"), o, m.eps),
		Q:             qkv("q", 8, o+1), K: qkv("k", 4*m.kvHeads, o+2), V: qkv("v", 4*m.kvHeads, o+3),
		Out:             projection("out", 8, 8, o+4),
		FeedForwardNorm: w.norm(path("norm2"), o+5, m.eps),
		Gate:            projection("gate", 12, 8, o+6), Up: projection("up", 12, 8, o+7), Down: projection("down", 8, 12, o+8),
	}
}

// build adds the model to g for some sequences of n tokens and returns its logits
// [len(ids), 7], a row for each token.
func (m tiny) build(t testing.TB, g *gorgonia.ExprGraph, ctl *pulsecol.Controller, blocks, n int, ids ...int32) *gorgonia.Node {
	t.Helper()
	batch := len(ids) / n
	at, rows := make([]int32, len(ids)), make([]int32, len(ids))
	for i := range ids {
		at[i], rows[i] = int32(i%n), int32(i)
	}
	positions := variable(g, "positions", at, batch, n)
	w := weights{t}
	x := must(graph.Embed("embed", variable(g, "ids", ids, batch, n), w.matrix(7, 8, 1, 0.1), pulsecol.CPU))(t)
	for l := range blocks {
		x = must(m.block(t, l).Build(x, positions, ctl.Layer(l)))(t)
	}
	selected := variable(g, "rows", rows, len(rows))
	x = must(graph.GatherRows("rows", x, selected))(t)
	x = must(graph.RMSNorm(x, w.norm("norm", 0.3, m.eps)))(t)
	return must(graph.Logits("head", x, selected, w.matrix(7, 8, 1, 0.2)))(t)
}

var llada, dream = tiny{kvHeads: 2, theta: 5e5, eps: 1e-5}, tiny{kvHeads: 1, theta: 1e6, eps: 1e-6, bias: true}

func newController(t testing.TB, cfg pulsecol.Config) *pulsecol.Controller {
	t.Helper()
	cfg.Device = pulsecol.CPU
	return must(pulsecol.NewController(cfg))(t)
}

// TestTinyModel compares a small model with values calculated in float64, in the forms of
// LLaDA and of Dream: logits of full attention, the columns, and the logits of a reuse
// step. The logits of Dream are not shifted by its sampler.
func TestTinyModel(t *testing.T) {
	for _, c := range []struct {
		name         string
		model        tiny
		full, sparse [6][]float64 // by row; nil where none is known
		columns      [2][2][][]int
	}{
		{
			name: "llada", model: llada,
			full: [6][]float64{
				{-1.972201, 2.992008, 3.046645, -0.215064, 2.653737, -2.830435, -1.851105},
				{-0.454850, -2.182333, 4.874584, -1.130844, 3.488560, -3.175791, -1.396029},
				{-0.252601, -2.074587, 0.595291, 5.300332, -0.880106, -0.200507, -3.661258},
				{1.150608, -4.065185, 3.742318, -2.609737, 2.009830, -1.906038, 2.208004},
				{1.145013, -4.013625, 3.769264, -2.690861, 1.969633, -1.870402, 2.285565},
				{1.135757, -3.910606, 3.884478, -2.860325, 1.740533, -1.685795, 2.491157},
			},
			columns: [2][2][][]int{
				{{{0, 1, 2}, {2, 4, 5}, {0, 1, 2}}, {{3, 4, 5}, {2, 3, 4}, {0, 4, 5}}},
				{{{0, 1, 2}, {1, 2, 5}, {1, 2, 3}}, {{2, 4, 5}, {1, 2, 5}, {1, 2, 5}}},
			},
			sparse: [6][]float64{
				{-1.362814, 2.933276, 1.358268, 1.017920, 3.399028, -3.252098, -3.202481},
				{-0.291263, -1.792660, 4.473567, -0.957582, 4.191501, -3.883095, -1.444444},
				{-0.475212, -0.451436, -1.682242, 5.655553, -2.892449, 1.625159, -2.884076},
				{1.640248, -3.978878, 3.061078, -2.949148, 1.482356, -1.409010, 2.995683},
				{1.247954, -3.417980, 2.815029, -3.363037, 1.047929, -1.055240, 3.765053},
				{1.226458, -3.286493, 2.898495, -3.429057, 0.863290, -0.928883, 3.890035},
			},
		},
		{
			name: "dream", model: dream,
			full: [6][]float64{
				{-2.391634, 2.979721, 3.182318, -0.226294, 2.259256, -2.546584, -1.579827},
				{-1.194051, -1.783245, 4.653364, -0.162972, 3.170381, -2.952389, -2.304888},
				{-0.651411, -1.470912, 1.004898, 5.139753, 0.714573, -1.479006, -4.603494},
				{0.571921, -2.923038, 3.352779, -3.534752, -0.549007, 0.221650, 4.297177},
				{0.659874, -3.196192, 3.494616, -3.387477, -0.308461, 0.005614, 4.053918},
				{0.821147, -4.046920, 3.821146, -2.776904, 0.682370, -0.812979, 2.962362},
			},
			columns: [2][2][][]int{
				{{{0, 1, 2}, {2, 4, 5}, {0, 1, 2}}, {{1, 2, 5}, {0, 1, 2}, {1, 2, 5}}},
				{{{0, 1, 2}, {1, 2, 5}, {2, 3, 4}}, {{0, 2, 5}, {1, 2, 5}, {1, 2, 5}}},
			},
			sparse: [6][]float64{3: {0.707662, -2.188279, 0.668404, -3.653687, -2.451330, 2.285501, 5.315468}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gorgonia.NewGraph()
			ctl := newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 2, Schedule: pulsecol.Uniform{Refreshes: 1}})
			logits := c.model.build(t, g, ctl, 2, 6, 1, 2, 3, 6, 6, 6)
			if err := graph.Check(g); err != nil {
				t.Fatal(err)
			}
			if err := op.NewWorkspace().Plan(g, ctl.Modes(), logits); err != nil {
				t.Fatal(err)
			}
			m := must(pulsecol.NewMachine(g, ctl))(t)
			defer m.Close()
			if err := ctl.Start(2); err != nil {
				t.Fatal(err)
			}
			step := func(want [6][]float64) {
				t.Helper()
				if err := m.Step(); err != nil {
					t.Fatal(err)
				}
				got := logits.Value().Data().([]float32)
				for i, row := range want {
					if row != nil {
						// Six digits are given. Some twenty matrix products in a row
						// round values up to 5 by 2^-24 each.
						tol.CloseAbs(t, got[7*i:7*i+7], row, 5e-7+20*5.0/(1<<24))
					}
				}
			}
			step(c.full)
			for l, heads := range c.columns {
				columns := must(ctl.Columns(l))(t)
				for h, groups := range heads {
					for u, want := range groups {
						if diff := cmp.Diff(want, columns.Keys(0, h, u)); diff != "" {
							t.Errorf("layer %d, head %d, group %d (-want +got):\n%s", l, h, u, diff)
						}
					}
				}
			}
			step(c.sparse)
		})
	}
}

// TestTinyEmbedding checks the weights above on the one row whose values are given.
func TestTinyEmbedding(t *testing.T) {
	g := gorgonia.NewGraph()
	y := must(graph.Embed("embed", variable(g, "ids", []int32{1}, 1, 1), weights{t}.matrix(7, 8, 1, 0.1), pulsecol.CPU))(t)
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	tol.CloseAbs(t, y.Value().Data().([]float32),
		[]float64{0.717356, 0.622234, -0.840609, -0.455724, 0.930880, 0.271333, -0.984626, -0.076296}, 5e-7+1.0/(1<<24))
}

// TestBatchOfModels: through all layers, a batch row gives the bits that it gives alone.
func TestBatchOfModels(t *testing.T) {
	run := func(n int, ids ...int32) (out [][]float32) {
		g := gorgonia.NewGraph()
		ctl := newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 2, Schedule: pulsecol.Uniform{Refreshes: 1}})
		logits := dream.build(t, g, ctl, 2, n, ids...)
		m := must(pulsecol.NewMachine(g, ctl))(t)
		defer m.Close()
		if err := ctl.Start(2); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := m.Step(); err != nil {
				t.Fatal(err)
			}
			out = append(out, slices.Clone(logits.Value().Data().([]float32)))
		}
		return out
	}
	one, two := []int32{1, 2, 3, 6, 6}, []int32{5, 0, 6, 4, 6}
	both := run(5, append(slices.Clone(one), two...)...)
	for i, ids := range [][]int32{one, two} {
		for step, want := range run(5, ids...) {
			if got := both[step][i*35 : (i+1)*35]; !slices.Equal(got, want) {
				t.Errorf("step %d, row %d: %v in a batch, %v alone", step+1, i, got, want)
			}
		}
	}
}
