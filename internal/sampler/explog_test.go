package sampler

import (
	"math"
	"math/rand/v2"
	"testing"
)

// ulps returns the distance of got from want in units of want's last place.
func ulps(got, want float64) float64 {
	unit := math.Nextafter(math.Abs(want), math.Inf(1)) - math.Abs(want)
	return math.Abs(got-want) / unit
}

func TestExp(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{
		{0, 1}, {math.Copysign(0, -1), 1}, {-1e-300, 1}, {-709, 0}, {-1e300, 0}, {math.Inf(-1), 0},
	} {
		if got := exp(c.x); got != c.want {
			t.Errorf("exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		x := -rng.Float64() * math.Pow(10, 4*rng.Float64()-1.2)
		// math.Exp is within 1 unit.
		if got, want := exp(x), math.Exp(x); x >= -708 && ulps(got, want) > 3 {
			t.Fatalf("exp(%v) = %v, want %v: %v units away", x, got, want, ulps(got, want))
		}
	}
}

func TestLog(t *testing.T) {
	for _, c := range []struct{ x, want float64 }{
		{1, 0}, {0, math.Inf(-1)}, {math.Inf(1), math.Inf(1)},
	} {
		if got := log(c.x); got != c.want {
			t.Errorf("log(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200_000 {
		x := math.Exp(1400*rng.Float64() - 700)
		switch i % 3 {
		case 0:
			x = 0.25 + 3*rng.Float64()
		case 1: // next to 1, where the result is small
			x = 1 - math.Exp(-36*rng.Float64())
		}
		if got, want := log(x), math.Log(x); x > 0 && ulps(got, want) > 3 {
			t.Fatalf("log(%v) = %v, want %v: %v units away", x, got, want, ulps(got, want))
		}
	}
}

func TestGumbelIsFiniteButAtZero(t *testing.T) {
	if got := gumbel(0); !math.IsInf(got, -1) {
		t.Errorf("gumbel(0) = %v, want -Inf", got)
	}
	if got := gumbel(0x1p-53); math.Abs(got+3.604) > 1e-3 {
		t.Errorf("gumbel(2^-53) = %v, want -3.604", got)
	}
	if got := gumbel(1 - 0x1p-53); math.Abs(got-36.737) > 1e-3 {
		t.Errorf("gumbel(1 - 2^-53) = %v, want 36.737", got)
	}
}
