package decode

import "math"

// ln 2 in two parts: the first has so few bits that its product with an exponent
// is exact.
const (
	ln2Hi = 0x1.62e42feep-1
	ln2Lo = 0x1.a39ef35793c76p-33
	log2e = 0x1.71547652b82fep0
)

// exp returns e**x for x <= 0 to within 2 units in the last place, bit for bit the
// same on every platform. Results below the smallest normal number are zero.
func exp(x float64) float64 {
	if x < -708 {
		return 0
	}
	k := math.Floor(float64(x*log2e) + 0.5)
	r := x - float64(k*ln2Hi) - float64(k*ln2Lo) // |r| <= ln 2 / 2

	// Taylor series; the first term left out is below 2^-57.
	y := 1.0 / 6227020800
	y = float64(y*r) + 1.0/479001600
	y = float64(y*r) + 1.0/39916800
	y = float64(y*r) + 1.0/3628800
	y = float64(y*r) + 1.0/362880
	y = float64(y*r) + 1.0/40320
	y = float64(y*r) + 1.0/5040
	y = float64(y*r) + 1.0/720
	y = float64(y*r) + 1.0/120
	y = float64(y*r) + 1.0/24
	y = float64(y*r) + 1.0/6
	y = float64(y*r) + 1.0/2
	y = float64(y*r) + 1
	y = float64(y*r) + 1
	return y * math.Float64frombits(uint64(1023+int64(k))<<52)
}

// log returns the natural logarithm of x >= 0 to within 2 units in the last place,
// bit for bit the same on every platform. log(0) is -Inf, log(+Inf) is +Inf.
func log(x float64) float64 {
	if x == 0 {
		return math.Inf(-1)
	}
	if math.IsInf(x, 1) {
		return x
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	// ln m = 2 artanh s with |s| <= 0.1716; the first term left out is below 2^-57
	// of the sum.
	s := (m - 1) / (m + 1)
	z := s * s
	y := 1.0 / 21
	y = float64(y*z) + 1.0/19
	y = float64(y*z) + 1.0/17
	y = float64(y*z) + 1.0/15
	y = float64(y*z) + 1.0/13
	y = float64(y*z) + 1.0/11
	y = float64(y*z) + 1.0/9
	y = float64(y*z) + 1.0/7
	y = float64(y*z) + 1.0/5
	y = float64(y*z) + 1.0/3
	y = float64(y * z)
	k := float64(e)
	return float64(k*ln2Hi) + (2*s + (float64(2*s*y) + float64(k*ln2Lo)))
}
