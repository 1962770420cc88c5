package kernel

import (
	"encoding/binary"
	"math"

	"github.com/pulsecol/pulsecol/internal/quant"
)

// codeProducts are the routines of an isa for quantized weights, whose elements are
// codes with scales and minima, see quant.Form.
//
// Codes are held in words, which have the Go type of a float32: four neighbours of a row
// of weights, the first in the lowest byte. A panel of codes is [n/4, lanes] words of n
// inputs, its scales are [n/Group, lanes] and its minima [n/32, lanes].
//
// Inputs of products are held in blocks of 32: eight words of four signed bytes each, the
// value of the byte 1, and, negated, the sum of all bytes, of the first 16 and of the last
// 16 as int32. Block b of row i is
//
//	x[i/codeRows*ldx+(b*codeRows+i%codeRows)*blockWords:][:blockWords]
//
// so that rows that are multiplied at a time are read in order.
type codeProducts struct {
	// unpack is quant.DType.Unpack of n blocks of each of so many rows, which are stride bytes apart. It may
	// fetch blocks that are ahead bytes from these.
	unpack func(t quant.DType, codes []byte, scales, minima []float32, blocks []byte, rows, stride, n, ahead int)

	// expand makes weights dst [n, lanes] of a panel of codes, n a multiple of 32. Products of a code
	// and its scale are exact: binary16 numbers and factors have few bits.
	expand func(f quant.Form, dst, codes, scales, minima []float32, n int)

	// roundBlocks makes the blocks of one row, of which the first is at dst, of 32 numbers each. A number that is not finite makes
	// the value of the byte 1 NaN.
	roundBlocks func(dst, src []float32, blocks int)

	// mulBlocks computes y = x w, or y += x w if accumulate is set, for rows rows of inputs, a
	// positive multiple of codeRows, and a panel of weights:
	//
	//	for every row i and lane j, and every group of inputs that share a scale, in order:
	//		part := float32(sum of (code - Offset) * byte) * scale
	//		part = fma(sum of bytes, minimum, part) if there are Minima
	//		y[i*ldy+j] = fma(part, value of the byte 1, y[i*ldy+j])
	//
	// Sums are exact, and fma rounds once to float32.
	mulBlocks func(f quant.Form, y []float32, ldy int, x []float32, ldx, rows, blocks int, codes, scales, minima []float32, accumulate bool)

	// peak is isa.peakFMA for these products: a product of bytes with its addition counts as two operations.
	peak func(n int) (flops int)
}

const (
	// blockInputs is the number of inputs that share a factor, blockWords the words of
	// their block.
	blockInputs = 32
	blockWords  = blockInputs/4 + 4

	unitWord = blockInputs / 4
	sumWord  = unitWord + 1

	// codeRows is the number of rows that mulBlocks computes at a time.
	codeRows = 4
)

var portableCodes = codeProducts{
	unpack:      unpackPortable,
	expand:      expandPortable,
	roundBlocks: roundBlocksPortable,
	mulBlocks:   mulBlocksPortable,
	peak:        peakCodesPortable,
}

// unpackPortable leaves fetching to the hardware.
func unpackPortable(t quant.DType, codes []byte, scales, minima []float32, blocks []byte, rows, stride, n, _ int) {
	f, in := t.Form(), n*t.Block()
	for i := range rows {
		var least []float32
		if f.Minima {
			least = minima[i*in/quant.MinimumGroup:]
		}
		t.Unpack(codes[i*in:], scales[i*in/f.Group:], least, blocks[i*stride:], n)
	}
}

func expandPortable(f quant.Form, dst, codes, scales, minima []float32, n int) {
	for i := range n {
		scale := scales[i/f.Group*lanes:][:lanes]
		words := codes[i/4*lanes:][:lanes]
		row := dst[i*lanes:][:lanes]
		for j, w := range words {
			row[j] = scale[j] * float32(int(math.Float32bits(w)>>(8*(i%4))&255)-f.Offset)
		}
		if f.Minima {
			for j, m := range minima[i/quant.MinimumGroup*lanes:][:lanes] {
				row[j] += m
			}
		}
	}
}

