package quant

func decodeQ4_K(dst []float32, block []byte) {
	d, dmin, scales, q := half(block), half(block[2:]), block[4:16], block[16:144]
	for b := range 8 {
		scale, minimum := scaleMin(scales, b)
		ds, dm := d*float32(scale), dmin*float32(minimum)
		low, shift := q[b/2*32:][:32], 4*(b%2)
		out := dst[32*b:][:32]
		for i := range out {
			out[i] = ds*float32(low[i]>>shift&15) - dm
		}
	}
}

func encodeQ4_K(block []byte, src []float64) {
	s := encodeSuperLines(src, 15)
	s.putScales(block)
	s.putLow(block[16:144])
}

// scaleMin returns the 6-bit scale and minimum of sub-block b of 8 of a Q4_K or Q5_K
// block, from the 12 bytes that have them all.
func scaleMin(s []byte, b int) (scale, minimum byte) {
	if b < 4 {
		return s[b] & 63, s[b+4] & 63
	}
	return s[b+4]&15 | s[b-4]>>6<<4, s[b+4]>>4 | s[b]>>6<<4
}

// putScales writes the first 16 bytes of a Q4_K or Q5_K block: two units, and the bits that
// scaleMin reads.
func (s *superLines) putScales(block []byte) {
	putHalf(block, s.d)
	putHalf(block[2:], s.dmin)
	packed := block[4:16]
	for b := range 4 {
		packed[b] = s.scale[b] | s.scale[b+4]>>4<<6
		packed[b+4] = s.minimum[b] | s.minimum[b+4]>>4<<6
		packed[b+8] = s.scale[b+4]&15 | s.minimum[b+4]<<4
	}
}

// putLow writes the lowest four bits of the codes.
func (s *superLines) putLow(q []byte) {
	for p := range 4 {
		for i := range 32 {
			q[32*p+i] = s.codes[64*p+i]&15 | s.codes[64*p+32+i]<<4
		}
	}
}
