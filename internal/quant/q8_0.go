package quant

import "math"

func decodeQ8_0(dst []float32, block []byte) {
	d, q := half(block), block[2:34]
	for i := range 32 {
		dst[i] = d * float32(int8(q[i]))
	}
}

// encodeQ8_0 makes the largest element 127 or -127. At 8 bits no other scale has much less
// error.
func encodeQ8_0(block []byte, src []float64) {
	largest := 0.0
	for _, e := range src {
		largest = max(largest, math.Abs(e))
	}
	inverse := reciprocal(putHalf(block, largest/127))
	for i, e := range src {
		block[2+i] = byte(int8(min(max(math.RoundToEven(e*inverse), -127), 127)))
	}
}
