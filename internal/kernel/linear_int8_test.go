package kernel_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// bytesOf rounds rows of n numbers as Linear does with Int8.
func bytesOf(x []float32) []float32 {
	y := clone(x)
	for i := 0; i < len(y); i += 32 {
		block, most := y[i:i+32], 0.0
		for _, v := range block {
			most = max(most, math.Abs(float64(v)))
		}
		if most == 0 {
			continue
		}
		factor := 127 / float32(most)
		for j, v := range block {
			block[j] = float32(math.RoundToEven(float64(v*factor)) * most / 127)
		}
	}
	return y
}

// TestLinearInt8 holds the products of integers to those of the rounded inputs and the decoded
// weights, and every instruction set to the bits of portable Go.
func TestLinearInt8(t *testing.T) {
	eachQuantized(t, func(t *testing.T, w *kernel.Matrix, rows int, r *rand.Rand) {
		x, bias := attncase.Normal(r, rows*w.Cols, 1), attncase.Normal(r, w.Rows, 1)
		for i := range x {
			if r.IntN(50) == 0 {
				x[i] *= 100
			}
		}
		clear(x[:32])
		inputs := bytesOf(x)
		plain, want := ref.Linear[float32](inputs, rows, w, bias), ref.Linear[float64](inputs, rows, w, bias)
		w.Precision = kernel.Int8
		portable := make([]float32, rows*w.Rows)
		kernel.WithISA("portable", func() { team.Linear(portable, x, rows, w, bias) })
		kernel.ForEachISA(t, func(t *testing.T) {
			y, intact := guarded(t, rows*w.Rows)
			team.Linear(y, x, rows, w, bias)
			compare(t, w.DType.String(), y, plain, want)
			intact()
			for i := range y {
				if math.Float32bits(y[i]) != math.Float32bits(portable[i]) {
					t.Fatalf("[%d] is %v, portable Go has %v", i, y[i], portable[i])
				}
			}
		})
	})
}

// TestLinearInt8Team: outputs have the same bits with any number of workers, in steps of any number of
// rows, and among projections of other types, of which those of floats are not rounded.
func TestLinearInt8Team(t *testing.T) {
	const rows, in = 150, 512
	r := attncase.Rand(9)
	x, bias := attncase.Normal(r, rows*in, 1), attncase.Normal(r, 70, 1)
	floats := newMatrix(t, 40, in, kernel.F32, attncase.Normal(r, 40*in, 1))
	parts := []kernel.Projection{{Weight: floats}}
	for _, d := range []kernel.DType{kernel.Q4_K, kernel.Q6_K, kernel.Q8_0} {
		parts = append(parts, kernel.Projection{Weight: randomBlocks(t, 70, in, d, r), Bias: bias})
	}
	for i := range parts {
		parts[i].Weight.Precision = kernel.Int8
	}
	const outputs = 40 + 3*70
	kernel.ForEachISA(t, func(t *testing.T) {
		want := make([]float32, rows*outputs)
		team.Linears(want, x, nil, rows, parts)
		one, exact := make([]float32, rows*40), make([]float32, rows*40)
		team.Linear(exact, x, rows, &floats, nil)
		for i := range rows {
			copy(one[i*40:], want[i*outputs:][:40])
		}
		tol.SameBits(t, "floats", one, exact)
		for _, workers := range []int{1, 3} {
			team := kernel.Team{Workers: workers}
			for first := 0; first < rows; {
				n := min(1+r.IntN(100), rows-first)
				got := make([]float32, n*outputs)
				team.Linears(got, x[first*in:][:n*in], nil, n, parts)
				tol.SameBits(t, "rows", got, want[first*outputs:][:n*outputs])
				first += n
			}
			gate, up := parts[1], parts[3]
			got, alone, other := make([]float32, rows*70), make([]float32, rows*70), make([]float32, rows*70)
			team.SwiGLU(got, x, rows, gate, up)
			team.Linear(alone, x, rows, &gate.Weight, gate.Bias)
			team.Linear(other, x, rows, &up.Weight, up.Bias)
			for i, g := range alone {
				alone[i] = float32(float64(g) / (1 + math.Exp(-float64(g))) * float64(other[i]))
			}
			for i := range got {
				if d := math.Abs(float64(got[i] - alone[i])); d > 1e-6*math.Abs(float64(alone[i]))+1e-30 {
					t.Fatalf("SwiGLU [%d] is %g, want %g", i, got[i], alone[i])
				}
			}
		}
	})
}

// TestLinearInt8NaN: a number that is not finite makes the outputs of its row NaN, a NaN of
// a scale those of its column.
func TestLinearInt8NaN(t *testing.T) {
	const rows, in, out = 10, 96, 37
	r := attncase.Rand(6)
	x := attncase.Normal(r, rows*in, 1)
	x[7*in+90], x[2*in] = float32(math.Inf(1)), float32(math.NaN())
	w := randomBlocks(t, out, in, kernel.Q8_0, r)
	w.Precision = kernel.Int8
	w.Data[4*3*34], w.Data[4*3*34+1] = 1, 0x7e
	kernel.ForEachISA(t, func(t *testing.T) {
		y := make([]float32, rows*out)
		team.Linear(y, x, rows, &w, nil)
		for i := range y {
			row, col := i/out, i%out
			if isNaN := y[i] != y[i]; isNaN != (row == 7 || row == 2 || col == 4) {
				t.Fatalf("y[%d,%d] = %g", row, col, y[i])
			}
		}
	})
}
