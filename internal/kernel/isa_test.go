package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// These tests call the routines of each instruction set directly, at sizes around their
// units and with strides larger than rows, between guard values.

const guardValue = 4321

// window returns n random numbers inside a slice with guard values around them,
// and a function that reports whether these are still there.
func window(r *rand.Rand, n int) (x []float32, intact func() bool) {
	const margin = 40
	whole := make([]float32, margin+n+margin)
	for i := range whole {
		whole[i] = guardValue
	}
	x = whole[margin:][:n:n]
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x, func() bool {
		outside := func(f float32) bool { return f != guardValue }
		return !slices.ContainsFunc(whole[:margin], outside) && !slices.ContainsFunc(whole[margin+n:], outside)
	}
}

// near compares with a tolerance of some roundings of numbers of size scale.
func near(t *testing.T, what string, got float32, want, scale float64) {
	t.Helper()
	if d := math.Abs(float64(got) - want); !(d <= 4e-7*scale) {
		t.Fatalf("%s = %.9g, want %.9g", what, got, want)
	}
}

// TestMultiplications runs mulRows and mulCols over lists with repeated and
// skipped rows, with and without rows to prefetch.
func TestMultiplications(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 1))
		for _, m := range []int{8, 16, 40} {
			for _, k := range []int{1, 2, 7, 16, 64, 257} {
				for _, gap := range []int{0, 3} {
					list, byRow := make([]int32, m, m+prefetchRows), make([]int32, k, k+prefetchRows)
					for i := range list {
						list[i] = int32(r.IntN(2 * m))
					}
					for i := range byRow {
						byRow[i] = int32(r.IntN(2 * k))
					}
					factors := [lanes]float32{0, 1}
					for i := range factors[2:] {
						factors[2+i] = r.Float32()
					}
					rows := mulCase{r: r, t: t, m: m, k: k, ldc: lanes + 3*gap, lda: k + gap, height: 2 * m, keep: &ones,
						element: func(i, p int) int { return int(list[i])*(k+gap) + p },
						call: func(a []float32, lda int, b, c []float32, ldc int, keep *[lanes]float32, next *prefetch) {
							active.mulRows(list, k, a, lda, b, c, ldc, keep != nil, next)
						}}
					rows.run("mulRows")
					cols := mulCase{r: r, t: t, m: m, k: k, ldc: lanes + 3*gap, lda: m + gap, height: 2 * k, keep: &factors,
						element: func(i, p int) int { return int(byRow[p])*(m+gap) + i },
						call: func(a []float32, lda int, b, c []float32, ldc int, keep *[lanes]float32, next *prefetch) {
							active.mulCols(m, byRow, a, lda, b, c, ldc, keep, next)
						}}
					cols.run("mulCols")
				}
			}
		}
	})
}

// mulCase is a product of [m, k] and [k, lanes]. Element (i, p) of the left-hand
// matrix is at element(i, p) of a matrix with height rows of lda elements. keep are
// the factors of what is added to.
type mulCase struct {
	r                      *rand.Rand
	t                      *testing.T
	m, k, lda, ldc, height int
	element                func(i, p int) int
	keep                   *[lanes]float32
	call                   func(a []float32, lda int, b, c []float32, ldc int, keep *[lanes]float32, next *prefetch)
}

func (x *mulCase) run(name string) {
	x.t.Helper()
	a, aIntact := window(x.r, x.height*x.lda)
	b, bIntact := window(x.r, x.k*lanes)
	c, cIntact := window(x.r, (x.m-1)*x.ldc+lanes)
	before := slices.Clone(c)
	for _, keep := range []*[lanes]float32{nil, x.keep} {
		copy(c, before)
		var next *prefetch
		if keep != nil {
			next = planPrefetch(new(prefetch), a, x.lda, identity[:min(x.height, len(identity))], b, 1, x.m)
		}
		x.call(a, x.lda, b, c, x.ldc, keep, next)
		if next != nil && (next[0].left < 0 || next[0].left > x.height) {
			x.t.Fatalf("%s m=%d k=%d left %d rows to fetch", name, x.m, x.k, next[0].left)
		}
		for i := range x.m {
			for j := range lanes {
				want, scale := 0.0, 0.0
				for p := range x.k {
					y := float64(a[x.element(i, p)]) * float64(b[p*lanes+j])
					want += y
					scale += math.Abs(y)
				}
				if keep != nil {
					kept := float64(before[i*x.ldc+j]) * float64(keep[j])
					want += kept
					scale += math.Abs(kept)
				}
				near(x.t, name, c[i*x.ldc+j], want, scale)
			}
			if i < x.m-1 && !slices.Equal(c[i*x.ldc+lanes:(i+1)*x.ldc], before[i*x.ldc+lanes:(i+1)*x.ldc]) {
				x.t.Fatalf("%s m=%d k=%d wrote between rows of c", name, x.m, x.k)
			}
		}
	}
	if !aIntact() || !bIntact() || !cIntact() {
		x.t.Fatalf("%s m=%d k=%d wrote outside of its result", name, x.m, x.k)
	}
}

func TestTranspose(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(4, 4))
		for _, m := range []int{1, 7, 8, 9, 32, 33} {
			for _, n := range []int{1, 7, 8, 16, 45} {
				lds, ldd := n+r.IntN(2)*3, m+r.IntN(2)*6
				src, srcIntact := window(r, (m-1)*lds+n)
				scale, _ := window(r, n)
				dst, dstIntact := window(r, (n-1)*ldd+m)
				before := slices.Clone(dst)
				transpose(dst, ldd, src, lds, m, n, scale)
				for i := range dst {
					want := before[i]
					if i%ldd < m {
						want = scale[i/ldd] * src[i%ldd*lds+i/ldd]
					}
					if dst[i] != want {
						t.Fatalf("[%d %d]: element %d is %g, want %g", m, n, i, dst[i], want)
					}
				}
				if !srcIntact() || !dstIntact() {
					t.Fatalf("[%d %d]: wrote outside of the result", m, n)
				}
			}
		}
	})
}
