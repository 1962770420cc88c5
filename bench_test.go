package pulsecol_test

import (
	"math"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// variable adds an input node that holds x.
func variable[E any](g *gorgonia.ExprGraph, name string, x []E, shape ...int) *gorgonia.Node {
	t := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))
	return gorgonia.NewTensor(g, t.Dtype(), len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(t))
}

// must1 is must for the chains of nodes below.
func must1(b *testing.B) func(n *gorgonia.Node, err error) *gorgonia.Node {
	return func(n *gorgonia.Node, err error) *gorgonia.Node {
		b.Helper()
		return must(n, err)(b)
	}
}

// gorgoniaAttention is full attention from Gorgonia's own operators: q, k and v
// [heads, n, dim].
func gorgoniaAttention(b *testing.B, q, k, v *gorgonia.Node) *gorgonia.Node {
	m := must1(b)
	scale := gorgonia.NewConstant(float32(1/math.Sqrt(float64(q.Shape()[2]))), gorgonia.WithName("scale"))
	scores := m(gorgonia.BatchedMatMul(m(gorgonia.HadamardProd(q, scale)), k, false, true))
	return m(gorgonia.BatchedMatMul(m(gorgonia.SoftMax(scores, 2)), v))
}

// runs measures runs of a machine after one that is checked against want.
func runs(b *testing.B, vm gorgonia.VM, y *gorgonia.Node, want []float32, flops float64) {
	b.Helper()
	step := func() {
		if err := vm.RunAll(); err != nil {
			b.Fatal(err)
		}
	}
	step()
	if got := y.Value().Data().([]float32); want != nil {
		// Two orders of float32 sums of some thousand terms each.
		if e := tol.RelL2(got, want); e > 1e-5 {
			b.Fatalf("results differ by %g, relative", e)
		}
	}
	vm.Reset()
	b.ReportAllocs()
	for b.Loop() {
		step()
		vm.Reset()
	}
	b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// value runs a machine once and returns a copy of y's value.
func value(b *testing.B, vm gorgonia.VM, y *gorgonia.Node) []float32 {
	b.Helper()
	if err := vm.RunAll(); err != nil {
		b.Fatal(err)
	}
	defer vm.Reset()
	return slices.Clone(y.Value().Data().([]float32))
}

// BenchmarkAttention is one layer of full attention, 8 heads of 64 and 1024
// tokens, from Gorgonia's own operators and from this module; and the same layer
// in a reuse step at 80 % sparsity. GFLOP/s count what full attention computes.
func BenchmarkAttention(b *testing.B) {
	s := kernel.Shape{Batch: 1, Heads: 8, KVHeads: 8, Len: 1024, HeadDim: 64}
	a := attncase.Seeded(1, s)
	flops := 4 * float64(s.Heads) * float64(s.Len) * float64(s.Len) * float64(s.HeadDim)

	g := gorgonia.NewGraph()
	three := func(name string, x []float32) *gorgonia.Node { return variable(g, name, x, s.Heads, s.Len, s.HeadDim) }
	theirs := gorgoniaAttention(b, three("q", a.Q), three("k", a.K), three("v", a.V))
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	want := value(b, vm, theirs)
	b.Run("gorgonia", func(b *testing.B) { runs(b, vm, theirs, want, flops) })

	layer := func(b *testing.B, cfg pulsecol.Config) (*pulsecol.Machine, *gorgonia.Node) {
		g := gorgonia.NewGraph()
		four := func(name string, x []float32) *gorgonia.Node {
			return variable(g, name, x, 1, s.Heads, s.Len, s.HeadDim)
		}
		ctl := newController(b, cfg)
		y := must(pulsecol.Attention(four("q", a.Q), four("k", a.K), four("v", a.V), ctl.Layer(0)))(b)
		m := must(pulsecol.NewMachine(g, ctl))(b)
		b.Cleanup(func() { m.Close() })
		if err := ctl.Start(math.MaxInt32); err != nil {
			b.Fatal(err)
		}
		return m, y
	}
	b.Run("pulsecol", func(b *testing.B) {
		m, y := layer(b, pulsecol.Config{})
		runs(b, m, y, want, flops)
	})
	b.Run("pulsecol-reuse", func(b *testing.B) {
		m, y := layer(b, pulsecol.Config{Sparsity: 0.8, Schedule: refreshOnce})
		refreshed := value(b, m, y)
		if e := tol.RelL2(refreshed, want); e > 1e-5 {
			b.Fatalf("the refresh differs by %g, relative", e)
		}
		runs(b, m, y, nil, flops)
	})
}

// BenchmarkBlock is one transformer block, 512 features, 8 heads, 1536 hidden
// features and 1024 tokens, from Gorgonia's own operators and from this module.
func BenchmarkBlock(b *testing.B) {
	const n, heads, dim, hidden = 1024, 8, 64, 1536
	const features, theta, eps = heads * dim, 1e4, 1e-5
	r := attncase.Rand(1)
	x := attncase.Normal(r, n*features, 1)
	ones := slices.Repeat([]float32{1}, features)
	weights := map[string][]float32{}
	sizes := map[string][2]int{ // outputs, inputs
		"q": {features, features}, "k": {features, features}, "v": {features, features}, "out": {features, features},
		"gate": {hidden, features}, "up": {hidden, features}, "down": {features, hidden},
	}
	flops := 4.0 * n * n * features
	for _, name := range []string{"q", "k", "v", "out", "gate", "up", "down"} {
		rows, cols := sizes[name][0], sizes[name][1]
		w := attncase.Normal(r, rows*cols, 1)
		for i := range w {
			w[i] /= float32(math.Sqrt(float64(cols)))
		}
		weights[name] = w
		flops += 2 * n * float64(rows*cols)
	}

	g := gorgonia.NewGraph()
	m := must1(b)
	linear := func(name string, x *gorgonia.Node) *gorgonia.Node {
		rows, cols := sizes[name][0], sizes[name][1]
		t := make([]float32, rows*cols) // [inputs, outputs]
		for i, w := range weights[name] {
			t[i%cols*rows+i/cols] = w
		}
		return m(gorgonia.Mul(x, variable(g, name, t, cols, rows)))
	}
	norm := func(x *gorgonia.Node, weight *gorgonia.Node) *gorgonia.Node {
		mean := m(gorgonia.Mean(m(gorgonia.Square(x)), 1))
		rms := m(gorgonia.Sqrt(m(gorgonia.Add(mean, gorgonia.NewConstant(float32(eps), gorgonia.WithName("eps"))))))
		return m(gorgonia.BroadcastHadamardProd(m(gorgonia.BroadcastHadamardDiv(x, rms, nil, []byte{1})), weight, nil, []byte{0}))
	}
	split := func(x *gorgonia.Node) *gorgonia.Node { // [n, features] -> [heads, n, dim]
		return m(gorgonia.Transpose(m(gorgonia.Reshape(x, tensor.Shape{n, heads, dim})), 1, 0, 2))
	}
	var cosines, sines []float32
	for range heads {
		for i := range n {
			for d := range dim / 2 {
				sin, cos := math.Sincos(float64(i) * math.Pow(theta, -2*float64(d)/dim))
				cosines, sines = append(cosines, float32(cos)), append(sines, float32(sin))
			}
		}
	}
	cos, sin := variable(g, "cos", cosines, heads, n, dim/2), variable(g, "sin", sines, heads, n, dim/2)
	rope := func(x *gorgonia.Node) *gorgonia.Node {
		lower, upper := m(gorgonia.Slice(x, nil, nil, gorgonia.S(0, dim/2))), m(gorgonia.Slice(x, nil, nil, gorgonia.S(dim/2, dim)))
		return m(gorgonia.Concat(2,
			m(gorgonia.Sub(m(gorgonia.HadamardProd(lower, cos)), m(gorgonia.HadamardProd(upper, sin)))),
			m(gorgonia.Add(m(gorgonia.HadamardProd(upper, cos)), m(gorgonia.HadamardProd(lower, sin))))))
	}
	one := variable(g, "norm", ones, features)
	in := variable(g, "x", x, n, features)
	h := norm(in, one)
	attended := gorgoniaAttention(b, rope(split(linear("q", h))), rope(split(linear("k", h))), split(linear("v", h)))
	merged := m(gorgonia.Reshape(m(gorgonia.Transpose(attended, 1, 0, 2)), tensor.Shape{n, features}))
	y := m(gorgonia.Add(in, linear("out", merged)))
	h = norm(y, one)
	gate := linear("gate", h)
	act := m(gorgonia.HadamardProd(m(gorgonia.HadamardProd(gate, m(gorgonia.Sigmoid(gate)))), linear("up", h)))
	theirs := m(gorgonia.Add(y, linear("down", act)))
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	want := value(b, vm, theirs)
	b.Run("gorgonia", func(b *testing.B) { runs(b, vm, theirs, want, flops) })

	b.Run("pulsecol", func(b *testing.B) {
		g := gorgonia.NewGraph()
		projection := func(name string) graph.Projection {
			return graph.Projection{Path: name, Weight: must(op.NewWeightFloat32(sizes[name][0], sizes[name][1], weights[name]))(b)}
		}
		block := graph.Block{
			Path: "block", Heads: heads, KVHeads: heads, HeadDim: dim, Theta: theta,
			AttentionNorm: graph.Norm{Path: "norm1", Weight: ones, Eps: eps}, FeedForwardNorm: graph.Norm{Path: "norm2", Weight: ones, Eps: eps},
			Q: projection("q"), K: projection("k"), V: projection("v"), Out: projection("out"),
			Gate: projection("gate"), Up: projection("up"), Down: projection("down"),
		}
		at := make([]int32, n)
		for i := range at {
			at[i] = int32(i)
		}
		ctl := newController(b, pulsecol.Config{})
		y := must(block.Build(variable(g, "x", x, 1, n, features), variable(g, "positions", at, 1, n), ctl.Layer(0)))(b)
		if err := op.NewWorkspace().Plan(g, ctl.Modes(), y); err != nil {
			b.Fatal(err)
		}
		m := must(pulsecol.NewMachine(g, ctl))(b)
		defer m.Close()
		if err := ctl.Start(math.MaxInt32); err != nil {
			b.Fatal(err)
		}
		runs(b, m, y, want, flops)
	})
}
