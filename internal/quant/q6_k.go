package quant

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

func encodeQ6_K(block []byte, src []float64) {
	s := encodeSuperScales(src, levels{32}, spread6, 16, -128)
	low, high, scales := block[:128], block[128:192], block[192:208]
	clear(block)
	for g, scale := range s.scales {
		scales[g] = byte(int8(scale))
		n, k, half := g/8, g/2%4, 16*(g%2)
		l, h := low[64*n+32*(k%2)+half:][:16], high[32*n+half:][:16]
		for i, q := range s.codes[16*g:][:16] {
			l[i] |= q & 15 << (4 * (k / 2))
			h[i] |= q >> 4 << (2 * k)
		}
	}
	putHalf(block[208:], s.d)
}
