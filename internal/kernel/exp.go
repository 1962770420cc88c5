package kernel

import "math"

// expMin is the smallest argument with an exponential that is not flushed to
// zero. Results below it would be subnormal, which costs a slow path of the
// processor for every operation and adds nothing to a sum with a term of 1.
// expMax is the largest with a finite one.
const (
	expMin = -87.68 // -126.5 ln2: 2^n is subnormal for n = -127
	expMax = 88

	// ln2High has few enough bits that its product with an exponent is exact.
	ln2High = 0.693359375
	ln2Low  = -2.12194440054690583e-4

	// expRound added to and subtracted from a float32 rounds it to an integer,
	// and leaves that integer in the low bits of the sum: 1.5 * 2^23.
	expRound = 12582912
)

// expPoly are the coefficients of a polynomial for e^r, r in [-ln2/2, ln2/2],
// constant term first: the interpolation at the seven Chebyshev nodes of that
// interval. With coefficients rounded to float32 its relative error is 2e-8. The
// generator of the assembly has the same numbers.
var expPoly = [...]float32{
	1, 1.000000038, 0.5000000047, 0.1666641551, 0.0416663529, 0.008375126398, 0.001394110843,
}

// exp32 is e^x within 2e-7 relative, 0 for x < expMin and +Inf for x > expMax.
// NaN gives NaN.
//
// x = n ln2 + r with an integer n, so e^x = 2^n e^r.
func exp32(x float32) float32 {
	if x < expMin {
		return 0
	}
	if !(x <= expMax) {
		return x * float32(math.Inf(1)) // NaN or +Inf
	}
	t := float32(x*math.Log2E) + expRound
	n := t - expRound
	r := float32(x-float32(n*ln2High)) - float32(n*ln2Low)
	p := expPoly[6]
	p = p*r + expPoly[5]
	p = p*r + expPoly[4]
	p = p*r + expPoly[3]
	p = p*r + expPoly[2]
	p = p*r + expPoly[1]
	p = p*r + expPoly[0]
	return p * math.Float32frombits((math.Float32bits(t)+127)<<23)
}
