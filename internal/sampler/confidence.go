package sampler

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/lmhead"
)

func checkRounding(r lmhead.Rounding) error {
	switch r {
	case "", lmhead.Float32, lmhead.BFloat16, lmhead.Float64:
		return nil
	}
	return fmt.Errorf("sampler: confidence_dtype %q: want %q, %q or %q", r, lmhead.Float32, lmhead.BFloat16, lmhead.Float64)
}

// round returns the nearest number to x in the format of r.
func round(r lmhead.Rounding, x float64) float64 {
	switch r {
	case lmhead.Float64:
		return x
	case lmhead.BFloat16:
		return float64(bf16.ToFloat32(bf16.FromFloat32(float32(x))))
	}
	return float64(float32(x))
}

// margin returns the probability of best minus the largest other one.
func margin(r lmhead.Rounding, p []float64, best int) float64 {
	second := 0.0
	for v, x := range p {
		if v != best {
			second = max(second, x)
		}
	}
	return round(r, round(r, p[best])-round(r, second))
}

// negativeEntropy returns the sum of p ln(p + 1e-10), which is larger (nearer 0) the
// more certain p is. Like the reference it rounds every term.
func negativeEntropy(r lmhead.Rounding, p []float64) float64 {
	var l lanes
	for v, x := range p {
		if x = round(r, x); x > 0 {
			ln := round(r, log(round(r, x+1e-10)))
			l[v%len(l)] += round(r, float64(x*ln))
		}
	}
	return round(r, l.total())
}
