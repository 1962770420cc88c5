package kernel_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// bf16ULP is the largest relative error of rounding to bfloat16.
const bf16ULP = 1.0 / (1 << 8)

func rounded(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, f := range x {
		y[i] = bf16.ToFloat32(bf16.FromFloat32(f))
	}
	return y
}

// roundedOperands are the operands of the products of a call with another
// precision than Float32, for the reference: queries are rounded after they were
// scaled, for powers of 2. Values of Int16 are not rounded but for what is not
// finite, because their units depend on the order of the keys.
func roundedOperands(a *kernel.Operands) *kernel.Operands {
	b := *a
	b.Q = clone(a.Q)
	for i := range b.Q {
		b.Q[i] *= float32(float64(a.Scale) * math.Log2E)
	}
	b.Scale = math.Ln2
	if a.Precision == kernel.BFloat16 {
		b.Q, b.K, b.V = rounded(b.Q), rounded(a.K), rounded(a.V)
		return &b
	}
	b.Q, b.K, b.V = integers(b.Q, a.HeadDim), integers(a.K, a.HeadDim), clone(a.V)
	size := a.Len * a.HeadDim
	for i, x := range a.V {
		if !finite(float64(x)) {
			for j := i / size * size; j < (i/size+1)*size; j++ {
				if j%a.HeadDim == i%a.HeadDim {
					b.V[j] = float32(math.NaN())
				}
			}
		}
	}
	return &b
}

// integers rounds rows of n numbers to multiples of a unit each, as many as let n
// products of two of them be less than 2^31. A row that is not finite becomes NaN.
func integers(x []float32, n int) []float32 {
	largest := float32(min(1<<15-1, math.Floor(math.Sqrt((1<<31-1)/float64(n)))))
	y := make([]float32, len(x))
	for i := 0; i < len(x); i += n {
		most := 0x1p-100
		for _, f := range x[i : i+n] {
			if !finite(float64(f)) {
				most = math.NaN()
				break
			}
			most = max(most, math.Abs(float64(f)))
		}
		for j, f := range x[i : i+n] {
			y[i+j] = float32(math.RoundToEven(float64(f*(largest/float32(most))))) * (float32(most) / largest)
		}
	}
	return y
}

// slack is the distance of output elements from the reference that rounding of weights, and
// of values with Int16, may cause. The reference does not round these.
//
// With BFloat16 each weight is off by a rounding, and with it its share of the
// output, which is known from the same attention over |v|. With Int16 a weight is
// off by half a unit, at most 2^-15 of the sum of its block of at most 128, and
// values by half of a 8191th of the largest of their column.
func slack(a *kernel.Operands, table *kernel.Table) []float64 {
	positive := *a
	positive.V = clone(a.V)
	for i, x := range positive.V {
		positive.V[i] = float32(math.Abs(float64(x)))
	}
	if a.Precision == kernel.BFloat16 {
		share, _ := ref.Attention[float64](&positive, table)
		for i := range share {
			share[i] *= bf16ULP
		}
		return share
	}
	s := make([]float64, len(a.Q))
	for i := range s {
		head, d := i/(a.Len*a.HeadDim), i%a.HeadDim
		kv := head/a.Heads*a.KVHeads + head%a.Heads/(a.Heads/a.KVHeads)
		most := 0.0
		for j := range a.Len {
			most = max(most, float64(positive.V[(kv*a.Len+j)*a.HeadDim+d]))
		}
		s[i] = most * (64.0/(1<<15-1) + 0.5/8191)
	}
	return s
}

// outputs returns the reference output of an attention on rounded operands.
type outputs struct {
	plain       []float32
	want, slack []float64
}

func newOutputs(a *kernel.Operands, table *kernel.Table) *outputs {
	plain, _ := ref.Attention[float32](a, table)
	want, _ := ref.Attention[float64](a, table)
	return &outputs{plain, want, slack(a, table)}
}

// compare is compare with the slack added to its tolerance.
func (o *outputs) compare(t *testing.T, what string, got []float32) {
	t.Helper()
	within := clone(got)
	for i, g := range got {
		if d := float64(g) - o.want[i]; finite(d) {
			within[i] = float32(o.want[i] + math.Copysign(max(0, math.Abs(d)-o.slack[i]), d))
		}
	}
	compare(t, what, within, o.plain, o.want)
}

// eachPrecision runs f for the precisions that round.
func eachPrecision(t *testing.T, f func(t *testing.T, p kernel.Precision)) {
	for _, p := range []kernel.Precision{kernel.BFloat16, kernel.Int16} {
		t.Run(p.String(), func(t *testing.T) { f(t, p) })
	}
}

// TestAttentionPrecision runs the table of TestAttention with rounded products.
func TestAttentionPrecision(t *testing.T) {
	eachPrecision(t, func(t *testing.T, p kernel.Precision) {
		for i, c := range attentionCases() {
			t.Run(c.Name, func(t *testing.T) {
				r := attncase.Rand(uint64(i))
				a := operands(r, c.Shape)
				c.Padding.Apply(a)
				a.Precision = p
				checkPrecision(t, a, c.Group, tables(c, attncase.Rand(7)))
			})
		}
	})
}

