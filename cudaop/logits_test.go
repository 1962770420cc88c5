//go:build cuda

package cudaop_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// same reports whether two choices are equal to the last bit; NaN is NaN.
func same(a, b lmhead.Choice) bool {
	return a.Token == b.Token && a.InvalidToken == b.InvalidToken && math.Float64bits(a.Confidence) == math.Float64bits(b.Confidence) &&
		(a.InvalidLogit == b.InvalidLogit || a.InvalidLogit != a.InvalidLogit && b.InvalidLogit != b.InvalidLogit)
}

// TestApplyRule: the GPU's choice for a row of logits is that of sampler.ApplyRule, to the last
// bit.
func TestApplyRule(t *testing.T) { onBoth(t, testApplyRule) }

func testApplyRule(t *testing.T) {
	g := gorgonia.NewGraph()
	x := input(g, "x", make([]float32, 8), 1, 1, 8)
	read(must(op.Apply(must(cudaop.Wrap(op.NewAdd("add"), op.AutoPrecision))(t), x, x))(t))
	vm := machine(t, g)
	inf := float32(math.Inf(-1))
	for _, vocab := range []int{1, 2, 31, 1023, 1024, 1025, 4099} {
		r := rand.New(rand.NewPCG(uint64(vocab), 0))
		rows := make([][]float32, 12)
		for i, draw := range []func(v int) float32{
			func(int) float32 { return float32(3 * r.NormFloat64()) },
			func(int) float32 { return float32(0.01 * r.NormFloat64()) },
			func(v int) float32 { return float32(v * v % 97) },
			func(int) float32 { return -2 },
			func(int) float32 { return float32(r.IntN(3)) },                                    // ties
			func(v int) float32 { return float32(math.Copysign(0, float64(v%2)-0.5)) },         // of zeros
			func(v int) float32 { return math.MaxFloat32 * float32(1-2*(v%2)) },                // far apart
			func(int) float32 { return math.Float32frombits(uint32(r.IntN(9))) },               // subnormal
			func(v int) float32 { return []float32{inf, float32(r.NormFloat64())}[r.IntN(2)] }, // some excluded
			func(int) float32 { return inf },                                                   // all
			func(v int) float32 { return []float32{1, float32(math.NaN())}[r.IntN(20)/19] },    // some NaN
			func(v int) float32 { return []float32{1, float32(math.Inf(1))}[r.IntN(20)/19] },
		} {
			rows[i] = make([]float32, vocab)
			for v := range rows[i] {
				rows[i][v] = draw(v)
			}
		}
		other := slices.Clone(rows) // of guidance
		slices.Reverse(other[:8])
		none, last := int32(-1), int32(vocab-1)
		for _, rule := range []lmhead.Rule{
			{SuppressToken: none, BanToken: none, DeferTokens: [2]int32{none, none}},
			{SuppressToken: 0, BanToken: none, DeferTokens: [2]int32{none, none}},
			{SuppressToken: none, BanToken: last, DeferTokens: [2]int32{0, last}},
			{SuppressToken: last, BanToken: 0, DeferTokens: [2]int32{none, last / 2}},
			{SuppressToken: none, BanToken: none, DeferTokens: [2]int32{0, none}, Guidance: 2.3},
		} {
			for _, rule.Confidence = range []lmhead.Confidence{lmhead.NoConfidence, lmhead.Probability, lmhead.Margin, lmhead.NegativeEntropy} {
				for _, rule.Rounding = range []lmhead.Rounding{lmhead.Float32, lmhead.BFloat16, lmhead.Float64} {
					u := other
					if rule.Guidance == 0 {
						u = nil
					}
					got := must(cudaop.ApplyRule(vm, &rule, rows, u))(t)
					for i, c := range got {
						if want := sampler.ApplyRule(&rule, rows[i], other[i]); !same(c, want) {
							t.Fatalf("%d tokens, row %d, %+v: %+v, want %+v", vocab, i, rule, c, want)
						}
					}
				}
			}
		}
	}
}

