package sampler

import "math"

// ln 2 in two parts: the first has so few bits that its product with an exponent
// is exact.
const (
	ln2Hi = 0x1.62e42feep-1
	ln2Lo = 0x1.a39ef35793c76p-33
	log2e = 0x1.71547652b82fep0
)

// Adding shift rounds to an integer: numbers of that size have no fraction bits.
const shift = 0x1.8p52

// exp returns e**x for x <= 0 to within 2 units in the last place, bit for bit the
// same on every platform. Results below the smallest normal number are zero.
func exp(x float64) float64 {
	if x < -708 {
		return 0
	}
	shifted := float64(x*log2e) + shift // the bits of its fraction are those of k
	k := shifted - shift
	r := x - float64(k*ln2Hi) - float64(k*ln2Lo) // |r| <= ln 2 / 2

	// Taylor series up to r^13/13!; the next term is below 2^-57. Summing in pairs
	// keeps the chain of dependent operations short.
	r2 := float64(r * r)
	r4 := float64(r2 * r2)
	y0 := (1 + r) + float64(r2*(1.0/2+float64(r*(1.0/6))))
	y4 := (1.0/24 + float64(r*(1.0/120))) + float64(r2*(1.0/720+float64(r*(1.0/5040))))
	y8 := (1.0/40320 + float64(r*(1.0/362880))) + float64(r2*(1.0/3628800+float64(r*(1.0/39916800))))
	y12 := 1.0/479001600 + float64(r*(1.0/6227020800))
	y := y0 + float64(r4*(y4+float64(r4*(y8+float64(r4*y12)))))

	return y * math.Float64frombits((math.Float64bits(shifted)+1023)<<52) // y * 2^k
}

// log returns the natural logarithm of x to within 2 units in the last place, bit
// for bit the same on every platform. log(0) is -Inf and log(+Inf) is +Inf;
// other x must be positive and not subnormal.
func log(x float64) float64 {
	if x == 0 {
		return math.Inf(-1)
	}
	if math.IsInf(x, 1) {
		return x
	}
	// x = m 2^k with m in [sqrt(1/2), sqrt(2)): counting exponents from the bits of
	// sqrt(1/2) takes no branch, which random x would mispredict.
	const sqrtHalf = 0x3fe6a09e667f3bcd
	exponent := (math.Float64bits(x) - sqrtHalf) &^ (1<<52 - 1)
	k := float64(int64(exponent) >> 52)
	m := math.Float64frombits(math.Float64bits(x) - exponent)

	// ln m = 2 artanh s = 2s (1 + z/3 + z^2/5 + ...) with |s| <= 0.1716; the first
	// term left out is below 2^-57 of the sum.
	s := (m - 1) / (m + 1)
	z := float64(s * s)
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
	y *= z
	return float64(k*ln2Hi) + (2*s + (float64(2*s*y) + float64(k*ln2Lo)))
}
