package op_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// weight returns a float32 weight matrix.
func weight(t testing.TB, rows, cols int, v []float32) op.Weight {
	t.Helper()
	return must(op.NewWeightFloat32(rows, cols, v))(t)
}

// TestRoPEWorked rotates one head of four features by hand.
func TestRoPEWorked(t *testing.T) {
	for _, c := range []struct {
		theta    float64
		position int32
		want     []float64
	}{
		{5e5, 0, []float64{1, 2, 3, 4}},
		{5e5, 1, []float64{-1.984111, 1.994341, 2.462378, 4.002824}},
		{5e5, 2, []float64{-3.144039, 1.988678, -0.339143, 4.005641}},
		{5e5, 100, []float64{2.381416, 1.416232, 2.080591, 4.241967}},
		{1e6, 1, []float64{-1.984111, 1.995999, 2.462378, 4.001998}},
		{1e6, 100, []float64{2.381416, 1.590675, 2.080591, 4.179683}},
		{1e4, 1, []float64{-1.984111, 1.959901, 2.462378, 4.019800}},
	} {
		t.Run(fmt.Sprintf("theta%g-at%d", c.theta, c.position), func(t *testing.T) {
			y := run(t, must(op.NewRoPE("rope", op.Heads{Count: 1, Dim: 4}, c.theta))(t),
				dense([]float32{1, 2, 3, 4}, 1, 1, 4), dense([]int32{c.position}, 1, 1))
			// Six digits are given; sums of two products near 4 round in float32.
			tol.CloseAbs(t, float32s(y), c.want, 5e-7+4*4*tol.ULP)
		})
	}
}

// TestRoPELayout: heads become rows, each token turns by its own position, and a
// head that is not rotated is what SplitHeads gives.
func TestRoPELayout(t *testing.T) {
	const batch, n, heads, dim = 2, 3, 2, 4
	x := attncase.Normal(attncase.Rand(1), batch*n*heads*dim, 1)
	in := dense(x, batch, n, heads*dim)
	positions := []int32{0, 1, 2, 7, 0, 5}
	y := run(t, must(op.NewRoPE("rope", op.Heads{Count: heads, Dim: dim}, 1e4))(t), in, dense(positions, batch, n))
	split := run(t, must(op.NewSplitHeads("split", op.Heads{Count: heads, Dim: dim}))(t), in)
	if got := fmt.Sprint(y.Shape(), split.Shape()); got != "(2, 2, 3, 4) (2, 2, 3, 4)" {
		t.Fatal("shapes", got)
	}
	for b := range batch {
		for h := range heads {
			for i := range n {
				row := x[(b*n+i)*heads*dim+h*dim:][:dim]
				at := ((b*heads+h)*n + i) * dim
				tol.SameBits(t, "result", float32s(split)[at:at+dim], row)
				var want [dim]float64
				for d := range dim / 2 {
					sin, cos := math.Sincos(float64(positions[b*n+i]) * math.Pow(1e4, -2*float64(d)/dim))
					want[d] = float64(row[d])*cos - float64(row[d+dim/2])*sin
					want[d+dim/2] = float64(row[d+dim/2])*cos + float64(row[d])*sin
				}
				tol.CloseAbs(t, float32s(y)[at:at+dim], want[:], 32*tol.ULP)
			}
		}
	}
	back := run(t, op.NewMergeHeads("merge"), split)
	tol.SameBits(t, "result", float32s(back), x)
}

// TestRMSNormWorked normalises four features by hand.
func TestRMSNormWorked(t *testing.T) {
	x := dense([]float32{1, 2, 3, 4}, 1, 1, 4)
	y := run(t, op.NewRMSNorm("norm", []float32{1, .5, 2, 1}, 1e-5), x)
	tol.CloseAbs(t, float32s(y), []float64{0.365148, 0.365148, 2.190889, 1.460593}, 5e-7+4*tol.ULP)
	ones := run(t, op.NewRMSNorm("norm", []float32{1, 1, 1, 1}, 1e-5), x)
	tol.CloseAbs(t, float32s(ones)[:1], []float64{0.36514813}, 5e-9+tol.ULP)
}

// TestSwiGLUWorked has silu by hand, and the product with the linear branch.
func TestSwiGLUWorked(t *testing.T) {
	gate, up := []float32{-2, -1, 0, 1, 2}, []float32{1, 1, 1, 2, -3}
	o := must(op.NewSwiGLU("act", op.Projection{Weight: weight(t, 5, 1, gate)}, op.Projection{Weight: weight(t, 5, 1, up)}))(t)
	y := run(t, o, dense([]float32{1, -1}, 1, 2, 1))
	tol.CloseAbs(t, float32s(y), []float64{
		-0.238406, -0.268941, 0, 2 * 0.731059, -3 * 1.761594,
		-1.761594, -0.731059, 0, 2 * 0.268941, -3 * 0.238406,
	}, 3*5e-7+16*tol.ULP)
}

