package kernel_test

import (
	"math"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/tol"
)

func TestLinear(t *testing.T) {
	for _, s := range []struct{ rows, in, out int }{
		{1, 1, 1}, {1, 64, 33}, {2, 7, 5}, {7, 8, 31}, {8, 8, 32}, {9, 20, 40},
		{40, 256, 32}, {33, 257, 130}, {130, 600, 9}, {530, 16, 7}, {3, 16, 300},
	} {
		for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
			r := attncase.Rand(uint64(s.rows*s.in + s.out))
			w := newMatrix(t, s.out, s.in, d, attncase.Normal(r, s.out*s.in, 1))
			// Files do not align their tensors.
			w.Data = append(make([]byte, 1, 1+len(w.Data)), w.Data...)[1:]
			file := string(w.Data)
			x, bias := attncase.Normal(r, s.rows*s.in, 1), attncase.Normal(r, s.out, 1)
			for _, bias := range [][]float32{nil, bias} {
				plain, want := ref.Linear[float32](x, s.rows, &w, bias), ref.Linear[float64](x, s.rows, &w, bias)
				kernel.ForEachISA(t, func(t *testing.T) {
					y, intact := guarded(t, s.rows*s.out)
					team.Linear(y, x, s.rows, &w, bias)
					compare(t, d.String(), y, plain, want)
					intact()
				})
			}
			if string(w.Data) != file {
				t.Fatal("Linear wrote to the weights")
			}
		}
	}
	team.Linear(nil, nil, 0, &kernel.Matrix{Rows: 1, Cols: 1, Data: make([]byte, 4)}, nil)
}

// TestLinearExact checks against integers, which float32 adds without error.
func TestLinearExact(t *testing.T) {
	const rows, in, out = 11, 300, 45
	values := make([]float32, out*in)
	for i := range values {
		values[i] = float32(i%13 - 6)
	}
	x := make([]float32, rows*in)
	for i := range x {
		x[i] = float32(i%7 - 3)
	}
	for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
		w := newMatrix(t, out, in, d, values)
		kernel.ForEachISA(t, func(t *testing.T) {
			y := make([]float32, rows*out)
			team.Linear(y, x, rows, &w, nil)
			for i := range y {
				want := 0
				for p := range in {
					want += ((i/out*in+p)%7 - 3) * ((i%out*in+p)%13 - 6)
				}
				if y[i] != float32(want) {
					t.Fatalf("%v: y[%d] = %g, want %d", d, i, y[i], want)
				}
			}
		})
	}
}

// TestLinearNaN checks that a NaN or an infinity stays in its own row of x and
// its own row of w.
func TestLinearNaN(t *testing.T) {
	const rows, in, out = 10, 40, 37
	r := attncase.Rand(5)
	values, x := attncase.Normal(r, out*in, 1), attncase.Normal(r, rows*in, 1)
	values[4*in+3] = float32(math.NaN())
	x[7*in+9] = float32(math.Inf(1))
	for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
		w := newMatrix(t, out, in, d, values)
		kernel.ForEachISA(t, func(t *testing.T) {
			y := make([]float32, rows*out)
			team.Linear(y, x, rows, &w, nil)
			for i := range y {
				row, col := i/out, i%out
				isNaN, isInf := y[i] != y[i], math.IsInf(float64(y[i]), 0)
				if isNaN != (col == 4) || isInf != (row == 7 && col != 4) {
					t.Fatalf("%v: y[%d,%d] = %g", d, row, col, y[i])
				}
			}
		})
	}
}

func TestNewMatrix(t *testing.T) {
	for _, c := range []struct {
		rows, cols int
		d          kernel.DType
		bytes      int
		want       string // "" = no error
	}{
		{2, 3, kernel.F32, 24, ""},
		{2, 3, kernel.BF16, 12, ""},
		{2, 3, kernel.F16, 12, ""},
		{2, 3, kernel.BF16, 13, "matrix [2 3] of BF16 needs 12 bytes, got 13"},
		{0, 3, kernel.F32, 0, "matrix [0 3]: sizes must be positive"},
		{2, 3, kernel.DType(99), 24, "element type DType(99), must be one of [F32 BF16 F16 Q8_0 "},
		{2, 3, quant.I32, 24, "element type I32, must be one of [F32 BF16 F16 Q8_0 "},
		{2, 64, kernel.Q8_0, 2 * 68, ""},
		{2, 64, kernel.Q8_0, 2*68 - 1, "matrix [2 64] of Q8_0 needs 136 bytes, got 135"},
		{2, 48, kernel.Q8_0, 2 * 51, "matrix [2 48]: rows must have a multiple of the 32 elements of a block of Q8_0"},
		{2, 64, kernel.Q4_K, 72, "matrix [2 64]: rows must have a multiple of the 256 elements of a block of Q4_K"},
		{math.MaxInt, 256, kernel.Q4_K, 4, "overflows an int"},
		{math.MaxInt, math.MaxInt, kernel.F32, 4, "overflows an int"},
	} {
		m, err := kernel.NewMatrix(c.rows, c.cols, c.d, make([]byte, c.bytes))
		if c.want == "" {
			if err != nil || m.Rows != c.rows || m.Cols != c.cols {
				t.Errorf("[%d %d] %v: %+v, %v", c.rows, c.cols, c.d, m, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("[%d %d] %v: error %v, want one with %q", c.rows, c.cols, c.d, err, c.want)
		}
	}
}

// TestLinears: projections side by side, with and without a residual, give to the
// bit what they give one by one.
func TestLinears(t *testing.T) {
	for _, s := range []struct {
		rows, in int
		outs     []int
	}{{1, 3, []int{2, 5}}, {9, 64, []int{40, 8, 8}}, {530, 20, []int{7, 300}}, {33, 300, []int{130}}} {
		r := attncase.Rand(uint64(s.rows + s.in))
		var parts []kernel.Projection
		total := 0
		for i, out := range s.outs {
			p := kernel.Projection{Weight: newMatrix(t, out, s.in, kernel.DType(i), attncase.Normal(r, out*s.in, 1))}
			if i != 1 {
				p.Bias = attncase.Normal(r, out, 1)
			}
			parts, total = append(parts, p), total+out
		}
		x, residual := attncase.Normal(r, s.rows*s.in, 1), attncase.Normal(r, s.rows*total, 1)
		for _, precision := range []kernel.Precision{kernel.Float32, kernel.BFloat16, kernel.Int16} {
			for i := range parts {
				parts[i].Weight.Precision = precision
			}
			kernel.ForEachISA(t, func(t *testing.T) {
				want, left := make([]float32, s.rows*total), 0
				for _, p := range parts {
					y := make([]float32, s.rows*p.Weight.Rows)
					team.Linear(y, x, s.rows, &p.Weight, p.Bias)
					for i := range s.rows {
						copy(want[i*total+left:], y[i*p.Weight.Rows:][:p.Weight.Rows])
					}
					left += p.Weight.Rows
				}
				y, intact := guarded(t, s.rows*total)
				team.Linears(y, x, nil, s.rows, parts)
				tol.SameBits(t, "Linears", y, want)
				team.Add(want, want, residual)
				team.Linears(y, x, residual, s.rows, parts)
				tol.SameBits(t, "Linears with a residual", y, want)
				intact()
			})
		}
	}
}
