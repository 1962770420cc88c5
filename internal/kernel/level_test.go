package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// These tests call the routines of each level directly, at sizes around their
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

func TestMulPanel(t *testing.T) {
	ForEachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 1))
		for _, m := range []int{8, 16, 40} {
			for _, k := range []int{1, 2, 7, 64, 257} {
				for _, strides := range []struct{ rs, cs int }{{k, 1}, {k + 3, 1}, {1, m}, {1, m + 5}, {2, 2*m + 1}} {
					ldb, ldc := lanes+r.IntN(2)*5, lanes+r.IntN(2)*9
					a, aIntact := window(r, (m-1)*strides.rs+(k-1)*strides.cs+1)
					b, bIntact := window(r, (k-1)*ldb+lanes)
					c, cIntact := window(r, (m-1)*ldc+lanes)
					before := slices.Clone(c)
					for _, accumulate := range []bool{false, true} {
						copy(c, before)
						active.mulPanel(m, k, a, strides.rs, strides.cs, b, ldb, c, ldc, accumulate)
						for i := range m {
							for j := range lanes {
								want, scale := 0.0, 0.0
								for p := range k {
									x := float64(a[i*strides.rs+p*strides.cs]) * float64(b[p*ldb+j])
									want += x
									scale += math.Abs(x)
								}
								if accumulate {
									want += float64(before[i*ldc+j])
								}
								near(t, "mulPanel", c[i*ldc+j], want, scale+math.Abs(want))
							}
							if i < m-1 && !slices.Equal(c[i*ldc+lanes:(i+1)*ldc], before[i*ldc+lanes:(i+1)*ldc]) {
								t.Fatalf("mulPanel m=%d k=%d wrote between rows of c", m, k)
							}
						}
					}
					if !aIntact() || !bIntact() || !cIntact() {
						t.Fatalf("mulPanel m=%d k=%d wrote outside of its result", m, k)
					}
				}
			}
		}
	})
}

func TestSoftmaxRoutine(t *testing.T) {
	inf := float32(math.Inf(1))
	ForEachLevel(t, func(t *testing.T) {
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
				shrink := math.Exp(float64(beforeState[i] - shift))
				sum := float64(beforeState[lanes+i]) * shrink
				for j := range rows {
					want := math.Exp(float64(before[j*lanes+i] - shift))
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

// checkExp holds an exponential to the error that level.softmax states.
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
// routine of each level: the maximum of each column is made 0.
func TestExp(t *testing.T) {
	ForEachLevel(t, func(t *testing.T) {
		const rows = 256
		s, state := make([]float32, rows*lanes), make([]float32, 3*lanes)
		x := float32(0)
		for x > -110 {
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
				checkExp(t, f, math.Exp(float64(arguments[i])))
			}
		}
	})
	for x := float32(-100); x < 100; x += 0.0137 {
		if x <= expMax {
			checkExp(t, exp32(x), math.Exp(float64(x)))
		} else if !math.IsInf(float64(exp32(x)), 1) {
			t.Errorf("exp32(%g) = %g, want +Inf", x, exp32(x))
		}
	}
	if exp32(0) != 1 || exp32(float32(math.Inf(-1))) != 0 || !math.IsInf(float64(exp32(float32(math.Inf(1)))), 1) {
		t.Error("exp32 of 0, -Inf or +Inf")
	}
	if x := exp32(float32(math.NaN())); x == x {
		t.Error("exp32 of NaN is a number")
	}
}

func TestRowRoutines(t *testing.T) {
	ForEachLevel(t, func(t *testing.T) {
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

func TestTranspose(t *testing.T) {
	ForEachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(4, 4))
		for _, m := range []int{1, 7, 8, 9, 32, 33} {
			for _, n := range []int{1, 7, 8, 16, 45} {
				lds, ldd := n+r.IntN(2)*3, m+r.IntN(2)*6
				src, srcIntact := window(r, (m-1)*lds+n)
				dst, dstIntact := window(r, (n-1)*ldd+m)
				before := slices.Clone(dst)
				transpose(dst, ldd, src, lds, m, n, 0.3)
				for i := range dst {
					want := before[i]
					if i%ldd < m {
						want = 0.3 * src[i%ldd*lds+i/ldd]
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

// TestRank checks that the order of ranks is that of TopK.
func TestRank(t *testing.T) {
	inf := float32(math.Inf(1))
	ascending := []float32{-inf, -math.MaxFloat32, -1, -math.SmallestNonzeroFloat32, 0,
		math.SmallestNonzeroFloat32, 1, math.Nextafter32(1, 2), math.MaxFloat32, inf}
	for i, x := range ascending {
		if rank(x) <= rankNaN {
			t.Errorf("rank(%g) is not above that of NaN", x)
		}
		if i > 0 && rank(x) <= rank(ascending[i-1]) {
			t.Errorf("rank(%g) is not above rank(%g)", x, ascending[i-1])
		}
	}
	if negative := float32(math.Copysign(0, -1)); rank(negative) != rank(0) {
		t.Error("-0 and 0 differ in rank")
	}
	for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7f800001} {
		if rank(math.Float32frombits(bits)) != rankNaN {
			t.Errorf("rank of the NaN %08x", bits)
		}
	}
}