func roundBlocksPortable(dst, src []float32, blocks int) {
	for b := range blocks {
		block, from := dst[b*codeRows*blockWords:][:blockWords], src[b*blockInputs:][:blockInputs]
		most := uint32(0)
		for _, x := range from {
			most = max(most, magnitude(x))
		}
		factor, unit := quantum(most, math.MaxInt8)
		var bytes [blockInputs]byte
		var sums [2]int32 // of the halves
		if unit == unit {
			for i, x := range from {
				rounded := int8(roundToEven(x * factor))
				bytes[i] = byte(rounded)
				sums[i/16] -= int32(rounded)
			}
		}
		for i := range blockInputs / 4 {
			block[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
		}
		block[unitWord] = unit
		block[sumWord] = math.Float32frombits(uint32(sums[0] + sums[1]))
		block[sumWord+1] = math.Float32frombits(uint32(sums[0]))
		block[sumWord+2] = math.Float32frombits(uint32(sums[1]))
	}
}

func mulBlocksPortable(f quant.Form, y []float32, ldy int, x []float32, ldx, rows, blocks int, codes, scales, minima []float32, accumulate bool) {
	for i := range rows {
		row := y[i*ldy:][:lanes]
		if !accumulate {
			clear(row)
		}
		for b := range blocks {
			block := x[i/codeRows*ldx+(b*codeRows+i%codeRows)*blockWords:][:blockWords]
			unit, words := block[unitWord], codes[b*blockInputs/4*lanes:][:blockInputs/4*lanes]
			groups, at := 1, sumWord
			if f.Group < blockInputs {
				groups, at = 2, sumWord+1
			}
			sums := [2]int32{} // of inputs, negated
			for g := range groups {
				sums[g] = int32(math.Float32bits(block[at+g]))
			}
			for j := range lanes {
				for g := range groups {
					part := float32(dot(block, words[j:], 8/groups*g, 8/groups*(g+1))+int32(f.Offset)*sums[g]) *
						scales[(b*groups+g)*lanes+j]
					if f.Minima {
						part = fma32(float32(-sums[g]), minima[b*lanes+j], part)
					}
					row[j] = fma32(part, unit, row[j])
				}
			}
		}
	}
}

// dot is the sum of the products of words [from, to) of a block of inputs and of a lane of
// codes.
func dot(inputs, codes []float32, from, to int) (sum int32) {
	for k := from; k < to; k++ {
		x, w := math.Float32bits(inputs[k]), math.Float32bits(codes[k*lanes])
		sum += int32(int8(x))*int32(w&255) + int32(int8(x>>8))*int32(w>>8&255) +
			int32(int8(x>>16))*int32(w>>16&255) + int32(int8(x>>24))*int32(w>>24)
	}
	return sum
}

// fma32 is x y + z, rounded once.
func fma32(x, y, z float32) float32 {
	p := float64(x) * float64(y) // exact
	s := p + float64(z)
	// Rounding s again is wrong where s is half way between two float32 only because it
	// was rounded. If its last bit is odd, it is not half way: make it odd unless s is exact.
	t := s - p
	rest := (p - (s - t)) + (float64(z) - t)
	bits := math.Float64bits(s)
	if rest != 0 && bits&1 == 0 && !math.IsInf(s, 0) && s == s {
		if (rest > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
	}
	return float32(math.Float64frombits(bits))
}

// peakCodesPortable counts the products of one block of inputs.
func peakCodesPortable(n int) (flops int) {
	var block, codes [blockInputs / 4 * lanes]float32
	for range n {
		dot(block[:], codes[:], 0, blockInputs/4)
	}
	return 2 * blockInputs
}

// PeakInt8 is PeakFMA for the products of Int8.
func PeakInt8(n int) (flops int) { return n * active.codes.peak(n) }
