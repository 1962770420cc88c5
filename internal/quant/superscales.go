package quant

import "math"

// superScales is what a Q6_K or IQ4_XS block says of 256 elements: codes, and for each
// group of them a scale, which is an integer multiple of a binary16.
type superScales struct {
	d      float64
	scales []int
	codes  [256]byte
}

// encodeSuperScales finds a scale for each group and a unit for the scales, and then what
// multiples of the unit, of least to -least-1, and what unit, have the least squared error.
func encodeSuperScales(src []float64, l levels, spread []float64, groups, least int) *superScales {
	size := len(src) / groups
	group := func(g int) []float64 { return src[g*size:][:size] }
	scales, extreme := make([]float64, groups), 0.0
	for g := range scales {
		if scales[g] = l.search(group(g), spread); math.Abs(scales[g]) > math.Abs(extreme) {
			extreme = scales[g]
		}
	}
	best := &superScales{d: toHalf(extreme / float64(least)), scales: make([]int, groups)}
	if math.IsInf(best.d, 0) { // checkDecoded reports it
		return best
	}
	for g, s := range scales {
		t := min(max(s*reciprocal(best.d), float64(least)), float64(-least-1))
		best.scales[g] = int(math.RoundToEven(t))
	}
	fits := make([]fit, groups)
	// improve gives each group the best of the neighbours of its scale, and returns how much
	// the squared error is below the sum of squares.
	improve := func(s *superScales) (total float64) {
		for g := range s.scales {
			saved, middle := math.Inf(-1), s.scales[g]
			for i := max(middle-1, least); i <= min(middle+1, -least-1); i++ {
				scale := s.d * float64(i)
				f := l.fit(group(g), reciprocal(scale))
				if v := f.saved(scale); v > saved {
					fits[g], s.scales[g], saved = f, i, v
				}
			}
			total += saved
		}
		return total
	}
	saved := improve(best)
	for range maxUnits {
		var all fit
		for g, i := range best.scales {
			all.xv += float64(i) * fits[g].xv
			all.vv += float64(i*i) * fits[g].vv
		}
		next := &superScales{d: toHalf(all.scale()), scales: append([]int(nil), best.scales...)}
		v := improve(next)
		if v <= saved {
			break
		}
		best, saved = next, v
	}
	for g, i := range best.scales {
		l.codes(best.codes[g*size:][:size], group(g), best.d*float64(i))
	}
	return best
}
