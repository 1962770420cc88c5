package quant

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

func encodeIQ4_NL(block []byte, src []float64) {
	codes := encodeScale(block, src, levels{}, spread4)
	pack4(block[2:18], &codes)
}

// unevenFrom is, for the integers from -128 on, the code of the largest of the values whose
// middle with the one before is not above the integer.
var unevenFrom = func() (from [256]byte) {
	code := 0
	for i := range from {
		for code < 15 && unevenMiddle[code] <= float64(i-128) {
			code++
		}
		from[i] = byte(code)
	}
	return from
}()

// unevenMiddle are the middles between values and their next ones; no value follows the
// last.
var unevenMiddle = func() (middle [16]float64) {
	for i := range 15 {
		middle[i] = float64(uneven[i]+uneven[i+1]) / 2
	}
	middle[15] = 1e9
	return middle
}()

// nearestUneven is the code of the value that is nearest to t. No two middles are in one
// unit.
func nearestUneven(t float64) byte {
	t = min(max(t, -127), 113)
	code := unevenFrom[int(t+128)]
	if t >= unevenMiddle[code] {
		code++
	}
	return code
}
