package kernel_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

func TestLinear(t *testing.T) {
	for _, s := range []struct{ rows, in, out int }{
		{1, 1, 1}, {1, 64, 33}, {2, 7, 5}, {7, 8, 31}, {8, 8, 32}, {9, 20, 40},
		{40, 256, 32}, {33, 257, 130}, {130, 600, 9}, {530, 16, 7}, {3, 16, 300},
	} {
		for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
			r := newRand(uint64(s.rows*s.in + s.out))
			w := newMatrix(t, s.out, s.in, d, normal(r, s.out*s.in, 1))
			// Files do not align their tensors.
			w.Data = append(make([]byte, 1, 1+len(w.Data)), w.Data...)[1:]
			file := string(w.Data)
			x, bias := normal(r, s.rows*s.in, 1), normal(r, s.out, 1)
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
	r := newRand(5)
	values, x := normal(r, out*in, 1), normal(r, rows*in, 1)
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
		{2, 3, kernel.DType(9), 24, "element type DType(9), must be F32, BF16 or F16"},
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

func TestEmbed(t *testing.T) {
	values := []float32{1, 2, 3, -4, 0.5, 1024, 0, 7, -0.125}
	for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
		w := newMatrix(t, 3, 3, d, values)
		dst, intact := guarded(t, 12)
		team.Embed(dst, []int32{2, 0, 2, 1}, &w)
		want := []float32{0, 7, -0.125, 1, 2, 3, 0, 7, -0.125, -4, 0.5, 1024}
		if !slices.Equal(dst, want) {
			t.Errorf("%v: %v, want %v", d, dst, want)
		}
		intact()
	}
}

// around checks numbers that were calculated elsewhere and printed with a
// number of decimals.
func around(t *testing.T, what string, got []float32, want ...float64) {
	t.Helper()
	for i, w := range want {
		if math.Abs(float64(got[i])-w) > 1.5e-6*max(1, math.Abs(w)) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

func TestRoPE(t *testing.T) {
	for _, c := range []struct {
		theta float64
		pos   int32
		want  []float64
	}{
		{5e5, 0, []float64{1, 2, 3, 4}},
		{5e5, 1, []float64{-1.984111, 1.994341, 2.462378, 4.002824}},
		{5e5, 2, []float64{-3.144039, 1.988678, -0.339143, 4.005641}},
		{5e5, 100, []float64{2.381416, 1.416232, 2.080591, 4.241967}},
		{1e6, 1, []float64{-1.984111, 1.995999, 2.462378, 4.001998}},
		{1e6, 100, []float64{2.381416, 1.590675, 2.080591, 4.179683}},
		{1e4, 1, []float64{-1.984111, 1.959901, 2.462378, 4.019800}},
	} {
		got := make([]float32, 4)
		team.RoPE(got, []float32{1, 2, 3, 4}, []int32{c.pos}, 1, 1, kernel.Heads{Count: 1, Dim: 4}, c.theta)
		around(t, "RoPE", got, c.want...)
	}
}

// TestRoPEAngles rotates heads of any even size by positions inside and outside of
// what is computed in advance.
func TestRoPEAngles(t *testing.T) {
	r := newRand(14)
	pos := []int32{7, 0, 1, 7, 90, 4 << 20, -3, math.MaxInt32, math.MinInt32}
	for _, dim := range []int{2, 16, 20, 64, 128} {
		const heads, theta = 3, 5e5
		n := len(pos)
		x := normal(r, n*heads*dim, 1)
		plain, want := make([]float32, len(x)), make([]float64, len(x))
		for i := range x {
			row, head, d := i/(heads*dim), i/dim%heads, i%dim
			pair, sign := i+dim/2, -1.0
			if d >= dim/2 {
				pair, sign = i-dim/2, 1
			}
			sin, cos := math.Sincos(float64(pos[row]) * math.Pow(theta, -2*float64(d%(dim/2))/float64(dim)))
			at := (head*n+row)*dim + d
			want[at] = float64(x[i])*cos + sign*float64(x[pair])*sin
			plain[at] = x[i]*float32(cos) + float32(sign)*x[pair]*float32(sin)
		}
		kernel.ForEachISA(t, func(t *testing.T) {
			for _, team := range []*kernel.Team{{Workers: 1}, {Workers: 3}} {
				few := make([]float32, 4*heads*dim)
				team.RoPE(few, x[:len(few)], pos[:4], 1, 4, kernel.Heads{Count: heads, Dim: dim}, theta)
				got, intact := guarded(t, len(x))
				team.RoPE(got, x, pos, 1, n, kernel.Heads{Count: heads, Dim: dim}, theta)
				compare(t, "RoPE", got, plain, want)
				intact()
				team.RoPE(few, x[:len(few)], pos[:4], 1, 4, kernel.Heads{Count: heads, Dim: dim}, theta)
				for h := range heads {
					sameBits(t, "RoPE with a larger table", few[h*4*dim:][:4*dim], got[h*n*dim:][:4*dim])
				}
			}
		})
	}
}

// TestRoPELayout checks where heads and positions go: with position 0 RoPE is
// SplitHeads, and each (batch, position) uses its own entry of pos.
func TestRoPELayout(t *testing.T) {
	kernel.ForEachISA(t, func(t *testing.T) {
		const batch, n, heads, dim = 2, 3, 2, 4
		x := normal(newRand(6), batch*n*heads*dim, 1)
		split, rotated := make([]float32, len(x)), make([]float32, len(x))
		team.SplitHeads(split, x, batch, n, kernel.Heads{Count: heads, Dim: dim})
		team.RoPE(rotated, x, make([]int32, batch*n), batch, n, kernel.Heads{Count: heads, Dim: dim}, 1e4)
		sameBits(t, "RoPE at 0", rotated, split)

		pos := []int32{3, 0, 5, 1, 1, 9}
		team.RoPE(rotated, x, pos, batch, n, kernel.Heads{Count: heads, Dim: dim}, 1e4)
		for b := range batch {
			for h := range heads {
				for i := range n {
					one := make([]float32, dim)
					at := ((b*heads+h)*n + i) * dim
					team.RoPE(one, split[at:][:dim], pos[b*n+i:][:1], 1, 1, kernel.Heads{Count: 1, Dim: dim}, 1e4)
					sameBits(t, "RoPE", rotated[at:][:dim], one)
				}
			}
		}
	})
}

func TestSplitAndMergeHeads(t *testing.T) {
	const batch, n, heads, dim = 2, 3, 4, 5
	x := normal(newRand(7), batch*n*heads*dim, 1)
	split, merged := make([]float32, len(x)), make([]float32, len(x))
	team.SplitHeads(split, x, batch, n, kernel.Heads{Count: heads, Dim: dim})
	// Element (b, i, h, d) of x.
	if b, i, h, d := 1, 2, 3, 4; split[((b*heads+h)*n+i)*dim+d] != x[((b*n+i)*heads+h)*dim+d] {
		t.Error("SplitHeads moved an element to a wrong place")
	}
	team.MergeHeads(merged, split, batch, n, heads, dim)
	sameBits(t, "MergeHeads of SplitHeads", merged, x)
}

// TestHeadRange: some of the heads of features give what they give alone.
func TestHeadRange(t *testing.T) {
	const batch, n, total, dim, first, count = 2, 5, 7, 6, 3, 2
	r := newRand(15)
	x := normal(r, batch*n*total*dim, 1)
	var alone []float32
	for row := range batch * n {
		alone = append(alone, x[(row*total+first)*dim:][:count*dim]...)
	}
	pos := []int32{3, 0, 5, 1, 1, 9, 2, 4, 8, 7}
	some, all := kernel.Heads{First: first, Count: count, Dim: dim}, kernel.Heads{Count: count, Dim: dim}
	got, want := make([]float32, len(alone)), make([]float32, len(alone))
	team.SplitHeads(got, x, batch, n, some)
	team.SplitHeads(want, alone, batch, n, all)
	sameBits(t, "SplitHeads", got, want)
	kernel.ForEachISA(t, func(t *testing.T) {
		team.RoPE(got, x, pos, batch, n, some, 1e4)
		team.RoPE(want, alone, pos, batch, n, all, 1e4)
		sameBits(t, "RoPE", got, want)
	})
}

func TestRMSNorm(t *testing.T) {
	kernel.ForEachISA(t, func(t *testing.T) {
		got := make([]float32, 8)
		team.RMSNorm(got, []float32{1, 2, 3, 4, 1, 2, 3, 4}, []float32{1, .5, 2, 1}, 1e-5)
		around(t, "RMSNorm", got, 0.365148, 0.365148, 2.190889, 1.460593, 0.365148, 0.365148, 2.190889, 1.460593)

		x := []float32{1, 2, 3, 4}
		team.RMSNorm(x, x, []float32{1, 1, 1, 1}, 1e-5)
		around(t, "RMSNorm in place", x, 0.36514813, 2*0.36514813, 3*0.36514813, 4*0.36514813)

		zeros := []float32{0, 0}
		team.RMSNorm(zeros, zeros, []float32{1, 1}, 1e-6)
		around(t, "RMSNorm of zeros", zeros, 0, 0)

		large := []float32{1e30, -1e30} // squares overflow float32
		team.RMSNorm(large, large, []float32{1, 1}, 1e-6)
		around(t, "RMSNorm of large values", large, 1, -1)

		nan := []float32{float32(math.NaN()), 1, 1, 1}
		team.RMSNorm(nan, nan, []float32{1, 1}, 1e-6)
		if nan[0] == nan[0] || nan[1] == nan[1] || nan[2] != nan[3] || nan[2] != nan[2] {
			t.Errorf("RMSNorm of a row with NaN and one without: %v", nan)
		}
		team.RMSNorm(nil, nil, nil, 0)

		for _, n := range []int{31, 32, 33, 100, 1024} {
			r := newRand(uint64(n))
			x, weight := normal(r, 3*n, 1), normal(r, n, 1)
			plain, want := make([]float32, 3*n), make([]float64, 3*n)
			for row := range 3 {
				sum, sum32 := 0.0, float32(0)
				for _, f := range x[row*n:][:n] {
					sum += float64(f) * float64(f)
					sum32 += f * f
				}
				for i := range n {
					want[row*n+i] = float64(x[row*n+i]) / math.Sqrt(sum/float64(n)+1e-5) * float64(weight[i])
					plain[row*n+i] = x[row*n+i] / float32(math.Sqrt(float64(sum32/float32(n)+1e-5))) * weight[i]
				}
			}
			got, intact := guarded(t, 3*n)
			team.RMSNorm(got, x, weight, 1e-5)
			compare(t, "RMSNorm", got, plain, want)
			intact()
		}
	})
}

// TestSwiGLU: one feature with gate 1 and up 1 shows silu itself; then any sizes,
// with the products rounded or not.
func TestSwiGLU(t *testing.T) {
	kernel.ForEachISA(t, func(t *testing.T) {
		one := kernel.Projection{Weight: newMatrix(t, 1, 1, kernel.F32, []float32{1})}
		x := []float32{-2, -1, 0, 1, 2, -200, 200, float32(math.NaN())}
		y := make([]float32, len(x))
		team.SwiGLU(y, x, len(x), one, one)
		around(t, "SwiGLU", y[:7], -2*-0.238406, -1*-0.268941, 0, 0.731059, 2*1.761594, 0, 200*200)
		if y[7] == y[7] {
			t.Errorf("SwiGLU of NaN = %g", y[7])
		}
		team.SwiGLU(nil, nil, 0, one, one)
	})
	for _, s := range []struct{ rows, in, out int }{{1, 1, 1}, {2, 7, 5}, {9, 20, 40}, {40, 256, 32}, {33, 257, 130}, {530, 16, 7}, {3, 16, 600}} {
		r := newRand(uint64(s.rows*s.in + s.out))
		scale := 2 / math.Sqrt(float64(s.in))
		gate := kernel.Projection{Weight: newMatrix(t, s.out, s.in, kernel.BF16, normal(r, s.out*s.in, scale)), Bias: normal(r, s.out, 1)}
		up := kernel.Projection{Weight: newMatrix(t, s.out, s.in, kernel.F32, normal(r, s.out*s.in, scale))}
		x := normal(r, s.rows*s.in, 1)
		plain, want := gated[float32](x, s.rows, gate, up), gated[float64](x, s.rows, gate, up)
		kernel.ForEachISA(t, func(t *testing.T) {
			y, intact := guarded(t, s.rows*s.out)
			team.SwiGLU(y, x, s.rows, gate, up)
			compare(t, "SwiGLU", y, plain, want)
			intact()
			// What an output gives does not depend on how many stand behind it.
			fewer := func(p kernel.Projection, n int) kernel.Projection {
				p.Weight.Data = p.Weight.Data[:len(p.Weight.Data)/p.Weight.Rows*n]
				p.Weight.Rows = n
				if p.Bias != nil {
					p.Bias = p.Bias[:n]
				}
				return p
			}
			n := (s.out + 1) / 2
			part := make([]float32, s.rows*n)
			team.SwiGLU(part, x, s.rows, fewer(gate, n), fewer(up, n))
			for i := range s.rows {
				sameBits(t, "SwiGLU of fewer outputs", part[i*n:][:n], y[i*s.out:][:n])
			}
		})
	}
}

// gated is SwiGLU by its definition.
func gated[F ref.Float](x []float32, rows int, gate, up kernel.Projection) []F {
	y, u := ref.Linear[F](x, rows, &gate.Weight, gate.Bias), ref.Linear[F](x, rows, &up.Weight, up.Bias)
	for i, g := range y {
		y[i] = g / (1 + F(math.Exp(-float64(g)))) * u[i]
	}
	return y
}

// TestLinears: projections side by side, with and without a residual, give to the
// bit what they give one by one.
func TestLinears(t *testing.T) {
	for _, s := range []struct {
		rows, in int
		outs     []int
	}{{1, 3, []int{2, 5}}, {9, 64, []int{40, 8, 8}}, {530, 20, []int{7, 300}}, {33, 300, []int{130}}} {
		r := newRand(uint64(s.rows + s.in))
		var parts []kernel.Projection
		total := 0
		for i, out := range s.outs {
			p := kernel.Projection{Weight: newMatrix(t, out, s.in, kernel.DType(i), normal(r, out*s.in, 1))}
			if i != 1 {
				p.Bias = normal(r, out, 1)
			}
			parts, total = append(parts, p), total+out
		}
		x, residual := normal(r, s.rows*s.in, 1), normal(r, s.rows*total, 1)
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
				sameBits(t, "Linears", y, want)
				team.Add(want, want, residual)
				team.Linears(y, x, residual, s.rows, parts)
				sameBits(t, "Linears with a residual", y, want)
				intact()
			})
		}
	}
}

func TestAdd(t *testing.T) {
	a, b := []float32{1, 2, 3}, []float32{10, 20, 30}
	team.Add(a, a, b)
	if !slices.Equal(a, []float32{11, 22, 33}) {
		t.Errorf("a += b gave %v", a)
	}
	team.Add(b, a, b)
	if !slices.Equal(b, []float32{21, 42, 63}) {
		t.Errorf("b = a + b gave %v", b)
	}
	team.Add(nil, nil, nil)
}
