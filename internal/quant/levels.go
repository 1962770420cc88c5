package quant

import "math"

// levels are the values that the codes of a type select, before they are multiplied by a
// scale: code-bias for code 0 to 2*bias-1, or the uneven values if bias is 0.
type levels struct{ bias int }

// ends are the values of the first and the last code.
func (l levels) ends() (low, high float64) {
	if l.bias == 0 {
		return float64(uneven[0]), float64(uneven[len(uneven)-1])
	}
	return float64(-l.bias), float64(l.bias - 1)
}

// value is what a code selects.
func (l levels) value(code byte) float64 {
	if l.bias == 0 {
		return float64(uneven[code])
	}
	return float64(int(code) - l.bias)
}

// nearest is the code whose value is nearest to t, which is less than 2^31 in magnitude.
func (l levels) nearest(t float64) byte {
	if l.bias == 0 {
		return nearestUneven(t)
	}
	return nearestCode(t+float64(l.bias), 2*l.bias-1)
}

// nearestCode is the integer of 0 to last that is nearest to t.
func nearestCode(t float64, last int) byte {
	return byte(min(max(int(t+0.5), 0), last))
}

// fit are the sums that say how well multiples of values fit elements.
type fit struct {
	xv float64 // sum of element times value
	vv float64 // sum of squared values
}

// scale is the factor of the values with the least squared error.
func (f fit) scale() float64 {
	if f.vv == 0 {
		return 0
	}
	return f.xv / f.vv
}

// gain is how much the squared error is below the sum of squares with that factor.
func (f fit) gain() float64 { return f.scale() * f.xv }

// saved is the same with another factor.
func (f fit) saved(d float64) float64 { return d * (2*f.xv - d*f.vv) }

// fit fits the values that are nearest to the elements times inverse.
//
// The elements are float32: their products with values are exact, so the compiler may fuse
// products and sums.
func (l levels) fit(x []float64, inverse float64) (f fit) {
	if l.bias == 0 {
		for _, e := range x {
			v := float64(uneven[nearestUneven(e*inverse)])
			f.xv += e * v
			f.vv += v * v
		}
		return f
	}
	bias, squares := l.bias, 0
	half, last := float64(bias)+0.5, 2*bias-1
	for _, e := range x {
		v := min(max(int(float64(e*inverse)+half), 0), last) - bias
		f.xv += e * float64(v)
		squares += v * v
	}
	f.vv = float64(squares)
	return f
}

// codes writes the codes of elements of a scale.
func (l levels) codes(dst []byte, x []float64, scale float64) {
	inverse := reciprocal(scale)
	for i, e := range x {
		dst[i] = l.nearest(e * inverse)
	}
}

// reciprocal is 1/x, or 0 where that is no finite number: every element then has the code
// of 0.
func reciprocal(x float64) float64 {
	if r := 1 / x; r-r == 0 {
		return r
	}
	return 0
}

// search returns the scale with which the nearest values have about the least squared
// error: the best of scales that bring the largest element to either end of the values or
// near it, and then of what the codes of each scale make the best scale.
func (l levels) search(x []float64, spread []float64) float64 {
	extreme := float64(0)
	for _, e := range x {
		if math.Abs(e) > math.Abs(extreme) {
			extreme = e
		}
	}
	if extreme == 0 {
		return 0
	}
	low, high := l.ends()
	var best fit
	gain := -1.0
	for _, end := range []float64{low, high} {
		for _, share := range spread {
			if f := l.fit(x, end*share/extreme); f.gain() > gain {
				best, gain = f, f.gain()
			}
		}
	}
	for range maxRefinements {
		f := l.fit(x, reciprocal(best.scale()))
		if f.gain() <= gain {
			break
		}
		best, gain = f, f.gain()
	}
	return best.scale()
}

// maxRefinements bounds the steps from codes to a scale and back. Almost all elements keep
// their codes after two or three.
const maxRefinements = 4