// checkPrecision compares all results of attention with rounded products, on all instruction
// sets, with the reference on rounded operands. Scores and normalisers are sums of unrounded
// weights, and so as exact as with float32.
func checkPrecision(t *testing.T, a *kernel.Operands, group int, tables map[string]*kernel.Table) {
	t.Helper()
	b := roundedOperands(a)
	lo := a.Len / 3
	want, outs := results{}, map[string]*outputs{}
	want.add("scores", ref.Scores[float32](b, group, 0), ref.Scores[float64](b, group, 0))
	want.add("scores from lo", ref.Scores[float32](b, group, lo), ref.Scores[float64](b, group, lo))
	for name, table := range withDense(tables) {
		_, plain := ref.Attention[float32](b, table)
		_, lse := ref.Attention[float64](b, table)
		want.add(name+" lse", plain, lse)
		outs[name] = newOutputs(b, table)
	}
	groups := kernel.Groups(a.Len, group)
	for _, isa := range kernel.ISANames() {
		kernel.WithISA(isa, func() {
			check := func(name string, got []float32) {
				t.Helper()
				compare(t, isa+" "+name, got, want[name].plain, want[name].want)
			}
			out, checkOut := guarded(t, len(a.Q))
			lse, checkLSE := guarded(t, a.Batch*a.Heads*a.Len)
			team.Dense(out, lse, a)
			outs["dense"].compare(t, isa+" dense out", out)
			check("dense lse", lse)

			scores, checkScores := guarded(t, a.Batch*a.Heads*groups*a.Len)
			team.DenseScores(out, scores, a, group)
			outs["dense"].compare(t, isa+" dense out", out)
			check("scores", scores)
			part := scores[:a.Batch*a.Heads*groups*(a.Len-lo)]
			team.Scores(part, a.Len-lo, a, group, lo)
			check("scores from lo", part)

			for name, table := range tables {
				team.ColumnSparse(out, lse, a, table)
				outs[name].compare(t, isa+" "+name+" out", out)
				check(name+" lse", lse)
			}
			checkOut()
			checkLSE()
			checkScores()
		})
	}
}

// withDense is tables and, under the name dense, none.
func withDense(tables map[string]*kernel.Table) map[string]*kernel.Table {
	all := map[string]*kernel.Table{"dense": nil}
	maps.Copy(all, tables)
	return all
}

// TestPrecisionError compares the error that rounded products make with that of
// rounding q, k and v to bfloat16 and computing exactly: at most twice as much, on
// average and in the worst element, with operands of one size and with a feature
// of keys and queries that is much larger than the others. Int16 has a quarter of
// that error where there is no such feature.
func TestPrecisionError(t *testing.T) {
	for _, dim := range []int{64, 128} {
		for _, outlier := range []float32{1, 20} {
			a := operands(attncase.Rand(20), kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 192, HeadDim: dim})
			for i := 3; i < len(a.Q); i += dim {
				a.Q[i] /= outlier / 2
			}
			for i := 3; i < len(a.K); i += dim {
				a.K[i] *= outlier
			}
			exact, _ := ref.Attention[float64](a, nil)
			b := *a
			b.Q, b.K, b.V = rounded(a.Q), rounded(a.K), rounded(a.V)
			plain, _ := ref.Attention[float64](&b, nil)
			deviation := func(x func(i int) float64) (mean, most float64) {
				for i, w := range exact {
					d := x(i) - w
					mean, most = mean+d*d, max(most, math.Abs(d))
				}
				return math.Sqrt(mean / float64(len(exact))), most
			}
			plainMean, plainMost := deviation(func(i int) float64 { return plain[i] })
			eachPrecision(t, func(t *testing.T, p kernel.Precision) {
				a.Precision = p
				kernel.ForEachISA(t, func(t *testing.T) {
					out := make([]float32, len(a.Q))
					team.Dense(out, nil, a)
					mean, most := deviation(func(i int) float64 { return float64(out[i]) })
					t.Logf("head dim %d, outlier %g: error %.2g, at most %.2g; of rounding the inputs %.2g, at most %.2g",
						dim, outlier, mean, most, plainMean, plainMost)
					if mean > 2*plainMean || most > 2*plainMost {
						t.Error("the error is more than twice that of rounding the inputs to bfloat16")
					}
					if p == kernel.BFloat16 && mean < plainMean/2 {
						t.Error("the error is too small for bfloat16")
					}
					if p == kernel.Int16 && outlier == 1 && mean > plainMean/4 {
						t.Error("the error is too large for integers")
					}
				})
			})
		}
	}
}

