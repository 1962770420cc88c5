package kernel_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/pulsecol/pulsecol/internal/tol"
)

// compare fails the test unless got is as close to want, the reference in
// float64, as a float32 computation can be expected to be: within twice the
// error of the reference in float32, and a few roundings of the largest value, or of 1: the
// inputs of these tests have that size, and a small result can be the difference of larger
// numbers. NaN and infinities must agree.
func compare(t *testing.T, what string, got, plain []float32, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	largest, allowed := 1.0, 0.0
	for i, w := range want {
		if finite(w) {
			largest = max(largest, math.Abs(w))
			if e := math.Abs(float64(plain[i]) - w); finite(e) {
				allowed = max(allowed, 2*e)
			}
		}
	}
	allowed += 16 * tol.ULP * largest
	for i, w := range want {
		g := float64(got[i])
		switch {
		case math.IsNaN(w):
			if !math.IsNaN(g) {
				t.Fatalf("%s[%d] = %g, want NaN", what, i, g)
			}
		case math.IsInf(w, 0):
			if g != w {
				t.Fatalf("%s[%d] = %g, want %g", what, i, g, w)
			}
		case !(math.Abs(g-w) <= allowed):
			t.Fatalf("%s[%d] = %.9g, want %.9g; error %.2g, allowed %.2g", what, i, g, w, math.Abs(g-w), allowed)
		}
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// guard is written around buffers and must stay.
const guard = 12345

// guarded returns a buffer of n NaN in the middle of guard values, and a
// function that fails the test if these have changed.
func guarded(t *testing.T, n int) ([]float32, func()) {
	const margin = 64
	whole := make([]float32, margin+n+margin)
	for i := range whole {
		whole[i] = guard
	}
	buf := whole[margin:][:n:n]
	for i := range buf {
		buf[i] = float32(math.NaN())
	}
	return buf, func() {
		t.Helper()
		for i, x := range whole {
			if (i < margin || i >= margin+n) && x != guard {
				t.Fatalf("element %d outside of a buffer of %d was overwritten", i-margin, n)
			}
		}
	}
}

func putFloat32(b []byte, f float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(f)) }
func getFloat32(b []byte) float32    { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