func TestAdd(t *testing.T) {
	y := run(t, op.NewAdd("sum"), dense([]float32{1, 2, 3}, 1, 3, 1), dense([]float32{.5, -2, 4}, 1, 3, 1))
	tol.SameBits(t, "result", float32s(y), []float32{1.5, 0, 7})
}

// TestLinear is x Wᵀ + bias against plain loops, in every storage type.
func TestLinear(t *testing.T) {
	const batch, n, in, out = 2, 3, 5, 7
	r := attncase.Rand(2)
	x, w, bias := attncase.Normal(r, batch*n*in, 1), attncase.Normal(r, out*in, 1), attncase.Normal(r, out, 1)
	for i := range w { // exact in every storage type
		w[i] = float32(math.Round(float64(w[i])*16) / 16)
	}
	f32 := weight(t, out, in, w)
	want, plain := ref.Linear[float64](x, batch*n, (*kernel.Matrix)(&f32), bias), ref.Linear[float32](x, batch*n, (*kernel.Matrix)(&f32), bias)
	for name, stored := range map[string]op.Weight{
		"F32":  f32,
		"BF16": must(op.NewWeight(out, in, op.BF16, halves(w, func(f float32) uint16 { return uint16(math.Float32bits(f) >> 16) })))(t),
	} {
		t.Run(name, func(t *testing.T) {
			y := run(t, must(op.NewLinear("proj", op.Projection{Weight: stored, Bias: bias}))(t), dense(x, batch, n, in))
			tol.ClosePlain(t, float32s(y), plain, want)
		})
	}
	y := run(t, must(op.NewLinear("proj", op.Projection{Weight: f32}))(t), dense(x, batch, n, in))
	tol.ClosePlain(t, float32s(y), ref.Linear[float32](x, batch*n, (*kernel.Matrix)(&f32), nil), ref.Linear[float64](x, batch*n, (*kernel.Matrix)(&f32), nil))
}

// TestLinearParts: several projections in one operator, and the residual connection after
// them, give the results of separate operators.
func TestLinearParts(t *testing.T) {
	const batch, n, in = 2, 3, 5
	r := attncase.Rand(7)
	x := dense(attncase.Normal(r, batch*n*in, 1), batch, n, in)
	wide, narrow := op.Projection{Weight: weight(t, 4, in, attncase.Normal(r, 4*in, 1)), Bias: attncase.Normal(r, 4, 1)}, op.Projection{Weight: weight(t, 3, in, attncase.Normal(r, 3*in, 1))}
	first, second := run(t, must(op.NewLinear("first", wide))(t), x), run(t, must(op.NewLinear("second", narrow))(t), x)
	var want []float32
	for i := range batch * n {
		want = append(append(want, float32s(first)[4*i:][:4]...), float32s(second)[3*i:][:3]...)
	}
	tol.SameBits(t, "result", float32s(run(t, must(op.NewLinear("both", wide, narrow))(t), x)), want)

	residual := dense(attncase.Normal(r, len(want), 1), batch, n, 7)
	sum := run(t, op.NewAdd("sum"), residual, dense(want, batch, n, 7))
	tol.SameBits(t, "result", float32s(run(t, must(op.NewAddLinear("both", wide, narrow))(t), x, residual)), float32s(sum))
}

// TestHeadRange: heads in the middle of features.
func TestHeadRange(t *testing.T) {
	x := dense([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 1, 2, 6) // 3 heads of 2
	some := op.Heads{First: 1, Count: 2, Dim: 2}
	want := []float32{3, 4, 9, 10, 5, 6, 11, 12}
	tol.SameBits(t, "result", float32s(run(t, must(op.NewSplitHeads("split", some))(t), x)), want)
	tol.SameBits(t, "result", float32s(run(t, must(op.NewRoPE("rope", some, 1e4))(t), x, dense([]int32{0, 0}, 1, 2))), want)
}

// halves stores numbers in two bytes each.
func halves(v []float32, bits func(float32) uint16) []byte {
	var data []byte
	for _, x := range v {
		b := bits(x)
		data = append(data, byte(b), byte(b>>8))
	}
	return data
}

func TestEmbed(t *testing.T) {
	table := weight(t, 3, 2, []float32{1, 2, 3, 4, 5, 6})
	y := run(t, op.NewEmbed("wte", table), dense([]int32{2, 0, 1, 2}, 2, 2))
	tol.SameBits(t, "result", float32s(y), []float32{5, 6, 1, 2, 3, 4, 5, 6})
	rows := gorgonia.TensorType{Dims: 1, Of: tensor.Int32}
	more := op.NewEmbed("wte", table).(exec.Preloader).Preload([]gorgonia.TensorType{rows, rows})
	y = run(t, more, dense([]int32{2, 0, 1, 2}, 2, 2), dense([]int32{9}, 1), dense([]int32{-7, 8}, 2))
	tol.SameBits(t, "result", float32s(y), []float32{5, 6, 1, 2, 3, 4, 5, 6})
	for _, id := range []int32{-1, 3, math.MaxInt32} {
		_, err := op.NewEmbed("wte", table).Do(dense([]int32{0, 0, 0, id}, 2, 2))
		if !errors.Is(err, op.ErrValue) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("token id %d at row 1, position 1 is outside the vocabulary [0, 3)", id)) {
			t.Errorf("id %d: %v", id, err)
		}
	}
}

