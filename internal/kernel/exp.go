package kernel

import "math"

// expMin is the smallest argument of a power of 2 that is not flushed to zero.
// Results below it would be subnormal, which costs a slow path of the processor
// for every operation and adds nothing to a sum with a term of 1.
const expMin = -126

// expPoly are the coefficients of a polynomial for 2^r, r in [0, 1], constant
// term first: the interpolation at Chebyshev nodes stretched such that both ends
// are nodes. Its relative error is 1.2e-7, and 0 at 0. The generator of the
// assembly has the same numbers.
var expPoly = [...]float32{1, 0.6931527868, 0.2401489562, 0.05584989256, 0.00895402729, 0.001894337083}

// expRound added to and subtracted from a float32 rounds it to an integer, and
// leaves that integer in the low bits of the sum: 1.5 * 2^23.
const expRound = 12582912

// exp2 is 2^x within 3e-7 relative for x <= 0, and 0 for x < expMin. NaN gives NaN.
func exp2(x float32) float32 {
	if x < expMin {
		return 0
	}
	if x != x {
		return x
	}
	t := float32(x-0.5) + expRound
	return scaledPoly(x-(t-expRound), t)
}

// exp32 is e^x within 4e-7 relative, 0 where that is subnormal and +Inf for
// x > 88. NaN gives NaN.
func exp32(x float32) float32 {
	// ln2High has few enough bits that its product with an exponent is exact.
	const ln2High, ln2Low = 0.693359375, -2.12194440054690583e-4
	if x < expMin*math.Ln2 {
		return 0
	}
	if !(x <= 88) {
		return x * float32(math.Inf(1)) // NaN or +Inf
	}
	t := float32(x*math.Log2E) - 0.5 + expRound
	n := t - expRound
	r := float32(x-float32(n*ln2High)) - float32(n*ln2Low)
	return scaledPoly(r*math.Log2E, t)
}

// scaledPoly is 2^(n+r) with n in the low bits of t.
func scaledPoly(r, t float32) float32 {
	p := expPoly[5]
	p = p*r + expPoly[4]
	p = p*r + expPoly[3]
	p = p*r + expPoly[2]
	p = p*r + expPoly[1]
	p = p*r + expPoly[0]
	return p * math.Float32frombits((math.Float32bits(t)+127)<<23)
}
