package quant

func decodeQ5_K(dst []float32, block []byte) {
	d, dmin, scales, high, q := half(block), half(block[2:]), block[4:16], block[16:48], block[48:176]
	for b := range 8 {
		scale, minimum := scaleMin(scales, b)
		ds, dm := d*float32(scale), dmin*float32(minimum)
		low, shift := q[b/2*32:][:32], 4*(b%2)
		out := dst[32*b:][:32]
		for i := range out {
			out[i] = ds*float32(fifth(low[i]>>shift&15, uint32(high[i]>>b))) - dm
		}
	}
}

func encodeQ5_K(block []byte, src []float64) {
	s := encodeSuperLines(src, 31)
	s.putScales(block)
	high := block[16:48]
	clear(high)
	for b := range 8 {
		for i := range high {
			high[i] |= s.codes[32*b+i] >> 4 << b
		}
	}
	s.putLow(block[48:176])
}
