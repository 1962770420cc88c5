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
// skipped rows, with and without something to fetch ahead.
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

func TestSoftmaxRoutine(t *testing.T) {
	inf := float32(math.Inf(1))
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(2, 2))
		for _, rows := range []int{1, 2, 3, 4, 5, 8, 31, 256} {
			s, sIntact := window(r, rows*lanes)
			state, stateIntact := window(r, 3*lanes)
			for i := range s {
				s[i] *= 20
			}
			for i := range lanes {
				state[lanes+i] = r.Float32() * 100
				switch i % 4 {
				case 0: // nothing seen before
					state[i], state[lanes+i] = -inf, 0
				case 1: // a maximum that stays
					state[i] = 200
				}
			}
			for j := range rows {
				s[j*lanes+4] = -inf                // lane 4 sees nothing, before or now
				s[j*lanes+5] = -inf                // lane 5 has seen something before
				s[j*lanes+7] = float32(math.NaN()) // lanes 7 and 11 see NaN
				s[j*lanes+13] = 1e30               // lane 13 a maximum that crushes the rest
			}
			s[11] = math.Float32frombits(0xffc00155)
			s[15] = inf
			before, beforeState := slices.Clone(s), slices.Clone(state)
			active.softmax(s, rows, state)
			if half := 0.5 + r.Float32()/4; 0x1p-126*half == 0 {
				t.Fatal("subnormal results are 0 after softmax")
			}
			if !sIntact() || !stateIntact() {
				t.Fatalf("rows=%d: softmax wrote outside of its results", rows)
			}
			for i := range lanes {
				maximum := beforeState[i]
				for j := range rows {
					if x := before[j*lanes+i]; x > maximum {
						maximum = x
					}
				}
				shift := maximum
				if maximum == -inf {
					shift = 0
				}
				shrink := math.Exp2(float64(beforeState[i] - shift))
				sum := float64(beforeState[lanes+i]) * shrink
				for j := range rows {
					want := math.Exp2(float64(before[j*lanes+i] - shift))
					sum += want
					checkExp(t, s[j*lanes+i], want)
				}
				if state[i] != maximum {
					t.Fatalf("rows=%d lane %d: maximum %g, want %g", rows, i, state[i], maximum)
				}
				checkExp(t, state[2*lanes+i], shrink)
				if !(math.IsNaN(sum) && state[lanes+i] != state[lanes+i]) {
					near(t, "sum", state[lanes+i], sum, 4*sum)
				}
			}
		}
	})
}

// checkExp holds an exponential to the error that isa.softmax states.
func checkExp(t *testing.T, got float32, want float64) {
	t.Helper()
	switch {
	case math.IsNaN(want):
		if got == got {
			t.Fatalf("exponential %g, want NaN", got)
		}
	case want < 1.2e-38:
		// Around the smallest normal number, implementations flush to 0 at
		// slightly different arguments.
		if got != 0 && math.Abs(float64(got)-want) > 1e-3*want {
			t.Fatalf("exponential %g, want %g or 0", got, want)
		}
	case !(math.Abs(float64(got)-want) <= 4e-7*want):
		t.Fatalf("exponential %.9g, want %.9g: relative error %.2g", got, want, math.Abs(float64(got)/want-1))
	}
}

// TestExp walks over the arguments of the exponential, through the softmax
// routine of each instruction set: the maximum of each column is made 0.
func TestExp(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		const rows = 256
		s, state := make([]float32, rows*lanes), make([]float32, 3*lanes)
		x := float32(0)
		for x > -160 {
			for i := range state {
				state[i] = 0 // maximum 0, sum 0
			}
			arguments := make([]float32, len(s))
			for i := range s {
				x -= 0.00371
				s[i], arguments[i] = x, x
			}
			active.softmax(s, rows, state)
			for i, f := range s {
				checkExp(t, f, math.Exp2(float64(arguments[i])))
			}
		}
	})
	for x := float32(-100); x < 100; x += 0.0137 {
		if x <= 88 {
			checkExp(t, exp32(x), math.Exp(float64(x)))
		} else if !math.IsInf(float64(exp32(x)), 1) {
			t.Errorf("exp32(%g) = %g, want +Inf", x, exp32(x))
		}
	}
	if exp2(0) != 1 || exp2(float32(math.Inf(-1))) != 0 {
		t.Error("exp2 of 0 or -Inf")
	}
	if exp32(0) != 1 || exp32(float32(math.Inf(-1))) != 0 || !math.IsInf(float64(exp32(float32(math.Inf(1)))), 1) {
		t.Error("exp32 of 0, -Inf or +Inf")
	}
	if x := exp32(float32(math.NaN())); x == x {
		t.Error("exp32 of NaN is a number")
	}
}