// TestPrecisionNaN: rounding and pairs do not move NaN and infinities to other results.
func TestPrecisionNaN(t *testing.T) {
	for _, c := range attncase.Specials {
		t.Run(c.Name, func(t *testing.T) {
			eachPrecision(t, func(t *testing.T, p kernel.Precision) {
				a := operands(attncase.Rand(1), attncase.SpecialShape)
				c.Set(a)
				a.Precision = p
				checkPrecision(t, a, 8, nil)
			})
		})
	}
}

// TestPrecisionAfterNaN: a call does not read numbers of an earlier, larger call, not even
// where words lack values.
func TestPrecisionAfterNaN(t *testing.T) {
	nan := float32(math.NaN())
	poison := operands(attncase.Rand(1), kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 256, HeadDim: 64})
	attncase.Fill(poison.Q, nan)
	attncase.Fill(poison.K, nan)
	attncase.Fill(poison.V, nan)
	x, y := make([]float32, 64*256), make([]float32, 64*64)
	attncase.Fill(x, nan)
	large := newMatrix(t, 64, 256, kernel.BF16, x[:64*256])
	a := operands(attncase.Rand(2), kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 37, HeadDim: 18})
	small := newMatrix(t, 40, 38, kernel.BF16, attncase.Normal(attncase.Rand(3), 40*38, 1))
	in := attncase.Normal(attncase.Rand(4), 9*38, 1)
	eachPrecision(t, func(t *testing.T, p kernel.Precision) {
		poison.Precision, a.Precision, large.Precision, small.Precision = p, p, p, p
		kernel.ForEachISA(t, func(t *testing.T) {
			run := func(before func(team *kernel.Team)) (out, sums []float32) {
				out, sums = make([]float32, len(a.Q)), make([]float32, 9*40)
				team := &kernel.Team{Workers: 1}
				before(team)
				team.Dense(out, nil, a)
				team.Linear(sums, in, 9, &small, nil)
				return out, sums
			}
			out, sums := run(func(*kernel.Team) {})
			for _, f := range slices.Concat(out, sums) {
				if !finite(float64(f)) {
					t.Fatal("NaN of finite numbers")
				}
			}
			outAfter, sumsAfter := run(func(team *kernel.Team) {
				team.Dense(make([]float32, len(poison.Q)), nil, poison)
				team.Linear(y, x, 64, &large, nil)
			})
			tol.SameBits(t, "attention", outAfter, out)
			tol.SameBits(t, "linear", sumsAfter, sums)
		})
	})
}

// TestPrecisionExtremes: the largest sums of integers, weights of which all but one vanish,
// and a large head dimension.
func TestPrecisionExtremes(t *testing.T) {
	for _, dim := range []int{3, 65} {
		a := operands(attncase.Rand(3), kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 140, HeadDim: dim})
		for i := range a.K {
			a.Q[i], a.K[i], a.V[i] = -1.2, 0.9, 3 // all alike
			if i < dim {
				a.K[i] = -0.9 // but one
			}
		}
		a.Scale = 1
		a.Precision = kernel.Int16
		checkPrecision(t, a, 32, nil)
	}
	large := operands(attncase.Rand(6), kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 9, HeadDim: 300})
	large.Precision = kernel.Int16
	checkPrecision(t, large, 4, nil)

	const rows, in, out = 9, 1000, 33
	x, values := make([]float32, rows*in), make([]float32, out*in)
	attncase.Fill(x, -1e20)
	attncase.Fill(values, 0.7)
	w := newMatrix(t, out, in, kernel.F32, values)
	w.Precision = kernel.Int16
	kernel.ForEachISA(t, func(t *testing.T) {
		y := make([]float32, rows*out)
		team.Linear(y, x, rows, &w, nil)
		for i, got := range y {
			if want := -0.7e20 * in; math.Abs(float64(got)-want) > 1e-6*math.Abs(want) {
				t.Fatalf("y[%d] = %g, want %g", i, got, want)
			}
		}
	})
}

// TestPrecisionGrad: the precision of a call does not affect its gradients.
func TestPrecisionGrad(t *testing.T) {
	a := operands(attncase.Rand(13), kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 40, HeadDim: 8})
	dout := attncase.Normal(attncase.Rand(14), len(a.Q), 1)
	want, got := make([]float32, len(a.Q)), make([]float32, len(a.Q))
	team.AttentionGrad(want, nil, nil, dout, a, nil)
	eachPrecision(t, func(t *testing.T, p kernel.Precision) {
		a.Precision = p
		team.AttentionGrad(got, nil, nil, dout, a, nil)
		tol.SameBits(t, "dq", got, want)
	})
}

// FuzzPrecisions compares the instruction sets with the reference on any shape, with rounded
// products.
func FuzzPrecisions(f *testing.F) {
	fuzzAttention(f, func(t *testing.T, r *rand.Rand, a *kernel.Operands, c attncase.Case, table *kernel.Table) {
		eachPrecision(t, func(t *testing.T, p kernel.Precision) {
			a.Precision = p
			checkPrecision(t, a, c.Group, map[string]*kernel.Table{"sparse": table})
		})
	})
}
