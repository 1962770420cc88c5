package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

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
				s[j*lanes+13] = 1e30               // lane 13: a maximum that makes the other weights 0
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

// checkExp tests an exponential against the error bound of isa.softmax.
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

// TestExp tests the exponential over the range of its arguments, through the softmax routine
// of each instruction set: the maximum of each column is 0.
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
