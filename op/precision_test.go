package op_test

import (
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
)

func rounded(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, f := range x {
		y[i] = bf16.ToFloat32(bf16.FromFloat32(f))
	}
	return y
}

func same(x []float32) []float32 { return x }

// TestPrecision has cases in which rounding the operands is all that
// happens: a single key has the weight 1, so that the output is its value, and a
// linear layer of one input is one product.
func TestPrecision(t *testing.T) {
	a := attncase.Seeded(1, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 1, HeadDim: 9})
	x := attncase.Seeded(2, kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 5, HeadDim: 1}).Q
	w := attncase.Seeded(3, kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 3, HeadDim: 1}).Q
	for precision, round := range map[op.Precision]func([]float32) []float32{
		op.AutoPrecision: same, op.Float32: same, op.BFloat16: rounded,
	} {
		t.Run(precision.String(), func(t *testing.T) {
			l := newLayer(t, a.Len, op.AttentionParams{Precision: precision, Selection: op.Selection{Sparsity: 0.5}})
			for _, m := range []op.Mode{op.Dense, op.Refresh, op.Reuse} {
				y, err := l.do(m, a)
				if err != nil {
					t.Fatal(err)
				}
				tol.SameBits(t, "result", float32s(y), round(a.V))
			}
			weight := weight(t, len(w), 1, w)
			weight.Precision = precision
			y := run(t, must(op.NewLinear("linear", op.Projection{Weight: weight}))(t), dense(x, 1, len(x), 1))
			var want []float32
			for _, x := range round(x) {
				for _, w := range round(w) {
					want = append(want, x*w)
				}
			}
			tol.SameBits(t, "result", float32s(y), want)
		})
	}
}
