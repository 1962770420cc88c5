package quant

func decodeQ4_1(dst []float32, block []byte) {
	d, m, q := half(block), half(block[2:]), block[4:20]
	for i := range 16 {
		dst[i] = d*float32(q[i]&15) + m
		dst[i+16] = d*float32(q[i]>>4) + m
	}
}

func encodeQ4_1(block []byte, src []float64) {
	codes := encodeScaleMin(block, src, 15)
	pack4(block[4:20], &codes)
}

// encodeScaleMin writes the scale and the minimum of 32 elements to the beginning of a
// block and returns their codes, 0 to last.
func encodeScaleMin(block []byte, src []float64, last int) (codes [32]byte) {
	l := searchLine(src, last, false)
	l = line{putHalf(block, l.scale), putHalf(block[2:], l.least)}
	lineCodes(codes[:], src, l, last)
	return codes
}
