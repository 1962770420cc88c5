//go:build cuda

package cudaop_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// TestLayerOperators: the layers around attention, on values of the machine, against
// the same operators on the CPU. Inputs are exact in the precision, so that all of the
// error is the GPU's: sums in float32, and results rounded once if at all.
func TestLayerOperators(t *testing.T) { onBoth(t, testLayerOperators) }

func testLayerOperators(t *testing.T) {
	for _, p := range []op.Precision{op.BFloat16, op.Float32} {
		for _, dim := range []int{64, 6} { // whole pieces of 8 elements, and others
			t.Run(fmt.Sprintf("%v,dim%d", p, dim), func(t *testing.T) { testLayers(t, p, dim) })
		}
	}
}

func testLayers(t *testing.T, precision op.Precision, dim int) {
	const batch, n, heads, out, vocab = 2, 37, 3, 71, 50
	features := heads * dim
	r := rand.New(rand.NewPCG(10, 0))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
			if precision == op.BFloat16 {
				x[i] = bf16.ToFloat32(bf16.FromFloat32(x[i]))
			}
		}
		return x
	}
	below := func(n, limit int) []int32 {
		x := make([]int32, n)
		for i := range x {
			x[i] = int32(r.IntN(limit))
		}
		return x
	}
	matrix := func(rows, cols int) op.Weight {
		return must(op.NewWeightFloat32(rows, cols, random(rows*cols)))(t)
	}
	g := gorgonia.NewGraph()
	x := input(g, "x", random(batch*n*features), batch, n, features)
	y := input(g, "y", random(batch*n*features), batch, n, features)
	h := input(g, "h", random(batch*n*features), batch, heads, n, dim)
	ids := input(g, "ids", below(batch*n, vocab), batch, n)
	positions := input(g, "positions", below(batch*n, 100000), batch, n)
	rows := input(g, "rows", []int32{0, 5, batch*n - 1, 7}, 4)
	taken := input(g, "taken", random(4*features), 1, 4, features)

	shared := matrix(out, features)
	type pair struct{ cpu, gpu *gorgonia.Value }
	results := map[string]pair{}
	for _, c := range []struct {
		o  gorgonia.Op
		in []*gorgonia.Node
	}{
		{op.NewEmbed("embed", matrix(vocab, features)), []*gorgonia.Node{ids}},
		{must(op.NewLinear("linear", op.Projection{Weight: matrix(out, features)}))(t), []*gorgonia.Node{x}},
		{must(op.NewLinear("biased", op.Projection{Weight: matrix(out, features), Bias: random(out)}))(t), []*gorgonia.Node{x}},
		{must(op.NewLinear("stacked", op.Projection{Weight: shared}, op.Projection{Weight: matrix(out, features), Bias: random(out)}))(t), []*gorgonia.Node{x}},
		{must(op.NewLinear("stacked otherwise", op.Projection{Weight: shared}, op.Projection{Weight: matrix(out, features)}))(t), []*gorgonia.Node{x}},
		{must(op.NewAddLinear("residual", op.Projection{Weight: matrix(features, features), Bias: random(features)}))(t), []*gorgonia.Node{x, y}},
		{must(op.NewAddLinear("residual of itself", op.Projection{Weight: matrix(features, features)}))(t), []*gorgonia.Node{x, x}},
		{op.NewGatherRows("rows"), []*gorgonia.Node{x, rows}},
		{op.NewLMHead("logits", matrix(vocab, features)), []*gorgonia.Node{taken, rows}},
		{op.NewRMSNorm("norm", random(features), 1e-5), []*gorgonia.Node{x}},
		{must(op.NewRoPE("rope", op.Heads{Count: heads, Dim: dim}, 1e6))(t), []*gorgonia.Node{x, positions}},
		{must(op.NewRoPE("rope of some", op.Heads{First: 1, Count: 2, Dim: dim}, 1e6))(t), []*gorgonia.Node{x, positions}},
		{must(op.NewSplitHeads("split", op.Heads{Count: heads, Dim: dim}))(t), []*gorgonia.Node{x}},
		{must(op.NewSplitHeads("split some", op.Heads{First: 2, Count: 1, Dim: dim}))(t), []*gorgonia.Node{x}},
		{op.NewMergeHeads("merge"), []*gorgonia.Node{h}},
		{must(op.NewSwiGLU("swiglu", op.Projection{Weight: shared}, op.Projection{Weight: matrix(out, features), Bias: random(out)}))(t), []*gorgonia.Node{x}},
		{op.NewAdd("add"), []*gorgonia.Node{x, y}},
	} {
		cpu, gpu := both(t, precision, c.o, c.in...)
		results[c.o.String()] = pair{read(cpu), read(gpu)}
	}
	run(t, machine(t, g))
	for name, p := range results {
		t.Run(name, func(t *testing.T) { tol.Close(t, floats(p.gpu), floats(p.cpu), 1e-5) })
	}
}

