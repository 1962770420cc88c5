//go:build cuda

package cudaop_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// fewProducts are the operators with products, of n rows.
type fewProducts struct{ cpu, gpu map[string][]float32 }

// runFew runs the operators with products in bfloat16 on the CPU and on the GPU. Inputs and
// weights are exact in bfloat16; the first rows of inputs do not depend on their number.
func runFew(t *testing.T, n, in, out int, spoil func(x, w []float32)) fewProducts {
	t.Helper()
	random := func(seed uint64, n int) []float32 {
		r := rand.New(rand.NewPCG(seed, uint64(in)))
		x := make([]float32, n)
		for i := range x {
			x[i] = bf16.ToFloat32(bf16.FromFloat32(float32(r.NormFloat64())))
		}
		return x
	}
	values, weights := random(1, n*in), random(2, out*in)
	if spoil != nil {
		spoil(values, weights)
	}
	projection := func(seed uint64, bias []float32) op.Projection {
		w := weights
		if seed != 2 {
			w = random(seed, out*in)
		}
		return op.Projection{Weight: must(op.NewWeightFloat32(out, in, w))(t), Bias: bias}
	}
	plain := projection(2, nil)
	g := gorgonia.NewGraph()
	x := input(g, "x", values, 1, n, in)
	y := input(g, "y", random(3, n*out), 1, n, out)
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}
	selected := input(g, "rows", rows, n)
	type pair struct{ cpu, gpu *gorgonia.Value }
	results := map[string]pair{}
	for _, c := range []struct {
		o  gorgonia.Op
		in []*gorgonia.Node
	}{
		{must(op.NewLinear("linear", plain))(t), []*gorgonia.Node{x}},
		{must(op.NewLinear("biased", projection(2, random(4, out))))(t), []*gorgonia.Node{x}},
		{must(op.NewAddLinear("residual", plain))(t), []*gorgonia.Node{x, y}},
		{must(op.NewAddLinear("biased residual", projection(2, random(5, out))))(t), []*gorgonia.Node{x, y}},
		{must(op.NewSwiGLU("swiglu", plain, projection(6, nil)))(t), []*gorgonia.Node{x}},
		{must(op.NewSwiGLU("biased swiglu", projection(2, random(7, out)), projection(6, random(8, out))))(t), []*gorgonia.Node{x}},
		{op.NewLMHead("logits", plain.Weight), []*gorgonia.Node{x, selected}},
	} {
		cpu, gpu := both(t, op.BFloat16, c.o, c.in...)
		results[c.o.String()] = pair{read(cpu), read(gpu)}
	}
	run(t, machine(t, g))
	f := fewProducts{map[string][]float32{}, map[string][]float32{}}
	for name, p := range results {
		f.cpu[name], f.gpu[name] = slices.Clone(floats(p.cpu)), slices.Clone(floats(p.gpu))
	}
	return f
}

// TestFewRowsInPlace: a residual that only a sum reads, in the GPU's own memory in bfloat16,
// becomes the sum.
func TestFewRowsInPlace(t *testing.T) { onBoth(t, testFewRowsInPlace) }

func testFewRowsInPlace(t *testing.T) {
	const in = 200
	r := rand.New(rand.NewPCG(21, 0))
	matrix := func(out, in int) op.Projection {
		v := make([]float32, out*in)
		for i := range v {
			v[i] = bf16.ToFloat32(bf16.FromFloat32(float32(r.NormFloat64())))
		}
		return op.Projection{Weight: must(op.NewWeightFloat32(out, in, v))(t)}
	}
	for _, n := range []int{1, 31, 65} {
		for _, out := range []int{71, 264} {
			t.Run(fmt.Sprintf("%d x %d", n, out), func(t *testing.T) {
				table, first, second := matrix(9, in).Weight, matrix(out, in), matrix(out, in)
				rows := make([]int32, n)
				for i := range rows {
					rows[i] = int32(i % 9)
				}
				g := gorgonia.NewGraph()
				ids := input(g, "ids", rows, 1, n)
				chain := func(apply func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node) *gorgonia.Node {
					x := apply(op.NewEmbed("x", table), ids)
					return apply(must(op.NewAddLinear("sum", second))(t), x, apply(must(op.NewLinear("first", first))(t), x))
				}
				cpu := read(chain(func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node { return must(op.Apply(o, in...))(t) }))
				gpu := read(chain(func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node {
					return must(op.Apply(must(cudaop.Wrap(o, op.BFloat16))(t), in...))(t)
				}))
				if err := op.NewWorkspace().Plan(g, []op.Mode{op.Dense}); err != nil {
					t.Fatal(err)
				}
				run(t, machine(t, g))
				// The residual is rounded to 8 bits.
				if e := tol.RelL2(floats(gpu), floats(cpu)); !(e <= 2.5e-3) {
					t.Errorf("relative error %.3g", e)
				}
			})
		}
	}
}

// TestFewRows: products of few rows against the CPU, where numbers of rows, inputs and outputs
// are those of tiles, one less and one more. On Hopper a row gives the same bits whatever the
// number of rows is, up to that where cuBLASLt takes over.
func TestFewRows(t *testing.T) { onBoth(t, testFewRows) }

func testFewRows(t *testing.T) {
	for _, s := range [][2]int{{64, 128}, {200, 71}, {8, 1}, {264, 385}, {520, 130}, {132, 40}} { // 132: not a multiple of 8
		in, out := s[0], s[1]
		var before map[string][]float32
		for _, n := range []int{1, 7, 16, 31, 33, 65, 128} {
			t.Run(fmt.Sprintf("%d x %d x %d", n, in, out), func(t *testing.T) {
				got := runFew(t, n, in, out, nil)
				for name := range got.gpu {
					if e := tol.RelL2(got.gpu[name], got.cpu[name]); !(e <= 1e-5) {
						t.Errorf("%s: relative error %.3g", name, e)
					}
					if few := before[name]; few != nil && n <= 31 && in%8 == 0 && !cudaop.SM80Forced() && !slices.Equal(got.gpu[name][:len(few)], few) {
						t.Errorf("%s: the first %d values are not those of fewer rows", name, len(few))
					}
				}
				before = got.gpu
			})
		}
	}
}

// TestFewRowsSpecial: NaN and infinities get where the CPU has them, and no further.
func TestFewRowsSpecial(t *testing.T) { onBoth(t, testFewRowsSpecial) }

func testFewRowsSpecial(t *testing.T) {
	const n, in, out = 7, 200, 71
	got := runFew(t, n, in, out, func(x, w []float32) {
		x[2*in+199] = float32(math.NaN())
		x[4*in+3] = float32(math.Inf(1))
		w[5*in] = float32(math.Inf(-1))
	})
	class := func(x float32) string {
		switch {
		case x != x:
			return "NaN"
		case math.IsInf(float64(x), 0):
			return fmt.Sprint(x)
		}
		return "finite"
	}
	for name, want := range got.cpu {
		if !slices.ContainsFunc(want, func(x float32) bool { return class(x) == "finite" }) {
			t.Errorf("%s: the CPU has no finite values", name)
		}
		for i := range want {
			if a, b := class(got.gpu[name][i]), class(want[i]); a != b {
				t.Errorf("%s: [%d %d] is %s, want %s", name, i/out, i%out, a, b)
			}
		}
	}
}