func TestRowRoutines(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 3))
		for _, rows := range []int{1, 5, 8, 16, 72} {
			w, wIntact := window(r, lanes)
			c, cIntact := window(r, rows*lanes)
			before := slices.Clone(c)
			active.scaleRows(c, rows, w)
			for i := range c {
				if c[i] != before[i]*w[i%lanes] {
					t.Fatalf("scaleRows: element %d is %g, want %g", i, c[i], before[i]*w[i%lanes])
				}
			}
			if rows%rowUnit == 0 {
				dst, dstIntact := window(r, rows)
				active.dotRows(dst, c, rows, w)
				for j := range rows {
					want, scale := 0.0, 0.0
					for i := range lanes {
						x := float64(c[j*lanes+i]) * float64(w[i])
						want += x
						scale += math.Abs(x)
					}
					near(t, "dotRows", dst[j], want, scale)
				}
				if !dstIntact() {
					t.Fatal("dotRows wrote outside of its result")
				}
			}
			if !wIntact() || !cIntact() {
				t.Fatal("a row routine wrote outside of its result")
			}
		}
	})
}

// TestSwiGLURoutine walks over the arguments, and holds results to the error that
// isa.swiGLU states.
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

// TestTopKRoutines holds the routines of the selection to the functions that they
// are vectors of, on any bits.
func TestTopKRoutines(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(8, 8))
		for _, n := range []int{lanes, 2 * lanes, 11 * lanes} {
			scores := make([]float32, n)
			for i := range scores {
				switch r.IntN(3) {
				case 0:
					scores[i] = math.Float32frombits(r.Uint32())
				case 1:
					scores[i] = []float32{0, float32(math.Copysign(0, -1)), 1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}[r.IntN(6)]
				default:
					scores[i] = r.Float32()
				}
			}
			order := make([]uint32, n+1)
			order[n] = guardValue
			active.sortKeys(order, scores)
			for i, s := range scores {
				if order[i] != sortKey(s) {
					t.Fatalf("sortKey(%g) = %08x, want %08x", s, order[i], sortKey(s))
				}
			}
			if order[n] != guardValue {
				t.Fatal("sortKeys wrote outside of its result")
			}
			order = order[:n]
			for _, digit := range []uint32{0, 1, order[0] >> digitShift, 1<<digitBits - 1} {
				bits, ties := make([]uint32, n/32+1), make([]uint32, n+lanes+1)
				bits[n/32], ties[n+lanes] = guardValue, guardValue
				count := active.partition(bits[:n/32], ties[:n+lanes], order, digit)
				var want []uint32
				for i, x := range order {
					if above := bits[i/32]>>(i%32)&1 == 1; above != (x>>digitShift > digit) {
						t.Fatalf("digit %d: bit %d is %v", digit, i, above)
					}
					if x>>digitShift == digit {
						want = append(want, uint32(i))
					}
				}
				if !slices.Equal(ties[:count], want) && len(want) > 0 {
					t.Fatalf("digit %d: ties %v, want %v", digit, ties[:count], want)
				}
				if count != len(want) || bits[n/32] != guardValue || ties[n+lanes] != guardValue {
					t.Fatalf("digit %d: %d ties of %d, or wrote outside of the results", digit, count, len(want))
				}
			}
		}
	})
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

// TestSortKey checks that the order of sort keys is that of TopK.
func TestSortKey(t *testing.T) {
	inf := float32(math.Inf(1))
	ascending := []float32{-inf, -math.MaxFloat32, -1, -math.SmallestNonzeroFloat32, 0,
		math.SmallestNonzeroFloat32, 1, math.Nextafter32(1, 2), math.MaxFloat32, inf}
	for i, x := range ascending {
		if sortKey(x) <= sortKeyNaN {
			t.Errorf("sortKey(%g) is not above that of NaN", x)
		}
		if i > 0 && sortKey(x) <= sortKey(ascending[i-1]) {
			t.Errorf("sortKey(%g) is not above sortKey(%g)", x, ascending[i-1])
		}
	}
	if negative := float32(math.Copysign(0, -1)); sortKey(negative) != sortKey(0) {
		t.Error("-0 and 0 differ in sort key")
	}
	for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7f800001} {
		if sortKey(math.Float32frombits(bits)) != sortKeyNaN {
			t.Errorf("sort key of the NaN %08x", bits)
		}
	}
}