// TestResidual: a sum takes the memory of a residual without further readers,
// and to no other.
func TestResidual(t *testing.T) {
	needGPU(t)
	const n, features = 5, 24
	r := rand.New(rand.NewPCG(13, 0))
	matrix := func(rows int) op.Projection {
		v := make([]float32, rows*features)
		for i := range v {
			v[i] = float32(r.NormFloat64()) / 4
		}
		return op.Projection{Weight: must(op.NewWeightFloat32(rows, features, v))(t)}
	}
	table, first, second, third := matrix(7).Weight, matrix(features), matrix(features), matrix(features)
	ones := slices.Repeat([]float32{1}, features)
	g := gorgonia.NewGraph()
	ids := input(g, "ids", []int32{3, 1, 4, 1, 5}, 1, n)
	chain := func(apply func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node) *gorgonia.Node {
		x := apply(op.NewEmbed("x", table), ids)
		norm := apply(op.NewRMSNorm("norm", ones, 1e-5), x)
		early := apply(must(op.NewAddLinear("early", first))(t), norm, x) // x is read once more
		sum := apply(op.NewAdd("sum"), early, x)
		late := apply(must(op.NewAddLinear("late", second))(t), sum, early) // early is not
		itself := apply(must(op.NewAddLinear("itself", third))(t), late, late)
		return apply(op.NewAdd("last"), itself, sum)
	}
	cpu := chain(func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node { return must(op.Apply(o, in...))(t) })
	gpu := chain(func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node {
		return must(op.Apply(must(cudaop.Wrap(o, op.Float32))(t), in...))(t)
	})
	want, got := read(cpu), read(gpu)
	if err := op.NewWorkspace().Plan(g, []op.Mode{op.Dense}); err != nil {
		t.Fatal(err)
	}
	vm := machine(t, g)
	for range 3 {
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		vm.Reset()
		tol.Close(t, floats(got), floats(want), 1e-5)
	}
}

// TestLayout: attention whose output has the layout BNHD gives the bits of attention whose
// output goes to the machine, for all readers.
func TestLayout(t *testing.T) { onBoth(t, testLayout) }

func testLayout(t *testing.T) {
	for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.SparseD{BlockSize: 16, Generation: 10}, pulsecol.SlidingWindow{Width: 20}} {
		for _, p := range []pulsecol.Precision{pulsecol.BFloat16, pulsecol.Float32} {
			if cudaop.SM80Forced() && p == pulsecol.Float32 {
				continue
			}
			t.Run(fmt.Sprintf("%v,%v", pattern, p), func(t *testing.T) {
				cfg := pulsecol.Config{Sparsity: 0.6, Pattern: pattern, Schedule: pulsecol.Uniform{Refreshes: 1}, Precision: p}
				if _, columns := pattern.(pulsecol.Columns); columns {
					cfg.GroupSize = 32
				}
				separate, joined := newBlocks(t, cfg, true), newBlocks(t, cfg, false)
				for step, mode := range []string{"refresh", "reuse", "full", "reuse again"} {
					want := separate.run(t, step == 2)
					held := gpu.Held()
					for what, got := range joined.run(t, step == 2) {
						for i := range got {
							// What goes to the machine is not rounded, and then is when it comes back.
							if x, y := got[i], want[what][i]; rounded(p, x) != rounded(p, y) {
								t.Errorf("%s: %s: [%d] is %v, with copies %v", mode, what, i, x, y)
								break
							}
						}
					}
					if more := gpu.Held() - held; step > 2 && more != 0 {
						t.Errorf("%s: %d more bytes held", mode, more)
					}
				}
			})
		}
	}
}

// blocks are attentions of a transformer's blocks with the products after them.
type blocks struct {
	ctl     *pulsecol.Controller
	m       *pulsecol.Machine
	results map[string]*gorgonia.Value
}

