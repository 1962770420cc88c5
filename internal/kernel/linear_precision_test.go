package kernel_test

import (
	"math"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

// roundedRows rounds rows of n numbers as Linear does with a precision: Int16 has
// a unit for each 256 of them.
func roundedRows(x []float32, n int, p kernel.Precision) []float32 {
	if p == kernel.BFloat16 {
		return rounded(x)
	}
	y := clone(x)
	for i := 0; i < len(x); i += n {
		for d := 0; d < n; d += 256 {
			part := y[i+d : i+min(d+256, n)]
			copy(part, integers(part, len(part)))
		}
	}
	return y
}

func TestLinearPrecision(t *testing.T) {
	eachPrecision(t, func(t *testing.T, p kernel.Precision) {
		for _, s := range []struct{ rows, in, out int }{
			{1, 1, 1}, {1, 64, 33}, {2, 7, 5}, {7, 8, 31}, {8, 8, 32}, {9, 20, 40},
			{40, 256, 32}, {33, 257, 130}, {130, 600, 9}, {530, 16, 7}, {3, 16, 300}, {17, 515, 64},
			{9, 1100, 40}, {70, 40, 530},
		} {
			for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
				r := attncase.Rand(uint64(s.rows*s.in + s.out))
				w := newMatrix(t, s.out, s.in, d, attncase.Normal(r, s.out*s.in, 1))
				w.Data = append(make([]byte, 1, 1+len(w.Data)), w.Data...)[1:]
				w.Precision = p
				weights := make([]float32, s.out*s.in)
				for i := range s.out {
					w.Row(weights[i*s.in:][:s.in], i)
				}
				x, bias := attncase.Normal(r, s.rows*s.in, 1), attncase.Normal(r, s.out, 1)
				exactly := newMatrix(t, s.out, s.in, kernel.F32, roundedRows(weights, s.in, p))
				inputs := roundedRows(x, s.in, p)
				plain, want := ref.Linear[float32](inputs, s.rows, &exactly, bias), ref.Linear[float64](inputs, s.rows, &exactly, bias)
				kernel.ForEachISA(t, func(t *testing.T) {
					y, intact := guarded(t, s.rows*s.out)
					team.Linear(y, x, s.rows, &w, bias)
					compare(t, d.String(), y, plain, want)
					intact()
				})
			}
		}
	})
}

// TestLinearPrecisionNaN is TestLinearNaN with rounded products. Int16 has no
// infinities.
func TestLinearPrecisionNaN(t *testing.T) {
	const rows, in, out = 10, 41, 37
	r := attncase.Rand(5)
	values, x := attncase.Normal(r, out*in, 1), attncase.Normal(r, rows*in, 1)
	values[4*in+40] = float32(math.NaN())
	x[7*in+9] = float32(math.Inf(1))
	eachPrecision(t, func(t *testing.T, p kernel.Precision) {
		for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
			w := newMatrix(t, out, in, d, values)
			w.Precision = p
			kernel.ForEachISA(t, func(t *testing.T) {
				y := make([]float32, rows*out)
				team.Linear(y, x, rows, &w, nil)
				for i := range y {
					row, col := i/out, i%out
					infinite := row == 7 && col != 4
					isNaN, isInf := y[i] != y[i], math.IsInf(float64(y[i]), 0)
					if isNaN != (col == 4 || infinite && p == kernel.Int16) || isInf != (infinite && p == kernel.BFloat16) {
						t.Fatalf("%v: y[%d,%d] = %g", d, row, col, y[i])
					}
				}
			})
		}
	})
}
