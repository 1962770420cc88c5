package kernel

import "math"

// int16Products are the routines of an isa for products of 16-bit integers.
// They hold operands in words as bf16Products do: with two values to a word, a
// word is a pair of int16, and sums are int32 in the storage of a float32; with
// one, both are float32.
//
// Values become integers of at most largest by a common factor, whose inverse,
// the value of the integer 1, is the unit. Numbers that are not finite make the
// unit NaN.
type int16Products struct {
	perWord int

	// packRows is that of bf16Products with a unit per column. In addition the
	// magnitudes of a column add up to at most largest/share, before rounding,
	// unless share is 0.
	packRows func(dst []float32, ldd int, units []float32, list []int32, src []float32, lds, n int, largest, share float32)

	// packCols is that of bf16Products with a unit per row.
	packCols func(dst []float32, ldd int, units []float32, list []int32, src []float32, lds, n int, largest float32)

	// mulRows and mulCols are those of isa on words, their results sums,
	// which are not added to what is there.
	mulRows mulRowsFunc
	mulCols mulColsFunc

	// unscale makes numbers of sums [rows, lanes]:
	//
	//	x = sums[i*lanes+j] * (byRow[i] * byLane[j])
	//	c[i*ldc+j] = x, or c[i*ldc+j]*keep[j] + x if keep is not nil
	unscale func(c []float32, ldc int, sums []float32, rows int, byRow, byLane, keep []float32)

	// peakFMA is isa.peakFMA for these products.
	peakFMA func(n int) (flops int)
}

// words is the number of words of n values.
func (p *int16Products) words(n int) int { return (n + p.perWord - 1) / p.perWord }

// integerProducts multiplies integers with the routines of an isa for float32.
func (l *isa) integerProducts() int16Products {
	return int16Products{
		perWord: 1, packRows: quantizeRowsPortable, packCols: quantizeColsPortable,
		mulRows: l.mulRows, mulCols: l.mulCols, unscale: unscalePortable, peakFMA: l.peakFMA,
	}
}

// largestInt16 is the largest magnitude of two operands of which n products add
// up to less than 2^31.
func largestInt16(n int) float32 {
	return float32(min(math.MaxInt16, int(math.Sqrt(math.MaxInt32/float64(n)))))
}

// quantum is the unit, and its inverse, that makes numbers of at most the
// magnitude with these bits integers of at most largest. It is that of 2^-100 for
// smaller ones, whose factor would be infinite.
func quantum(most uint32, largest float32) (factor, unit float32) {
	const infinity = 0x7f800000
	if most >= infinity {
		return 0, float32(math.NaN())
	}
	m := max(math.Float32frombits(most), 0x1p-100)
	return largest / m, m / largest
}

func magnitude(x float32) uint32 { return math.Float32bits(x) &^ (1 << 31) }

func roundToEven(x float32) float32 { return float32(math.RoundToEven(float64(x))) }

func quantizeRowsPortable(dst []float32, ldd int, units []float32, list []int32, src []float32, lds, n int, largest, share float32) {
	for j := range n {
		most, sum := uint32(0), float32(0)
		for _, row := range list {
			x := magnitude(src[int(row)*lds+j])
			most = max(most, x)
			sum += math.Float32frombits(x)
		}
		least := min(sum, math.MaxFloat32) * share
		factor, unit := quantum(max(most, magnitude(least)), largest)
		units[j] = unit
		for i, row := range list {
			dst[i*ldd+j] = roundToEven(src[int(row)*lds+j] * factor)
		}
	}
}

func quantizeColsPortable(dst []float32, ldd int, units []float32, list []int32, src []float32, lds, n int, largest float32) {
	for i, row := range list {
		from := src[int(row)*lds:][:n]
		most := uint32(0)
		for _, x := range from {
			most = max(most, magnitude(x))
		}
		factor, unit := quantum(most, largest)
		units[i] = unit
		for j, x := range from {
			dst[i*ldd+j] = roundToEven(x * factor)
		}
	}
}

func unscalePortable(c []float32, ldc int, sums []float32, rows int, byRow, byLane, keep []float32) {
	for i := range rows {
		to := c[i*ldc:][:lanes]
		for j, sum := range sums[i*lanes:][:lanes] {
			x := sum * float32(byRow[i]*byLane[j])
			if keep != nil {
				x += float32(to[j] * keep[j])
			}
			to[j] = x
		}
	}
}

// PeakFMAInt16 is PeakFMA for the products of Int16.
func PeakFMAInt16(n int) (flops int) { return n * active.int16.peakFMA(n) }
