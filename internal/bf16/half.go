package bf16

import (
	"encoding/binary"
	"math"
)

// HalfToFloat32 widens an IEEE 754 binary16.
func HalfToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0:
		// Zero or subnormal: frac units of 2^-24, which float32 holds exactly.
		f := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(f))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// HalfFromFloat32 rounds f to the nearest IEEE 754 binary16: magnitudes from
// 65520 up become infinities, those up to 2^-25 become zero.
func HalfFromFloat32(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	mag := b &^ (1 << 31)
	switch {
	case mag > 0x7f800000:
		return sign | 0x7e00 | uint16(mag>>13)&0x3ff
	case mag >= 0x477ff000: // 65520: halfway between the largest half and 2^16
		return sign | 0x7c00
	case mag < 0x38800000: // below 2^-14: subnormal, in units of 2^-24
		// In [0.5, 1) float32 has exactly that unit, so the addition does the
		// rounding to even and leaves the count in the low bits.
		u := math.Float32frombits(mag) + 0.5
		return sign | uint16(math.Float32bits(u)-math.Float32bits(0.5))
	}
	// As in FromFloat32, with 13 dropped bits and the exponent's bias lowered
	// from 127 to 15.
	mag += 0xfff + mag>>13&1
	return sign | uint16((mag-(127-15)<<23)>>13)
}

// DecodeHalf widens little-endian binary16 bytes. It panics unless src holds two
// bytes for each element of dst.
func DecodeHalf(dst []float32, src []byte) {
	checkLen(len(dst), len(src))
	for i := range dst {
		dst[i] = HalfToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// EncodeHalf rounds src to little-endian binary16 bytes. It panics unless dst
// holds two bytes for each element of src.
func EncodeHalf(dst []byte, src []float32) {
	checkLen(len(src), len(dst))
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], HalfFromFloat32(f))
	}
}
