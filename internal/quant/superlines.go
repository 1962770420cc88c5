package quant

import "math"

// superLines is what a Q4_K or Q5_K block says of 256 elements: codes, and for each 32 of
// them a line, whose scale and minimum are 6-bit multiples of two binary16.
type superLines struct {
	d, dmin        float64
	scale, minimum [8]byte
	codes          [256]byte
}

// mostScale is the largest 6-bit scale or minimum.
const mostScale = 63

// encodeSuperLines finds a line for each 32 elements and units for the lines, and then what
// multiples of the units, and what units, have the least squared error.
func encodeSuperLines(src []float64, last int) *superLines {
	var lines [8]line
	var scale, minimum float64
	for b := range lines {
		lines[b] = searchLine(src[32*b:][:32], last, true)
		scale, minimum = max(scale, lines[b].scale), max(minimum, -lines[b].least)
	}
	best := &superLines{d: toHalf(scale / mostScale), dmin: toHalf(minimum / mostScale)}
	if math.IsInf(best.d, 0) || math.IsInf(best.dmin, 0) { // checkDecoded reports it
		return best
	}
	for b, l := range lines {
		best.scale[b], best.minimum[b] = multiple(l.scale, best.d), multiple(-l.least, best.dmin)
	}
	sums, saved := best.improve(src, last)
	for range maxUnits {
		next := *best
		next.fitUnits(sums)
		s, v := next.improve(src, last)
		if v <= saved {
			break
		}
		*best, sums, saved = next, s, v
	}
	for b := range 8 {
		lineCodes(best.codes[32*b:][:32], src[32*b:][:32], best.line(b), last)
	}
	return best
}

// maxUnits bounds the steps from codes to units and back.
const maxUnits = 1

// multiple is the 6-bit multiple of unit that is nearest to x, which is not negative.
func multiple(x, unit float64) byte {
	return nearestCode(min(x*reciprocal(unit), mostScale), mostScale)
}

func (s *superLines) line(b int) line {
	return line{s.d * float64(s.scale[b]), -s.dmin * float64(s.minimum[b])}
}

// improve gives each line the best of its neighbours, and returns the sums with it and how
// much the squared error is below the sum of squares.
func (s *superLines) improve(src []float64, last int) (sums [8]lineSums, total float64) {
	for b := range 8 {
		x, saved := src[32*b:][:32], math.Inf(-1)
		scale, minimum, elements := int(s.scale[b]), int(s.minimum[b]), 0.0
		for _, e := range x {
			elements += e
		}
		for i := max(scale-1, 0); i <= min(scale+1, mostScale); i++ {
			for j := max(minimum-1, 0); j <= min(minimum+1, mostScale); j++ {
				l := line{s.d * float64(i), -s.dmin * float64(j)}
				t := sumLine(x, elements, l.least, reciprocal(l.scale), last)
				if v := t.saved(l); v > saved {
					sums[b], saved = t, v
					s.scale[b], s.minimum[b] = byte(i), byte(j)
				}
			}
		}
		total += saved
	}
	return sums, total
}

// fitUnits sets the units to those with the least squared error for the codes, scales and
// minima of the sums.
func (s *superLines) fitUnits(sums [8]lineSums) {
	var dd, dm, mm, xd, xm float64
	for b, t := range sums {
		i, j := float64(s.scale[b]), float64(s.minimum[b])
		dd += i * i * t.qq
		dm += i * j * t.q
		mm += j * j * t.n
		xd += i * t.xq
		xm -= j * t.x
	}
	switch det := dd*mm - dm*dm; {
	case det > 0:
		s.d, s.dmin = max(toHalf((xd*mm+xm*dm)/det), 0), max(toHalf((xm*dd+xd*dm)/det), 0)
	case dd > 0 && mm == 0:
		s.d = max(toHalf(xd/dd), 0)
	}
}
