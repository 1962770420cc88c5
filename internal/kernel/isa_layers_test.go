package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSwiGLURoutine tests results over the range of arguments against the error bound of
// isa.swiGLU.
func TestSwiGLURoutine(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 5))
		worst := 0.0
		check := func(gate []float32) {
			up, upIntact := window(r, len(gate))
			dst, dstIntact := window(r, len(gate))
			active.swiGLU(dst, gate, up)
			for i, g := range gate {
				e := math.Exp(-float64(g))
				want, got := float64(g)/(1+e)*float64(up[i]), float64(dst[i])
				switch {
				case math.IsNaN(want):
					if !math.IsNaN(got) {
						t.Fatalf("swiGLU(%g, %g) = %g, want NaN", g, up[i], got)
					}
				case got == want || g < -87 && got == 0:
				case math.Abs(want) < 1.2e-38:
					if math.Abs(got-want) > 1e-44 {
						t.Fatalf("swiGLU(%g, %g) = %g, want %g", g, up[i], got, want)
					}
				default:
					worst = max(worst, math.Abs(got/want-1))
					if worst > 4e-7 {
						t.Fatalf("swiGLU(%g, %g) = %.9g, want %.9g: relative error %.2g", g, up[i], got, want, worst)
					}
				}
			}
			if !upIntact() || !dstIntact() {
				t.Fatal("swiGLU wrote outside of its result")
			}
		}
		gate := make([]float32, 3*lanes)
		for x := -100.0; x < 100; {
			for i := range gate {
				x += 0.00371
				gate[i] = float32(x)
			}
			check(gate)
		}
		special := []float64{0, math.Copysign(0, -1), inf, -inf, nan, math.MaxFloat32, -math.MaxFloat32, 1e-30, -1e-30, 1e-44, -1e-44}
		for i := range gate {
			gate[i] = float32(special[i%len(special)])
		}
		check(gate)
		t.Logf("largest relative error %.3g", worst)
	})
}

func TestNormRoutines(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(6, 6))
		for _, n := range []int{lanes, 2 * lanes, 5 * lanes} {
			x, xIntact := window(r, n)
			weight, _ := window(r, n)
			x[3], x[n-1] = 1e30, -1e25 // squares beyond float32
			want := 0.0
			for _, f := range x {
				want += float64(f) * float64(f)
			}
			if got := active.sumSquares(x); math.Abs(got-want) > 1e-14*want {
				t.Fatalf("sum of squares %g, want %g", got, want)
			}
			dst, dstIntact := window(r, n)
			active.applyWeight(dst, x, weight, 0.3)
			for i, f := range x {
				if want := float32(f*0.3) * weight[i]; dst[i] != want {
					t.Fatalf("applyWeight: element %d is %g, want %g", i, dst[i], want)
				}
			}
			if !xIntact() || !dstIntact() {
				t.Fatal("wrote outside of the result")
			}
		}
	})
}

func TestRotateRoutine(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 7))
		for _, half := range []int{8, 24, 64} {
			for _, heads := range []int{1, 3} {
				ldd := 2*half + 5
				x, xIntact := window(r, heads*2*half)
				cos, _ := window(r, half)
				sin, _ := window(r, half)
				dst, dstIntact := window(r, (heads-1)*ldd+2*half)
				before := slices.Clone(dst)
				active.rotate(dst, ldd, x, cos, sin, heads)
				for i := range dst {
					h, d := i/ldd, i%ldd
					if d >= 2*half {
						if dst[i] != before[i] {
							t.Fatal("wrote between heads")
						}
						continue
					}
					a, b := float64(x[h*2*half+d%half]), float64(x[h*2*half+half+d%half])
					c, s := float64(cos[d%half]), float64(sin[d%half])
					want := a*c - b*s
					if d >= half {
						want = b*c + a*s
					}
					near(t, "rotate", dst[i], want, math.Abs(a*c)+math.Abs(b*s)+math.Abs(b*c)+math.Abs(a*s))
				}
				if !xIntact() || !dstIntact() {
					t.Fatal("wrote outside of the result")
				}
			}
		}
	})
}
