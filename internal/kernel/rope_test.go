package kernel_test

import (
	"math"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
)

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
	r := attncase.Rand(14)
	pos := []int32{7, 0, 1, 7, 90, 4 << 20, -3, math.MaxInt32, math.MinInt32}
	for _, dim := range []int{2, 16, 20, 64, 128} {
		const heads, theta = 3, 5e5
		n := len(pos)
		x := attncase.Normal(r, n*heads*dim, 1)
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
					tol.SameBits(t, "RoPE with a larger table", few[h*4*dim:][:4*dim], got[h*n*dim:][:4*dim])
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
		x := attncase.Normal(attncase.Rand(6), batch*n*heads*dim, 1)
		split, rotated := make([]float32, len(x)), make([]float32, len(x))
		team.SplitHeads(split, x, batch, n, kernel.Heads{Count: heads, Dim: dim})
		team.RoPE(rotated, x, make([]int32, batch*n), batch, n, kernel.Heads{Count: heads, Dim: dim}, 1e4)
		tol.SameBits(t, "RoPE at 0", rotated, split)

		pos := []int32{3, 0, 5, 1, 1, 9}
		team.RoPE(rotated, x, pos, batch, n, kernel.Heads{Count: heads, Dim: dim}, 1e4)
		for b := range batch {
			for h := range heads {
				for i := range n {
					one := make([]float32, dim)
					at := ((b*heads+h)*n + i) * dim
					team.RoPE(one, split[at:][:dim], pos[b*n+i:][:1], 1, 1, kernel.Heads{Count: 1, Dim: dim}, 1e4)
					tol.SameBits(t, "RoPE", rotated[at:][:dim], one)
				}
			}
		}
	})
}
