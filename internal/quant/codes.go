package quant

import "encoding/binary"

// Form says how a quantized type makes elements of codes, which are bytes:
//
//	x = scale * (code - Offset)
//	x = scale * code + minimum    with Minima
//
// 32 consecutive elements share a minimum.
type Form struct {
	Offset int
	Group  int // of consecutive elements that share a scale: 32 or 16
	Minima bool
}

// MinimumGroup is the number of elements that share a minimum, and the smallest block.
const MinimumGroup = 32

var forms = [...]Form{
	Q8_0:   {Offset: 128, Group: 32},
	Q4_0:   {Offset: 8, Group: 32},
	Q4_1:   {Minima: true, Group: 32},
	Q5_0:   {Offset: 16, Group: 32},
	Q5_1:   {Minima: true, Group: 32},
	Q4_K:   {Minima: true, Group: 32},
	Q5_K:   {Minima: true, Group: 32},
	Q6_K:   {Offset: 32, Group: 16},
	IQ4_NL: {Offset: 128, Group: 32},
	IQ4_XS: {Offset: 128, Group: 32},
}

// Form is that of a quantized type.
func (t DType) Form() Form { return forms[t] }

var unpackers = [...]func(codes []byte, scales, minima []float32, block []byte){
	Q8_0: unpackQ8_0, Q4_0: unpackQ4_0, Q4_1: unpackQ4_1, Q5_0: unpackQ5_0, Q5_1: unpackQ5_1,
	Q4_K: unpackQ4_K, Q5_K: unpackQ5_K, Q6_K: unpackQ6_K, IQ4_NL: unpackIQ4_NL, IQ4_XS: unpackIQ4_XS,
}

// Unpack takes n blocks apart: a code for every element, and the scales and minima of
// their groups. Without minima in the Form, minima is not written.
func (t DType) Unpack(codes []byte, scales, minima []float32, blocks []byte, n int) {
	f, elements, size := forms[t], t.Block(), t.BlockBytes()
	for b := range n {
		least := minima
		if f.Minima {
			least = minima[b*elements/MinimumGroup:]
		}
		unpackers[t](codes[b*elements:][:elements], scales[b*elements/f.Group:], least, blocks[b*size:][:size])
	}
}

// nibbles are the codes of 32 elements of four bits in 16 bytes.
func nibbles(codes, q []byte) {
	for i, b := range q[:16] {
		codes[i], codes[i+16] = b&15, b>>4
	}
}

// addFifth sets the fifth bits of 32 codes.
func addFifth(codes []byte, high uint32) {
	for i := range 32 {
		codes[i] |= byte(high>>i&1) << 4
	}
}

func unpackQ8_0(codes []byte, scales, _ []float32, block []byte) {
	scales[0] = half(block)
	for i, q := range block[2:34] {
		codes[i] = q ^ 0x80
	}
}

func unpackQ4_0(codes []byte, scales, _ []float32, block []byte) {
	scales[0] = half(block)
	nibbles(codes, block[2:])
}

func unpackQ4_1(codes []byte, scales, minima []float32, block []byte) {
	scales[0], minima[0] = half(block), half(block[2:])
	nibbles(codes, block[4:])
}

func unpackQ5_0(codes []byte, scales, _ []float32, block []byte) {
	scales[0] = half(block)
	nibbles(codes, block[6:])
	addFifth(codes, binary.LittleEndian.Uint32(block[2:]))
}

func unpackQ5_1(codes []byte, scales, minima []float32, block []byte) {
	scales[0], minima[0] = half(block), half(block[2:])
	nibbles(codes, block[8:])
	addFifth(codes, binary.LittleEndian.Uint32(block[4:]))
}

func unpackQ4_K(codes []byte, scales, minima []float32, block []byte) {
	scalesMinima(scales, minima, block)
	for p := range 4 {
		for i, b := range block[16+32*p:][:32] {
			codes[64*p+i], codes[64*p+32+i] = b&15, b>>4
		}
	}
}

func unpackQ5_K(codes []byte, scales, minima []float32, block []byte) {
	scalesMinima(scales, minima, block)
	high := block[16:48]
	for p := range 4 {
		for i, b := range block[48+32*p:][:32] {
			codes[64*p+i] = b&15 | high[i]>>(2*p)&1<<4
			codes[64*p+32+i] = b>>4 | high[i]>>(2*p+1)&1<<4
		}
	}
}

// scalesMinima are those of a block of Q4_K or Q5_K.
func scalesMinima(scales, minima []float32, block []byte) {
	d, dmin := half(block), half(block[2:])
	for b := range 8 {
		scale, minimum := scaleMin(block[4:16], b)
		scales[b], minima[b] = d*float32(scale), -(dmin * float32(minimum))
	}
}

func unpackQ6_K(codes []byte, scales, _ []float32, block []byte) {
	low, high, d := block[:128], block[128:192], half(block[208:])
	for g, scale := range block[192:208] {
		scales[g] = d * float32(int8(scale))
	}
	for b := range 8 {
		n, k := b/4, b%4
		for i := range 32 {
			codes[32*b+i] = low[64*n+32*(k%2)+i]>>(4*(k/2))&15 | high[32*n+i]>>(2*k)&3<<4
		}
	}
}

func unpackIQ4_NL(codes []byte, scales, _ []float32, block []byte) {
	scales[0] = half(block)
	unevenCodes(codes, block[2:18])
}

func unevenCodes(codes, q []byte) {
	for i, b := range q[:16] {
		codes[i], codes[i+16] = byte(128+int(uneven[b&15])), byte(128+int(uneven[b>>4]))
	}
}

func unpackIQ4_XS(codes []byte, scales, _ []float32, block []byte) {
	d, high, low := half(block), binary.LittleEndian.Uint16(block[2:]), block[4:8]
	for b := range 8 {
		scale := int(low[b/2]>>(4*(b%2))&15) | int(high>>(2*b)&3)<<4
		scales[b] = d * float32(scale-32)
		unevenCodes(codes[32*b:], block[8+16*b:][:16])
	}
}