// newBlocks returns blocks of several shapes. With separate, the machine reads attention's
// outputs, so that they are in its memory.
func newBlocks(t *testing.T, cfg pulsecol.Config, separate bool) *blocks {
	t.Helper()
	cfg.Device = pulsecol.CUDA
	b := &blocks{ctl: must(pulsecol.NewController(cfg))(t), results: map[string]*gorgonia.Value{}}
	g := gorgonia.NewGraph()
	for i, s := range []kernel.Shape{
		{Batch: 2, Heads: 4, KVHeads: 2, Len: 150, HeadDim: 64},
		{Batch: 1, Heads: 7, KVHeads: 1, Len: 97, HeadDim: 128},
		{Batch: 2, Heads: 2, KVHeads: 2, Len: 33, HeadDim: 128},
		{Batch: 2, Heads: 4, KVHeads: 2, Len: 40, HeadDim: 80}, // bfloat16 becomes float32
		{Batch: 2, Heads: 2, KVHeads: 1, Len: 21, HeadDim: 6},
	} {
		b.add(t, g, i, cfg.Precision, s, separate)
	}
	if err := op.NewWorkspace().Plan(g, b.ctl.Modes()); err != nil {
		t.Fatal(err)
	}
	b.m = must(pulsecol.NewMachine(g, b.ctl))(t)
	t.Cleanup(func() {
		if err := errors.Join(b.m.Close(), b.ctl.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := b.ctl.Start(8); err != nil {
		t.Fatal(err)
	}
	return b
}

// add adds a block.
func (b *blocks) add(t *testing.T, g *gorgonia.ExprGraph, layer int, p pulsecol.Precision, s kernel.Shape, separate bool) {
	t.Helper()
	path := name(s, 32) + "."
	apply := func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node {
		return must(op.Apply(must(cudaop.Wrap(o, p))(t), in...))(t)
	}
	r := rand.New(rand.NewPCG(14, uint64(layer)))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	split := func(name string, first, count int, x *gorgonia.Node) *gorgonia.Node {
		return apply(must(op.NewSplitHeads(path+name, op.Heads{First: first, Count: count, Dim: s.HeadDim}))(t), x)
	}
	all, width := s.Heads+2*s.KVHeads, s.Heads*s.HeadDim
	x := input(g, path+"x", random(s.Batch*s.Len*all*s.HeadDim), s.Batch, s.Len, all*s.HeadDim)
	q, k, v := split("q", 0, s.Heads, x), split("k", s.Heads, s.KVHeads, x), split("v", s.Heads+s.KVHeads, s.KVHeads, x)
	y := must(pulsecol.Attention(q, k, v, b.ctl.Layer(layer)))(t)
	dense := apply(must(op.NewDenseAttn(path+"dense", 0, false))(t), q, k, v)
	if separate {
		read(y)
		read(dense)
	}
	const features = 24
	out := op.Projection{Weight: must(op.NewWeightFloat32(features, width, random(features*width)))(t)}
	product := func(name string, y *gorgonia.Node) *gorgonia.Node {
		return apply(must(op.NewLinear(path+name, out))(t), apply(op.NewMergeHeads(path+name+".merge"), y))
	}
	results := map[string]*gorgonia.Node{
		"output":       apply(op.NewMergeHeads(path+"output"), y),
		"product":      product("product", y),
		"full product": product("full product", dense), // its only reader
	}
	if p == pulsecol.Float32 || s.HeadDim%64 == 0 { // others would take from the machine what is not rounded
		results["of itself"] = apply(must(op.NewDenseAttn(path+"itself", 0, false))(t), y, y, y)
	}
	for what, n := range results {
		b.results[path+what] = read(n)
	}
}

// run runs a step, of full attention or as scheduled.
func (b *blocks) run(t *testing.T, full bool) map[string][]float32 {
	t.Helper()
	b.ctl.SetDense(full)
	if err := b.m.Step(); err != nil {
		t.Fatal(err)
	}
	results := map[string][]float32{}
	for what, v := range b.results {
		results[what] = slices.Clone(floats(v))
	}
	return results
}

// BenchmarkLaunch is what an operator costs on the host, Gorgonia's part included,
// where all values stay on the GPU.
func BenchmarkLaunch(b *testing.B) {
	needGPU(b)
	const count = 256
	g := gorgonia.NewGraph()
	x := input(g, "x", make([]float32, 8), 1, 1, 8)
	weight := slices.Repeat([]float32{1}, 8)
	for i := range count {
		o := must(cudaop.Wrap(op.NewRMSNorm(fmt.Sprint(i), weight, 1e-5), op.BFloat16))(b)
		x = must(op.Apply(o, x))(b)
	}
	read(x)
	if err := op.NewWorkspace().Plan(g, []op.Mode{op.Dense}); err != nil {
		b.Fatal(err)
	}
	vm := machine(b, g)
	for b.Loop() {
		if err := vm.RunAll(); err != nil {
			b.Fatal(err)
		}
		vm.Reset()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/operator")
}

// TestIndices: ids and rows out of range are errors that name them.
func TestIndices(t *testing.T) {
	needGPU(t)
	w := must(op.NewWeightFloat32(10, 8, make([]float32, 80)))(t)
	for _, c := range []struct {
		ids  []int32
		want string
	}{
		{[]int32{1, 10}, "row 0, position 1"},
		{[]int32{-1, 3}, "row 0, position 0"},
	} {
		g := gorgonia.NewGraph()
		o := must(cudaop.Wrap(op.NewEmbed("embed", w), op.AutoPrecision))(t)
		read(must(op.Apply(o, input(g, "ids", c.ids, 1, 2)))(t))
		if err := machine(t, g).RunAll(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ids %v: %v, want an error about %q", c.ids, err, c.want)
		}
	}
}