// TestDeferLogits: logits that are requested after a step are those of the operator, and so
// are the choices, in one chunk and in several.
func TestDeferLogits(t *testing.T) {
	needGPU(t)
	const n, features, vocab, batch = 9, 64, 1031, 2
	r := rand.New(rand.NewPCG(5, 0))
	normal := func(count int, scale float64) []float32 {
		x := make([]float32, count)
		for i := range x {
			x[i] = bf16.ToFloat32(bf16.FromFloat32(float32(scale * r.NormFloat64())))
		}
		return x
	}
	weight := must(op.NewWeightFloat32(vocab, features, normal(vocab*features, 0.3)))(t)
	head := op.NewLMHead("head", weight)
	selected := []int32{0, 17, 3, 3, 8, 11, -1, -1, 5, -1}
	const rows = 6 // that are asked for
	for _, c := range []struct {
		precision op.Precision
		most      int // bytes of logits at a time
	}{{op.BFloat16, 1 << 30}, {op.BFloat16, 4 * 4 * vocab}, {op.BFloat16, 1}, {op.Float32, 3 * 4 * vocab}} {
		t.Run(fmt.Sprintf("%v,%d bytes", c.precision, c.most), func(t *testing.T) {
			defer cudaop.SetLogitsBytes(cudaop.SetLogitsBytes(c.most))
			g := gorgonia.NewGraph()
			x := input(g, "x", normal(batch*n*features, 1), batch, n, features)
			at := input(g, "rows", slices.Clone(selected), len(selected))
			cpu, gpu := both(t, c.precision, op.NewGatherRows("rows"), x, at)
			cpu = must(op.Apply(head, cpu, at))(t)
			gpu = must(op.Apply(must(cudaop.Wrap(head, c.precision))(t), gpu, at))(t)
			later := lmhead.Defer(gpu.Op())
			if later == nil || lmhead.Defer(cpu.Op()) != nil {
				t.Fatal("only CUDA operators defer logits")
			}
			if _, err := later(rows).Rows(1, 0); err == nil {
				t.Error("logits before the first step")
			}
			vm := machine(t, g)
			run(t, vm)
			want := cpu.Value().Data().([]float32)

			logits := later(rows)
			if got, v := logits.Size(); got != rows || v != vocab {
				t.Errorf("%d rows of %d, want %d of %d", got, v, rows, vocab)
			}
			all := must(logits.Rows(rows, 0))(t)
			tol.Close(t, slices.Concat(all...), want[:rows*vocab], 1e-5) // sums in another order
			all = slices.Clone(all)
			for i := range all {
				all[i] = slices.Clone(all[i])
			}
			some := must(logits.Rows(2, 1, 4))(t)
			tol.Close(t, slices.Concat(some...), slices.Concat(want[vocab:3*vocab], want[4*vocab:6*vocab]), 1e-5)

			rule := lmhead.Rule{SuppressToken: 7, BanToken: 3, DeferTokens: [2]int32{1, 2}, Confidence: lmhead.Probability}
			for _, rule.Guidance = range []float32{0, 1.5} {
				count := rows
				if rule.Guidance != 0 {
					count /= 2
				}
				got := must(logits.(lmhead.RuleApplier).ApplyRule(&rule))(t)
				if len(got) != count {
					t.Fatalf("%d choices, want %d", len(got), count)
				}
				for i, c := range got {
					// A product of other rows may add in another order.
					want := sampler.ApplyRule(&rule, all[i], all[(i+rows/2)%rows])
					if c.Token != want.Token || math.Abs(c.Confidence-want.Confidence) > 1e-4*want.Confidence {
						t.Errorf("guidance %v, row %d: %+v, want %+v", rule.Guidance, i, c, want)
					}
				}
			}
			if none := later(0); len(must(none.(lmhead.RuleApplier).ApplyRule(&lmhead.Rule{}))(t)) != 0 {
				t.Error("choices of no rows")
			}
		})
	}
}

