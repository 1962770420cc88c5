package quant

import (
	"encoding/binary"

	"github.com/pulsecol/pulsecol/internal/bf16"
)

// Products are exact: of at most 11 bits of a binary16, 6 of a scale and 7 of a value. So
// the compiler may fuse them with a sum, as it does on arm64.

// half is the binary16 at the beginning of b.
func half(b []byte) float32 { return bf16.HalfToFloat32(binary.LittleEndian.Uint16(b)) }

func decodeQ8_0(dst []float32, block []byte) {
	d, q := half(block), block[2:34]
	for i := range 32 {
		dst[i] = d * float32(int8(q[i]))
	}
}

func decodeQ4_0(dst []float32, block []byte) {
	d, q := half(block), block[2:18]
	for i := range 16 {
		dst[i] = d * float32(int(q[i]&15)-8)
		dst[i+16] = d * float32(int(q[i]>>4)-8)
	}
}

func decodeQ4_1(dst []float32, block []byte) {
	d, m, q := half(block), half(block[2:]), block[4:20]
	for i := range 16 {
		dst[i] = d*float32(q[i]&15) + m
		dst[i+16] = d*float32(q[i]>>4) + m
	}
}

func decodeQ5_0(dst []float32, block []byte) {
	d, high, q := half(block), binary.LittleEndian.Uint32(block[2:]), block[6:22]
	for i := range 16 {
		dst[i] = d * float32(fifth(q[i]&15, high>>i)-16)
		dst[i+16] = d * float32(fifth(q[i]>>4, high>>(i+16))-16)
	}
}

func decodeQ5_1(dst []float32, block []byte) {
	d, m, high, q := half(block), half(block[2:]), binary.LittleEndian.Uint32(block[4:]), block[8:24]
	for i := range 16 {
		dst[i] = d*float32(fifth(q[i]&15, high>>i)) + m
		dst[i+16] = d*float32(fifth(q[i]>>4, high>>(i+16))) + m
	}
}

// fifth puts the lowest bit of high above the four bits of low.
func fifth(low byte, high uint32) int { return int(low) | int(high&1)<<4 }

// uneven are the values that four bits of the IQ4 types select.
var uneven = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func decodeIQ4_NL(dst []float32, block []byte) {
	decodeUneven(dst, half(block), block[2:18])
}

// decodeUneven decodes 32 elements of one scale.
func decodeUneven(dst []float32, scale float32, q []byte) {
	for i := range 16 {
		dst[i] = scale * uneven[q[i]&15]
		dst[i+16] = scale * uneven[q[i]>>4]
	}
}
