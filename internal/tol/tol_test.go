package tol

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

var (
	inf = math.Inf(1)
	nan = math.NaN()
)

func TestRelL2(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want []float64
		rel       float64
	}{
		{"empty", nil, nil, 0},
		{"equal", []float64{3, -4}, []float64{3, -4}, 0},
		{"one off", []float64{3, 4.5}, []float64{3, 4}, 0.1},
		{"both off", []float64{6, 8}, []float64{3, 4}, 1},
		{"sign", []float64{-3, -4}, []float64{3, 4}, 2},
		{"zeros", []float64{0, 0}, []float64{0, math.Copysign(0, -1)}, 0},
		{"zero reference", []float64{0, 1e-300}, []float64{0, 0}, inf},
		{"tiny", []float64{2e-200}, []float64{1e-200}, 1},
		{"huge", []float64{2e200}, []float64{1e200}, 1},
		{"norm overflows", []float64{1e308, 1e308, 1e308, 1.1e308}, []float64{1e308, 1e308, 1e308, 1e308}, inf},
		{"same infinities", []float64{inf, -inf, 4.5, 3}, []float64{inf, -inf, 4, 3}, 0.1},
		{"wrong infinity", []float64{inf, 1}, []float64{-inf, 1}, inf},
		{"missing infinity", []float64{1, 1}, []float64{inf, 1}, inf},
		{"unexpected infinity", []float64{inf, 1}, []float64{1, 1}, inf},
		{"NaN got", []float64{nan, 1}, []float64{1, 1}, inf},
		{"NaN want", []float64{1, 1}, []float64{nan, 1}, inf},
		{"NaN both", []float64{nan, 1}, []float64{nan, 1}, inf},
		{"shorter", []float64{1}, []float64{1, 0}, inf},
		{"longer", []float64{1, 0}, []float64{1}, inf},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := RelL2(c.got, c.want)
			if got != c.rel && !(math.Abs(got-c.rel) <= 1e-15*c.rel) {
				t.Errorf("RelL2(%v, %v) = %v, want %v", c.got, c.want, got, c.rel)
			}
		})
	}
}

func TestMaxAbs(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want []float64
		diff      float64
		at        int
	}{
		{"empty", nil, nil, 0, -1},
		{"equal", []float64{1, inf}, []float64{1, inf}, 0, 0},
		{"first of two", []float64{1, 3, 7, 1}, []float64{1, 5, 5, 2}, 2, 1},
		{"NaN", []float64{9, nan}, []float64{1, 1}, inf, 1},
		{"NaN both", []float64{9, nan}, []float64{1, nan}, inf, 1},
		{"infinities", []float64{-inf, 2}, []float64{inf, 1}, inf, 0},
		{"length", []float64{1}, nil, inf, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff, at := MaxAbs(c.got, c.want); diff != c.diff || at != c.at {
				t.Errorf("MaxAbs(%v, %v) = %v at %d, want %v at %d", c.got, c.want, diff, at, c.diff, c.at)
			}
		})
	}
}

// Values of float32 are compared as they are, not after rounding the reference.
func TestMixedTypes(t *testing.T) {
	got, want := []float32{0.1}, []float64{0.1}
	diff := math.Abs(float64(float32(0.1)) - 0.1)
	if d, _ := MaxAbs(got, want); d != diff || d == 0 {
		t.Errorf("MaxAbs = %g, want %g", d, diff)
	}
	if r := RelL2(got, want); r != diff/0.1 {
		t.Errorf("RelL2 = %g, want %g", r, diff/0.1)
	}
}

// recorder stands in for the test that Close and CloseAbs report to.
type recorder struct {
	testing.TB
	logs, errors []string
}

func (r *recorder) Helper()                    {}
func (r *recorder) Logf(f string, args ...any) { r.logs = append(r.logs, fmt.Sprintf(f, args...)) }
func (r *recorder) Errorf(f string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(f, args...))
}

