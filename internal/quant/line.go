package quant

import "math"

// line gives codes evenly spaced values: least + scale*code.
type line struct{ scale, least float64 }

// lineSums are the sums over elements x and their codes q.
type lineSums struct {
	n, x, q, xq, qq float64
}

// best is the line with the least squared error for these codes. Negative: of the lines
// whose least value is not above 0.
func (s lineSums) best(negative bool) line {
	if det := s.n*s.qq - s.q*s.q; det > 0 {
		l := line{(s.n*s.xq - s.x*s.q) / det, (s.qq*s.x - s.q*s.xq) / det}
		if l.least <= 0 || !negative {
			return l
		}
	}
	// All codes are equal, or the line goes through 0.
	switch {
	case negative && s.qq > 0 && s.xq > 0:
		return line{s.xq / s.qq, 0}
	case negative:
		return line{0, min(0, s.x/s.n)}
	}
	return line{0, s.x / s.n}
}

// saved is how much a line's squared error is below the sum of squares.
func (s lineSums) saved(l line) float64 {
	return l.scale*(2*s.xq-l.scale*s.qq) + l.least*(2*s.x-2*l.scale*s.q-l.least*s.n)
}

// sumLine sums over the codes that are nearest to (x-least)*inverse. total is the sum of x.
func sumLine(x []float64, total, least, inverse float64, last int) lineSums {
	s := lineSums{n: float64(len(x)), x: total}
	codes, squares := 0, 0
	for _, e := range x {
		q := min(max(int(float64((e-least)*inverse)+0.5), 0), last)
		codes += q
		squares += q * q
		s.xq += e * float64(q)
	}
	s.q, s.qq = float64(codes), float64(squares)
	return s
}

// searchLine returns the line with about the least squared error for codes of 0 to last:
// the best of those of a number of slopes from the least element on, refined by the codes
// that each line gives. Negative: see lineSums.best.
func searchLine(x []float64, last int, negative bool) line {
	least, most, total := math.Inf(1), math.Inf(-1), 0.0
	for _, e := range x {
		least, most, total = min(least, e), max(most, e), total+e
	}
	if negative {
		least = min(least, 0)
		if most <= least {
			return line{0, least}
		}
	}
	if most == least {
		return line{0, least}
	}
	var best line
	saved := math.Inf(-1)
	try := func(s lineSums) bool {
		l := s.best(negative)
		if v := s.saved(l); v > saved {
			best, saved = l, v
			return true
		}
		return false
	}
	for _, share := range lineSpread {
		try(sumLine(x, total, least, float64(last)*share/(most-least), last))
	}
	for range maxRefinements {
		if best.scale <= 0 || !try(sumLine(x, total, best.least, 1/best.scale, last)) {
			break
		}
	}
	return best
}

// lineCodes writes the codes of elements on a line.
func lineCodes(dst []byte, x []float64, l line, last int) {
	inverse := reciprocal(l.scale)
	for i, e := range x {
		dst[i] = nearestCode((e-l.least)*inverse, last)
	}
}
