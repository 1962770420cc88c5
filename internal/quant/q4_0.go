package quant

func decodeQ4_0(dst []float32, block []byte) {
	d, q := half(block), block[2:18]
	for i := range 16 {
		dst[i] = d * float32(int(q[i]&15)-8)
		dst[i+16] = d * float32(int(q[i]>>4)-8)
	}
}

func encodeQ4_0(block []byte, src []float64) {
	codes := encodeScale(block, src, levels{8}, spread4)
	pack4(block[2:18], &codes)
}

// encodeScale writes the scale of 32 elements to the beginning of a block and returns their
// codes.
func encodeScale(block []byte, src []float64, l levels, spread []float64) (codes [32]byte) {
	d := putHalf(block, l.search(src, spread))
	l.codes(codes[:], src, d)
	return codes
}

// pack4 packs the lowest four bits of 32 codes.
func pack4(dst []byte, codes *[32]byte) {
	for i := range 16 {
		dst[i] = codes[i]&15 | codes[i+16]<<4
	}
}
