package quant

import "encoding/binary"

func decodeQ5_0(dst []float32, block []byte) {
	d, high, q := half(block), binary.LittleEndian.Uint32(block[2:]), block[6:22]
	for i := range 16 {
		dst[i] = d * float32(fifth(q[i]&15, high>>i)-16)
		dst[i+16] = d * float32(fifth(q[i]>>4, high>>(i+16))-16)
	}
}

func encodeQ5_0(block []byte, src []float64) {
	codes := encodeScale(block, src, levels{16}, spread5)
	pack5(block[2:6], block[6:22], &codes)
}

// fifth puts the lowest bit of high above the four bits of low.
func fifth(low byte, high uint32) int { return int(low) | int(high&1)<<4 }

// pack5 packs the fifth bits of 32 codes, and the four others.
func pack5(high, low []byte, codes *[32]byte) {
	var bits uint32
	for i, c := range codes {
		bits |= uint32(c>>4) << i
	}
	binary.LittleEndian.PutUint32(high, bits)
	pack4(low, codes)
}