// TestLogits: each selected row equals that row of the full head, for any other rows. Rows
// marked -1 are not computed.
func TestLogits(t *testing.T) {
	const batch, n, d, vocab = 2, 3, 4, 5
	r := attncase.Rand(3)
	x, w := attncase.Normal(r, batch*n*d, 1), weight(t, vocab, d, attncase.Normal(r, vocab*d, 1))
	full := ref.Linear[float64](x, batch*n, (*kernel.Matrix)(&w), nil)
	plain := ref.Linear[float32](x, batch*n, (*kernel.Matrix)(&w), nil)
	for _, rows := range [][]int32{{0}, {5, 0}, {-1}, {-1, 2, -1, -1, 3, 4}, {1, 1, 1}, {0, 1, 2, 3, 4, 5}} {
		taken := run(t, op.NewGatherRows("rows"), dense(x, batch, n, d), dense(rows, len(rows)))
		y := run(t, op.NewLMHead("head", w), taken, dense(rows, len(rows)))
		for i, row := range rows {
			if row < 0 {
				tol.SameBits(t, "result", float32s(taken)[i*d:(i+1)*d], make([]float32, d))
				continue
			}
			tol.SameBits(t, "result", float32s(taken)[i*d:(i+1)*d], x[row*d:(row+1)*d])
			tol.ClosePlain(t, float32s(y)[i*vocab:(i+1)*vocab], plain[row*vocab:(row+1)*vocab], full[row*vocab:(row+1)*vocab])
		}
	}
	_, err := op.NewGatherRows("rows").Do(dense(x, batch, n, d), dense([]int32{0, 6}, 2))
	if !errors.Is(err, op.ErrValue) || !strings.Contains(fmt.Sprint(err), "rows[1] is 6, the input has 6 rows") {
		t.Error(err)
	}
}

// TestSpecialValues: NaN and infinities in the inputs of every operator give some
// result, not an error or a panic, and stay in their own token's row.
func TestSpecialValues(t *testing.T) {
	const n, d = 4, 8
	clean := attncase.Normal(attncase.Rand(4), n*d, 1)
	w := weight(t, d, d, attncase.Normal(attncase.Rand(5), d*d, 1))
	positions := dense([]int32{0, 1, 2, 3}, 1, n)
	for _, c := range []struct {
		name string
		do   func(x []float32) []float32
	}{
		{"RMSNorm", func(x []float32) []float32 {
			return float32s(run(t, op.NewRMSNorm("o", clean[:d], 1e-5), dense(x, 1, n, d)))
		}},
		{"Linear", func(x []float32) []float32 {
			return float32s(run(t, must(op.NewLinear("o", op.Projection{Weight: w}))(t), dense(x, 1, n, d)))
		}},
		{"RoPE", func(x []float32) []float32 {
			return float32s(run(t, must(op.NewRoPE("o", op.Heads{Count: 1, Dim: d}, 1e4))(t), dense(x, 1, n, d), positions))
		}},
		{"SwiGLU", func(x []float32) []float32 {
			return float32s(run(t, must(op.NewSwiGLU("o", op.Projection{Weight: w}, op.Projection{Weight: w}))(t), dense(x, 1, n, d)))
		}},
		{"Add", func(x []float32) []float32 {
			return float32s(run(t, op.NewAdd("o"), dense(x, 1, n, d), dense(clean, 1, n, d)))
		}},
		{"queries of DenseAttn", func(x []float32) []float32 {
			kv := dense(clean, 1, 1, n, d)
			return float32s(run(t, must(op.NewDenseAttn("o", 0, false))(t), dense(x, 1, 1, n, d), kv, kv))
		}},
	} {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			t.Run(fmt.Sprint(c.name, bad), func(t *testing.T) {
				want := c.do(clean)
				x := append([]float32{}, clean...)
				for i := range d {
					x[2*d+i] = bad
				}
				got := c.do(x)
				tol.SameBits(t, "result", got[:2*d], want[:2*d])
				tol.SameBits(t, "result", got[3*d:], want[3*d:])
			})
		}
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		a := attncase.Seeded(6, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 9, HeadDim: 4})
		a.K[5], a.V[9] = bad, bad
		p := op.AttentionParams{Group: 2, Selection: op.Selection{Sparsity: 0.5}}
		in := qkv(a)
		scores := run(t, must(op.NewScoreCollect("o", p))(t), in...)
		columns := run(t, must(op.NewGroupTopK("o", 9, p))(t), scores)
		for r, keys := range keySets(uint32s(columns), 9) {
			if len(keys) != 4 {
				t.Errorf("%v among the keys: row %d keeps %v, want 4 keys", bad, r, keys)
			}
		}
		run(t, must(op.NewColumnSparseAttn("o", p))(t), append(in, columns)...)
	}
}
