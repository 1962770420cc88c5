package quant

import "encoding/binary"

func decodeQ5_1(dst []float32, block []byte) {
	d, m, high, q := half(block), half(block[2:]), binary.LittleEndian.Uint32(block[4:]), block[8:24]
	for i := range 16 {
		dst[i] = d*float32(fifth(q[i]&15, high>>i)) + m
		dst[i+16] = d*float32(fifth(q[i]>>4, high>>(i+16))) + m
	}
}

func encodeQ5_1(block []byte, src []float64) {
	codes := encodeScaleMin(block, src, 31)
	pack5(block[4:8], block[8:24], &codes)
}
