// Package bf16 converts between float32 and the two 16-bit floating-point
// formats of model checkpoints: bfloat16 and IEEE 754 binary16 ("half").
//
// A 16-bit value is held as the uint16 of its bits. Widening is exact. Narrowing
// rounds to nearest, ties to even; values beyond the largest finite one become
// infinities, as IEEE 754 asks. A NaN stays a NaN of the same sign and becomes
// quiet, which is what the conversion instructions of x86 and arm64 do.
package bf16

import (
	"encoding/binary"
	"fmt"
	"math"
)

// ToFloat32 widens a bfloat16.
func ToFloat32(b uint16) float32 {
	return math.Float32frombits(uint32(b) << 16)
}

// FromFloat32 rounds f to the nearest bfloat16.
func FromFloat32(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		// Without the quiet bit, a NaN whose payload lies in the dropped half
		// would turn into an infinity.
		return uint16(b>>16) | 0x0040
	}
	// Adding just under half a unit, plus one when the kept part is odd, carries
	// into the kept part exactly when rounding to even goes up; a carry out of
	// the fraction raises the exponent, up to infinity.
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// Decode widens little-endian bfloat16 bytes. It panics unless src holds two
// bytes for each element of dst.
func Decode(dst []float32, src []byte) {
	checkLen(len(dst), len(src))
	// Four at a time: checkpoints of many gigabytes pass through here.
	for len(dst) >= 4 && len(src) >= 8 {
		v := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(v) << 16)
		dst[1] = math.Float32frombits(uint32(v) &^ 0xffff)
		dst[2] = math.Float32frombits(uint32(v>>32) << 16)
		dst[3] = math.Float32frombits(uint32(v>>32) &^ 0xffff)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// Encode rounds src to little-endian bfloat16 bytes. It panics unless dst holds
// two bytes for each element of src.
func Encode(dst []byte, src []float32) {
	checkLen(len(src), len(dst))
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], FromFloat32(f))
	}
}

func checkLen(values, bytes int) {
	if bytes != 2*values {
		panic(fmt.Sprintf("bf16: %d bytes for %d values of 2 bytes", bytes, values))
	}
}
