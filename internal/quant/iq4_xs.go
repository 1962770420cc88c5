package quant

import "encoding/binary"

func decodeIQ4_XS(dst []float32, block []byte) {
	d, high, low, q := half(block), binary.LittleEndian.Uint16(block[2:]), block[4:8], block[8:136]
	for b := range 8 {
		scale := int(low[b/2]>>(4*(b%2))&15) | int(high>>(2*b)&3)<<4
		decodeUneven(dst[32*b:][:32], d*float32(scale-32), q[16*b:][:16])
	}
}

func encodeIQ4_XS(block []byte, src []float64) {
	s := encodeSuperScales(src, levels{}, spread4, 8, -32)
	clear(block)
	putHalf(block, s.d)
	var high uint16
	for b, scale := range s.scales {
		block[4+b/2] |= byte(scale+32) & 15 << (4 * (b % 2))
		high |= uint16(scale+32) >> 4 << (2 * b)
		pack4(block[8+16*b:][:16], (*[32]byte)(s.codes[32*b:]))
	}
	binary.LittleEndian.PutUint16(block[2:], high)
}