func TestClose(t *testing.T) {
	want := []float64{3, 4} // norm 5
	for _, c := range []struct {
		name  string
		check func(testing.TB)
		pass  bool
		says  string
	}{
		{"under", func(t testing.TB) { Close(t, []float64{3, 4.5}, want, 0.2) }, true, "0.1: 50% of the allowed 0.2"},
		{"at", func(t testing.TB) { Close(t, []float64{3, 4.5}, want, 0.1) }, true, "100%"},
		{"over", func(t testing.TB) { Close(t, []float64{3, 4.5}, want, 0.05) }, false, "0.1: 200% of the allowed 0.05; 1 of 2"},
		{"exact", func(t testing.TB) { Close(t, want, want, 0) }, true, ""},
		{"lists the offender", func(t testing.TB) { Close(t, []float64{3, 4.5}, want, 0.05) }, false, "[1] got 4.5, want 4, differs by 0.5"},
		{"NaN", func(t testing.TB) { Close(t, []float64{nan, 4}, want, 1) }, false, "1 of 2 elements differ by more than 3.54, the first:\n\t[0] got NaN, want 3"},
		{"NaN in want", func(t testing.TB) { Close(t, want, []float64{3, nan}, 1) }, false, "1 of 2 elements differ by more than 2.12, the first:\n\t[1] got 4, want NaN"},
		{"NaN in both", func(t testing.TB) { Close(t, []float64{nan}, []float64{nan}, inf) }, false, "[0] got NaN, want NaN"},
		{"infinite limit", func(t testing.TB) { Close(t, []float64{inf, 4}, want, inf) }, false, "+Inf"},
		{"NaN limit", func(t testing.TB) { Close(t, want, want, nan) }, false, "NaN"},
		{"zero reference", func(t testing.TB) { Close(t, []float64{0, 1}, []float64{0, 0}, 0.1) }, false, "[1] got 1, want 0"},
		{"length", func(t testing.TB) { Close(t, []float64{3}, want, 1) }, false, "1 values, want 2"},
		{"empty", func(t testing.TB) { Close(t, []float64{}, []float64{}, 0) }, true, ""},
		{"abs at", func(t testing.TB) { CloseAbs(t, []float64{3, 4.5}, want, 0.5) }, true, "0.5: 100% of the allowed 0.5"},
		{"abs over", func(t testing.TB) { CloseAbs(t, []float64{3, 4.5}, want, 0.4) }, false, "[1] got 4.5, want 4"},
		{"abs NaN", func(t testing.TB) { CloseAbs(t, []float64{3, nan}, want, inf) }, false, "largest difference +Inf"},
		{"plain at", func(t testing.TB) { ClosePlain(t, []float32{3, 4.5}, []float32{3, 4.25}, want) }, true, "allowed"},
		{"plain over", func(t testing.TB) { ClosePlain(t, []float32{3, 4.51}, []float32{3, 4.25}, want) }, false, "[1] got 4.51"},
		{"plain exact", func(t testing.TB) { ClosePlain(t, []float32{3, 4.00001}, []float32{3, 4}, want) }, false, "[1] got 4.00001"},
		{"plain rounding", func(t testing.TB) { ClosePlain(t, []float32{3, 4.000001}, []float32{3, 4}, want) }, true, "allowed"},
		{"abs length", func(t testing.TB) { CloseAbs(t, []float64{}, want, 1) }, false, "0 values, want 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{TB: t}
			c.check(r)
			if pass := len(r.errors) == 0; pass != c.pass {
				t.Errorf("passed: %t, want %t: %q", pass, c.pass, r.errors)
			}
			if said := strings.Join(append(r.logs, r.errors...), "\n"); !strings.Contains(said, c.says) {
				t.Errorf("said %q, want it to contain %q", said, c.says)
			}
		})
	}
}

// TestSameBits: equal bits pass, of NaN too; zeros of two signs, other bits of NaN and other
// lengths do not.
func TestSameBits(t *testing.T) {
	odd := math.Float32frombits(0x7fc00001)
	for _, c := range []struct {
		got, want []float32
		says      string // "" passes
	}{
		{[]float32{1, odd, 0}, []float32{1, odd, 0}, ""},
		{[]float32{1, float32(math.Copysign(0, -1))}, []float32{1, 0}, "x: [1] is -0 (80000000), want exactly 0 (00000000)"},
		{[]float32{odd}, []float32{float32(math.NaN())}, "x: [0] is NaN (7fc00001)"},
		{[]float32{1}, []float32{1, 2}, "x: 1 values, want 2"},
	} {
		r := &recorder{TB: t}
		SameBits(r, "x", c.got, c.want)
		if said := strings.Join(r.errors, "\n"); (c.says == "") != (said == "") || !strings.HasPrefix(said, c.says) {
			t.Errorf("%v and %v: said %q, want %q", c.got, c.want, said, c.says)
		}
	}
}

func TestFailureListIsShort(t *testing.T) {
	r := &recorder{TB: t}
	CloseAbs(r, make([]float32, 1000), slices.Repeat([]float32{1}, 1000), 0.5)
	if len(r.errors) != 1 || strings.Count(r.errors[0], "got 0") != shown || !strings.Contains(r.errors[0], "1000 of 1000") {
		t.Errorf("want one error that counts 1000 and lists %d, got %q", shown, r.errors)
	}
}
