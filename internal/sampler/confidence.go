package sampler

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/bf16"
)

// DType is the number format that confidences are rounded to. It decides which of
// them are equal, and so the order in which positions are filled: in bfloat16 every
// probability above 0.998 is 1.
type DType string

// The formats: float32 is the default; bfloat16 is what the references use when
// the model runs in it; float64 is what older LLaDA code and Fast-dLLM use.
const (
	Float32  DType = "f32"
	BFloat16 DType = "bf16"
	Float64  DType = "f64"
)

func (d DType) check() error {
	switch d {
	case "", Float32, BFloat16, Float64:
		return nil
	}
	return fmt.Errorf("sampler: confidence_dtype %q: want %q, %q or %q", d, Float32, BFloat16, Float64)
}

// round returns x as the format holds it.
func (d DType) round(x float64) float64 {
	switch d {
	case Float64:
		return x
	case BFloat16:
		return float64(bf16.ToFloat32(bf16.FromFloat32(float32(x))))
	}
	return float64(float32(x))
}

// margin returns the probability of best minus the largest other one.
func (d DType) margin(p []float64, best int) float64 {
	second := 0.0
	for v, x := range p {
		if v != best {
			second = max(second, x)
		}
	}
	return d.round(d.round(p[best]) - d.round(second))
}

// negativeEntropy returns the sum of p ln(p + 1e-10), which is larger (nearer 0) the
// surer p is. Like the reference it rounds every term.
func (d DType) negativeEntropy(p []float64) float64 {
	var l lanes
	for v, x := range p {
		if x = d.round(x); x > 0 {
			ln := d.round(log(d.round(x + 1e-10)))
			l[v%len(l)] += d.round(float64(x * ln))
		}
	}
	return d.round(l.total())
}
