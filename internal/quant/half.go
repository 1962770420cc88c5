package quant

import (
	"encoding/binary"

	"github.com/pulsecol/pulsecol/internal/bf16"
)

// In decoders products are exact: of at most 11 bits of a binary16, 6 of a scale and 7 of a
// value. So the compiler may fuse them with a sum, as it does on arm64.

// half is the binary16 at the beginning of b.
func half(b []byte) float32 { return bf16.HalfToFloat32(binary.LittleEndian.Uint16(b)) }

// putHalf writes x as a binary16 to the beginning of b and returns what it is there: an
// infinity if x is too large.
func putHalf(b []byte, x float64) float64 {
	binary.LittleEndian.PutUint16(b, bf16.HalfFromFloat32(float32(x)))
	return float64(half(b))
}

// toHalf rounds x to a binary16.
func toHalf(x float64) float64 {
	return float64(bf16.HalfToFloat32(bf16.HalfFromFloat32(float32(x))))
}
