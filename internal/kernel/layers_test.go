package kernel_test

import (
	"math"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
)

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

func TestSplitAndMergeHeads(t *testing.T) {
	const batch, n, heads, dim = 2, 3, 4, 5
	x := attncase.Normal(attncase.Rand(7), batch*n*heads*dim, 1)
	split, merged := make([]float32, len(x)), make([]float32, len(x))
	team.SplitHeads(split, x, batch, n, kernel.Heads{Count: heads, Dim: dim})
	// Element (b, i, h, d) of x.
	if b, i, h, d := 1, 2, 3, 4; split[((b*heads+h)*n+i)*dim+d] != x[((b*n+i)*heads+h)*dim+d] {
		t.Error("SplitHeads moved an element to a wrong place")
	}
	team.MergeHeads(merged, split, batch, n, heads, dim)
	tol.SameBits(t, "MergeHeads of SplitHeads", merged, x)
}

// TestHeadRange: some of the heads of features give what they give alone.
func TestHeadRange(t *testing.T) {
	const batch, n, total, dim, first, count = 2, 5, 7, 6, 3, 2
	r := attncase.Rand(15)
	x := attncase.Normal(r, batch*n*total*dim, 1)
	var alone []float32
	for row := range batch * n {
		alone = append(alone, x[(row*total+first)*dim:][:count*dim]...)
	}
	pos := []int32{3, 0, 5, 1, 1, 9, 2, 4, 8, 7}
	some, all := kernel.Heads{First: first, Count: count, Dim: dim}, kernel.Heads{Count: count, Dim: dim}
	got, want := make([]float32, len(alone)), make([]float32, len(alone))
	team.SplitHeads(got, x, batch, n, some)
	team.SplitHeads(want, alone, batch, n, all)
	tol.SameBits(t, "SplitHeads", got, want)
	kernel.ForEachISA(t, func(t *testing.T) {
		team.RoPE(got, x, pos, batch, n, some, 1e4)
		team.RoPE(want, alone, pos, batch, n, all, 1e4)
		tol.SameBits(t, "RoPE", got, want)
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
			r := attncase.Rand(uint64(n))
			x, weight := attncase.Normal(r, 3*n, 1), attncase.Normal(r, n, 1)
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
		r := attncase.Rand(uint64(s.rows*s.in + s.out))
		scale := 2 / math.Sqrt(float64(s.in))
		gate := kernel.Projection{Weight: newMatrix(t, s.out, s.in, kernel.BF16, attncase.Normal(r, s.out*s.in, scale)), Bias: attncase.Normal(r, s.out, 1)}
		up := kernel.Projection{Weight: newMatrix(t, s.out, s.in, kernel.F32, attncase.Normal(r, s.out*s.in, scale))}
		x := attncase.Normal(r, s.rows*s.in, 1)
		plain, want := gated[float32](x, s.rows, gate, up), gated[float64](x, s.rows, gate, up)
		kernel.ForEachISA(t, func(t *testing.T) {
			y, intact := guarded(t, s.rows*s.out)
			team.SwiGLU(y, x, s.rows, gate, up)
			compare(t, "SwiGLU", y, plain, want)
			intact()
			// An output does not depend on the number of outputs after it.
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
				tol.SameBits(t, "SwiGLU of fewer outputs", part[i*n:][:n], y[i*s.out:][:n])
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
