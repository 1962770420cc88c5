package kernel

import (
	"encoding/binary"
	"math"

	"github.com/pulsecol/pulsecol/internal/bf16"
)

// portable is the isa that runs everywhere. The comments of isa say what
// each routine computes.
var portable = isa{
	name:        "portable",
	mulRows:     mulRowsPortable,
	mulCols:     mulColsPortable,
	softmax:     softmaxPortable,
	scaleRows:   scaleRowsPortable,
	dotRows:     dotRowsPortable,
	transpose:   transposePortable,
	packF32:     packF32Portable,
	packBF16:    packBF16Portable,
	sumSquares:  sumSquaresPortable,
	applyWeight: applyWeightPortable,
	swiGLU:      swiGLUPortable,
	rotate:      rotatePortable,
	sortKeys:    sortKeysPortable,
	partition:   partitionPortable,
	peakFMA:     peakFMAPortable,
	bf16: (&isa{
		mulRows: mulRowsPortable,
		mulCols: mulColsPortable,
		softmax: softmaxPortable,
		peakFMA: peakFMAPortable,
	}).roundedProducts(roundRowsPortable),
	int16: int16Products{
		perWord:  1,
		packRows: quantizeRowsPortable,
		packCols: quantizeColsPortable,
		mulRows:  mulRowsPortable,
		mulCols:  mulColsPortable,
		unscale:  unscalePortable,
		peakFMA:  peakFMAPortable,
	},
	codes: portableCodes,
}

// mulRowsPortable keeps a block of 2x4 sums in registers: with its operands that
// is all a 16-register machine holds. They are variables of their own because the
// compiler keeps a struct or array of eight in memory. It leaves fetching to the
// hardware.
func mulRowsPortable(list []int32, k int, a []float32, lda int, b, c []float32, ldc int, accumulate bool, _ *prefetch) {
	for i := 0; i < len(list); i += 2 {
		a0 := a[int(list[i])*lda:][:k]
		a1 := a[int(list[i+1])*lda:][:k]
		for j := 0; j < lanes; j += 4 {
			var s00, s01, s02, s03, s10, s11, s12, s13 float32
			for p, x0 := range a0 {
				x1, y := a1[p], b[p*lanes+j:][:4:4]
				s00 += x0 * y[0]
				s01 += x0 * y[1]
				s02 += x0 * y[2]
				s03 += x0 * y[3]
				s10 += x1 * y[0]
				s11 += x1 * y[1]
				s12 += x1 * y[2]
				s13 += x1 * y[3]
			}
			store4(c[i*ldc+j:], accumulate, s00, s01, s02, s03)
			store4(c[(i+1)*ldc+j:], accumulate, s10, s11, s12, s13)
		}
	}
}

func mulColsPortable(m int, list []int32, a []float32, lda int, b, c []float32, ldc int, keep *[lanes]float32, _ *prefetch) {
	if keep != nil {
		for i := range m {
			scaleRowsPortable(c[i*ldc:], 1, keep[:])
		}
	}
	for i := 0; i < m; i += 2 {
		for j := 0; j < lanes; j += 4 {
			var s00, s01, s02, s03, s10, s11, s12, s13 float32
			for p, row := range list {
				x, y := a[int(row)*lda+i:][:2:2], b[p*lanes+j:][:4:4]
				x0, x1 := x[0], x[1]
				s00 += x0 * y[0]
				s01 += x0 * y[1]
				s02 += x0 * y[2]
				s03 += x0 * y[3]
				s10 += x1 * y[0]
				s11 += x1 * y[1]
				s12 += x1 * y[2]
				s13 += x1 * y[3]
			}
			store4(c[i*ldc+j:], keep != nil, s00, s01, s02, s03)
			store4(c[(i+1)*ldc+j:], keep != nil, s10, s11, s12, s13)
		}
	}
}

// store4 writes four sums to c, or adds them to what is there.
func store4(c []float32, accumulate bool, s0, s1, s2, s3 float32) {
	c = c[:4:4]
	if accumulate {
		s0, s1, s2, s3 = c[0]+s0, c[1]+s1, c[2]+s2, c[3]+s3
	}
	c[0], c[1], c[2], c[3] = s0, s1, s2, s3
}

