package quant

import "encoding/binary"

// scaleMin returns the 6-bit scale and minimum of sub-block b of 8 of a Q4_K or Q5_K
// block, from the 12 bytes that have them all.
func scaleMin(s []byte, b int) (scale, minimum byte) {
	if b < 4 {
		return s[b] & 63, s[b+4] & 63
	}
	return s[b+4]&15 | s[b-4]>>6<<4, s[b+4]>>4 | s[b]>>6<<4
}

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

func decodeQ6_K(dst []float32, block []byte) {
	low, high, scales, d := block[:128], block[128:192], block[192:208], half(block[208:])
	for g := range 16 { // 16 elements each
		n, k, half := g/8, g/2%4, 16*(g%2)
		scale := d * float32(int8(scales[g]))
		l, h, out := low[64*n+32*(k%2)+half:][:16], high[32*n+half:][:16], dst[16*g:][:16]
		for i := range out {
			q := l[i]>>(4*(k/2))&15 | h[i]>>(2*k)&3<<4
			out[i] = scale * float32(int(q)-32)
		}
	}
}

func decodeIQ4_XS(dst []float32, block []byte) {
	d, high, low, q := half(block), binary.LittleEndian.Uint16(block[2:]), block[4:8], block[8:136]
	for b := range 8 {
		scale := int(low[b/2]>>(4*(b%2))&15) | int(high>>(2*b)&3)<<4
		decodeUneven(dst[32*b:][:32], d*float32(scale-32), q[16*b:][:16])
	}
}