// TestLogitsShapes: while the number of selected rows falls, products have few different
// shapes, because cuBLASLt may have to load a kernel for each shape.
func TestLogitsShapes(t *testing.T) {
	needGPU(t)
	const rows, features, vocab = 200, 16, 37
	r := rand.New(rand.NewPCG(8, 0))
	normal := func(count int) []float32 {
		x := make([]float32, count)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	g := gorgonia.NewGraph()
	x, at := input(g, "x", normal(rows*features), 1, rows, features), input(g, "rows", make([]int32, rows), rows)
	weight := must(op.NewWeightFloat32(vocab, features, normal(vocab*features)))(t)
	gpu := must(op.Apply(must(cudaop.Wrap(op.NewLMHead("head", weight), op.AutoPrecision))(t), x, at))(t)
	later := lmhead.Defer(gpu.Op())
	vm := machine(t, g)
	run(t, vm)
	before := must(cudaop.Plans(vm))(t)
	rule := lmhead.Rule{SuppressToken: -1, BanToken: -1, DeferTokens: [2]int32{-1, -1}}
	all := must(later(rows).(lmhead.RuleApplier).ApplyRule(&rule))(t)
	for _, selected := range []int{199, 129, 128, 127, 50, 2, 1} {
		got := must(later(selected).(lmhead.RuleApplier).ApplyRule(&rule))(t)
		if len(got) != selected {
			t.Fatalf("%d choices of %d rows", len(got), selected)
		}
		for i, c := range got {
			if c.Token != all[i].Token {
				t.Errorf("%d rows, row %d: token %d, with all rows %d", selected, i, c.Token, all[i].Token)
			}
		}
	}
	if made := must(cudaop.Plans(vm))(t) - before; made != 2 { // of all rows and of 128
		t.Errorf("products of %d shapes, want 2", made)
	}
}

// TestDeferLogitsErrors: rows out of range, and a closed machine.
func TestDeferLogitsErrors(t *testing.T) {
	needGPU(t)
	g := gorgonia.NewGraph()
	x, rows := input(g, "x", make([]float32, 32), 1, 4, 8), []int32{0, 1}
	weight := must(op.NewWeightFloat32(5, 8, make([]float32, 40)))(t)
	selected := input(g, "rows", rows, 2)
	gpu := func(o gorgonia.Op, x *gorgonia.Node) *gorgonia.Node {
		return must(op.Apply(must(cudaop.Wrap(o, op.AutoPrecision))(t), x, selected))(t)
	}
	later := lmhead.Defer(gpu(op.NewLMHead("head", weight), gpu(op.NewGatherRows("rows"), x)).Op())
	if err := op.NewWorkspace().Plan(g, []op.Mode{op.Dense}); err != nil { // so that the step does not wait for the rows
		t.Fatal(err)
	}
	vm := must(cudaop.NewTapeMachine(g))(t)
	step := func() {
		t.Helper()
		run(t, vm)
	}
	step()
	must(later(2).Rows(2, 0))(t)
	rows[1] = 4
	step()
	if _, err := later(2).Rows(2, 0); !errors.Is(err, op.ErrValue) || !strings.Contains(err.Error(), "rows[1]") {
		t.Errorf("row 4 of 4: error %v", err)
	}
	rows[1] = 3
	step()
	must(later(2).Rows(2, 0))(t)
	if err := cudaop.Close(vm); err != nil {
		t.Fatal(err)
	}
	if _, err := later(2).Rows(2, 0); err == nil {
		t.Error("logits of a closed machine")
	}
}

// BenchmarkDeferLogits is the head of LLaDA-8B: what a step takes for its logits
// and the choices of each measure, and for a copy of the rows.
func BenchmarkDeferLogits(b *testing.B) {
	needGPU(b)
	const features, vocab = 4096, 126464
	weight := must(op.NewWeight(vocab, features, op.BF16, make([]byte, 2*vocab*features)))(b)
	for _, rows := range []int{32, 128, 1024} {
		g := gorgonia.NewGraph()
		at := make([]int32, rows)
		x := input(g, "x", make([]float32, rows*features), 1, rows, features)
		gpu := must(op.Apply(must(cudaop.Wrap(op.NewLMHead("head", weight), op.AutoPrecision))(b), x, input(g, "rows", at, rows)))(b)
		later := lmhead.Defer(gpu.Op())
		vm := machine(b, g)
		if err := vm.RunAll(); err != nil {
			b.Fatal(err)
		}
		logits := later(rows)
		must(logits.Rows(rows, 0))(b) // the weight is there now
		for measure, name := range []string{"token", "probability", "margin", "entropy"} {
			b.Run(fmt.Sprintf("rows%d,%s", rows, name), func(b *testing.B) {
				rule := lmhead.Rule{SuppressToken: -1, BanToken: -1, DeferTokens: [2]int32{-1, -1}, Confidence: lmhead.Confidence(measure)}
				for b.Loop() {
					must(logits.(lmhead.RuleApplier).ApplyRule(&rule))(b)
				}
			})
		}
		b.Run(fmt.Sprintf("rows%d,copied", rows), func(b *testing.B) {
			for b.Loop() {
				must(logits.Rows(rows, 0))(b)
			}
		})
	}
}