func softmaxPortable(s []float32, rows int, state []float32) {
	maximum, sum, shrink := state[:lanes], state[lanes:2*lanes], state[2*lanes:3*lanes]
	var shift [lanes]float32
	copy(shrink, maximum)
	for j := range rows {
		for i, x := range s[j*lanes:][:lanes] {
			if x > maximum[i] {
				maximum[i] = x
			}
		}
	}
	for i, m := range maximum {
		if m >= -math.MaxFloat32 {
			shift[i] = m
		}
		shrink[i] = exp2(shrink[i] - shift[i])
	}
	var add [lanes]float32
	for j := range rows {
		row := s[j*lanes:][:lanes]
		for i, x := range row {
			p := exp2(x - shift[i])
			row[i] = p
			add[i] += p
		}
	}
	for i, x := range add {
		sum[i] = float32(sum[i]*shrink[i]) + x
	}
}

func scaleRowsPortable(c []float32, rows int, w []float32) {
	w = w[:lanes]
	for j := range rows {
		row := c[j*lanes:][:lanes]
		for i, x := range w {
			row[i] *= x
		}
	}
}

// dotRowsPortable does not read a lane of weight 0, so that its NaN stays there.
func dotRowsPortable(dst, p []float32, rows int, w []float32) {
	w = w[:lanes]
	for j := range rows {
		row := p[j*lanes:][:lanes]
		var sum float32
		for i, x := range w {
			if x != 0 {
				sum += row[i] * x
			}
		}
		dst[j] = sum
	}
}

func transposePortable(dst []float32, ldd int, src []float32, lds, m, n int, scale []float32) {
	for i := range m {
		for j, x := range src[i*lds:][:n] {
			dst[j*ldd+i] = x * scale[j]
		}
	}
}

func packF32Portable(dst []float32, ldd int, src []byte, lds, m, n int) {
	for i := range m {
		row := src[4*i*lds:][:4*n]
		for j := range n {
			dst[j*ldd+i] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*j:]))
		}
	}
}

func packBF16Portable(dst []float32, ldd int, src []byte, lds, m, n int) {
	for i := range m {
		row := src[2*i*lds:][:2*n]
		for j := range n {
			dst[j*ldd+i] = bf16.ToFloat32(binary.LittleEndian.Uint16(row[2*j:]))
		}
	}
}

// sumSquaresPortable keeps four sums, because one would wait for each addition in
// turn.
func sumSquaresPortable(x []float32) float64 {
	var s0, s1, s2, s3 float64
	for len(x) >= 4 {
		x0, x1, x2, x3 := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		s0, s1, s2, s3 = s0+x0*x0, s1+x1*x1, s2+x2*x2, s3+x3*x3
		x = x[4:]
	}
	for _, f := range x {
		s0 += float64(f) * float64(f)
	}
	return s0 + s1 + s2 + s3
}

func applyWeightPortable(dst, x, weight []float32, factor float32) {
	dst, weight = dst[:len(x)], weight[:len(x)]
	for i, f := range x {
		dst[i] = float32(f*factor) * weight[i]
	}
}

func swiGLUPortable(dst, gate, up []float32) {
	dst, up = dst[:len(gate)], up[:len(gate)]
	for i, g := range gate {
		dst[i] = g / (1 + exp32(-g)) * up[i]
	}
}

func rotatePortable(dst []float32, ldd int, src, cos, sin []float32, heads int) {
	half := len(cos)
	sin = sin[:half]
	for h := range heads {
		x0, x1 := src[h*2*half:][:half], src[h*2*half+half:][:half]
		y0, y1 := dst[h*ldd:][:half], dst[h*ldd+half:][:half]
		for d, c := range cos {
			a, b, s := x0[d], x1[d], sin[d]
			y0[d], y1[d] = a*c-b*s, b*c+a*s
		}
	}
}

func sortKeysPortable(order []uint32, scores []float32) {
	order = order[:len(scores)]
	for i, s := range scores {
		order[i] = sortKey(s)
	}
}

func partitionPortable(bits, ties, order []uint32, digit uint32) (n int) {
	for i := range bits {
		var word uint32
		for b, r := range order[32*i : min(32*i+32, len(order))] {
			d := r >> digitShift
			word |= less(digit, d) << (b & 31)
			ties[n] = uint32(32*i + b)
			n += int(equal(d, digit))
		}
		bits[i] = word
	}
	return n
}

// peakFMAPortable runs eight chains of a multiplication and an addition.
func peakFMAPortable(n int) (flops int) {
	const x, y = 0.5, 1
	var s [8]float32
	for range n {
		s0, s1, s2, s3, s4, s5, s6, s7 := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
		for range 16 {
			s0, s1, s2, s3 = s0*x+y, s1*x+y, s2*x+y, s3*x+y
			s4, s5, s6, s7 = s4*x+y, s5*x+y, s6*x+y, s7*x+y
		}
		s = [8]float32{s0, s1, s2, s3, s4, s5, s6, s7}
	}
	return 16 * len(s) * 2
}
