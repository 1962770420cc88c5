// Package tol compares computed values with reference values in tests.
//
// Two measures serve. The relative L2 error ‖got-want‖₂ / ‖want‖₂ suits results of
// long sums, whose single elements may cancel to any relative error. The
// largest absolute difference max|got-want| suits values whose scale is known,
// such as probabilities. Both are computed in float64.
//
// A NaN, in got or want, and a difference in length never pass: the measures
// are then +Inf, not NaN, so that a comparison either way round fails. An
// infinity is right only where the reference has the same.
package tol

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// Float is an element type of compared values.
type Float interface{ ~float32 | ~float64 }

// RelL2 returns ‖got-want‖₂ / ‖want‖₂, leaving out elements that are the same
// infinity in both. It is 0 for equal values, also where all are zero, and +Inf if
// want alone is zero.
func RelL2[G, W Float](got []G, want []W) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	diff := 0.0
	for i := range want {
		diff = math.Hypot(diff, difference(got[i], want[i]))
	}
	switch size := norm(want); {
	case diff == 0:
		return 0
	case math.IsInf(diff, 1), math.IsInf(size, 1):
		return math.Inf(1)
	default:
		return diff / size
	}
}

// norm is ‖v‖₂ without v's infinities and NaNs. Hypot, unlike a sum of squares,
// does not round the squares of tiny values to zero.
func norm[F Float](v []F) float64 {
	n := 0.0
	for _, x := range v {
		if x := float64(x); !math.IsInf(x, 0) && !math.IsNaN(x) {
			n = math.Hypot(n, x)
		}
	}
	return n
}

// MaxAbs returns the largest |got[i]-want[i]| and the first i that has it. For
// empty slices that is 0, -1, for slices of different lengths +Inf, -1.
func MaxAbs[G, W Float](got []G, want []W) (diff float64, at int) {
	if len(got) != len(want) {
		return math.Inf(1), -1
	}
	at = -1
	for i := range want {
		if d := difference(got[i], want[i]); at < 0 || d > diff {
			diff, at = d, i
		}
	}
	return diff, at
}

// difference is |got-want|, 0 for equal infinities and +Inf where there is a NaN.
func difference[G, W Float](got G, want W) float64 {
	g, w := float64(got), float64(want)
	if g == w {
		return 0
	}
	if d := math.Abs(g - w); d == d {
		return d
	}
	return math.Inf(1)
}

// Close fails the test unless RelL2(got, want) <= limit. It then shows the first
// elements that differ by more than limit times the root mean square of want:
// when the norm is over its limit, some element is.
func Close[G, W Float](t testing.TB, got []G, want []W, limit float64) {
	t.Helper()
	rms := norm(want) / math.Sqrt(float64(max(1, len(want))))
	check(t, "relative L2 error", RelL2(got, want), limit, got, want, limit*rms)
}

// CloseAbs fails the test unless MaxAbs(got, want) <= limit, and then shows the
// first elements that differ by more.
func CloseAbs[G, W Float](t testing.TB, got []G, want []W, limit float64) {
	t.Helper()
	diff, _ := MaxAbs(got, want)
	check(t, "largest difference", diff, limit, got, want, limit)
}

// ULP is the largest relative error of rounding to float32.
const ULP = 1.0 / (1 << 24)

// ClosePlain fails the test unless MaxAbs(got, want) <= Bound(plain, want).
func ClosePlain[W Float](t testing.TB, got, plain []float32, want []W) {
	t.Helper()
	CloseAbs(t, got, want, Bound(plain, want))
}

// Bound is the absolute error that a float32 calculation of want may have: twice the error
// of plain, the same calculation as plain loops in float32, and 16 roundings of the largest
// value.
func Bound[W Float](plain []float32, want []W) float64 {
	largest := 0.0
	for _, w := range want {
		largest = max(largest, math.Abs(float64(w)))
	}
	off, _ := MaxAbs(plain, want)
	return 2*off + 16*ULP*largest
}

// SameBits fails the test unless got is want bit for bit. what names the values.
func SameBits(t testing.TB, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("%s: [%d] is %v (%08x), want exactly %v (%08x)", what, i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
			return
		}
	}
}

// shown is how many offending elements a failure lists.
const shown = 5

func check[G, W Float](t testing.TB, measure string, value, limit float64, got []G, want []W, each float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d values, want %d", len(got), len(want))
		return
	}
	if value <= limit && !math.IsInf(value, 1) { // no limit lets a NaN pass
		t.Logf("%s %.3g: %.0f%% of the allowed %.3g", measure, value, share(value, limit), limit)
		return
	}
	var list strings.Builder
	over := 0
	for i := range want {
		d := difference(got[i], want[i])
		if d <= each {
			continue
		}
		if over++; over <= shown {
			fmt.Fprintf(&list, "\n\t[%d] got %v, want %v, differs by %.3g", i, got[i], want[i], d)
		}
	}
	t.Errorf("%s %.3g: %.0f%% of the allowed %.3g; %d of %d elements differ by more than %.3g, the first:%s",
		measure, value, share(value, limit), limit, over, len(want), each, list.String())
}

// share is value in percent of limit.
func share(value, limit float64) float64 {
	if value == 0 {
		return 0
	}
	return 100 * value / limit
}
