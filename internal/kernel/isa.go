package kernel

// An isa is one implementation of the routines that determine the speed. All isas have the
// same geometry, so that the code above them does not depend on the isa: rows come in units
// of rowUnit, and the columns of a right-hand matrix in panels of lanes.
type isa struct {
	name string

	// mulRows computes c = a b, or c += a b if accumulate is set, where a are
	// the rows list[0], list[1], ... of a matrix with rows of lda elements, of
	// which the first k count, b is [k, lanes], and c [len(list), lanes] has its
	// rows at a distance of ldc:
	//
	//	for i, row := range list {
	//		for j := range lanes {
	//			for p := range k {
	//				c[i*ldc+j] += a[row*lda+p] * b[p*lanes+j]
	//			}
	//		}
	//	}
	//
	// len(list) is a positive multiple of rowUnit, and its capacity has prefetchRows more
	// entries, whose rows are fetched but not used; k is positive. next, which may be
	// nil, is prefetched during the call.
	mulRows func(list []int32, k int, a []float32, lda int, b, c []float32, ldc int, accumulate bool, next *prefetch)

	// mulCols computes c = a^T b, or c = c keep + a^T b with a factor for each lane
	// if keep is not nil, where a are the first m elements of the rows that list
	// names, b is [len(list), lanes] and c [m, lanes]:
	//
	//	for i := range m {
	//		for j := range lanes {
	//			c[i*ldc+j] *= keep[j]
	//			for p, row := range list {
	//				c[i*ldc+j] += a[row*lda+i] * b[p*lanes+j]
	//			}
	//		}
	//	}
	//
	// m is a positive multiple of rowUnit, the list is not empty, and its capacity is
	// that of mulRows.
	mulCols func(m int, list []int32, a []float32, lda int, b, c []float32, ldc int, keep *[lanes]float32, next *prefetch)

	// softmax takes one block of scores s [rows, lanes], rows > 0, into a
	// running softmax over rows. state holds three vectors of lanes: the maximum
	// so far, the sum so far, and, written only, the factor by which the new
	// maximum shrinks what was summed before.
	//
	//	for i := range lanes {
	//		m := max(state[i], s[0][i], s[1][i], ...)      // NaN is ignored
	//		shift := m, or 0 if m is -Inf                   // nothing but masked keys
	//		shrink := exp2(state[i] - shift)
	//		s[j][i] = exp2(s[j][i] - shift)                 // for every row j
	//		state[i], state[lanes+i] = m, state[lanes+i]*shrink + sum of s[j][i]
	//		state[2*lanes+i] = shrink
	//	}
	//
	// exp2 is within 4e-7 of the true value of its argument, a float32
	// difference, relative, and 0 below expMin. Scores are in units of ln 2, so
	// that no multiplication is needed here.
	softmax func(s []float32, rows int, state []float32)

	// scaleRows multiplies each of the rows of c [rows, lanes] by w [lanes].
	scaleRows func(c []float32, rows int, w []float32)

	// dotRows computes dst[j] = sum over i of p[j*lanes+i] * w[i] for rows rows,
	// a multiple of rowUnit.
	dotRows func(dst, p []float32, rows int, w []float32)

	// transpose computes dst[j*ldd+i] = scale[j] * src[i*lds+j] for i < m, j < n,
	// both multiples of rowUnit.
	transpose func(dst []float32, ldd int, src []float32, lds, m, n int, scale []float32)

	// packF32 and packBF16 are transpose without scale for the little-endian
	// bytes of a weight matrix; lds counts elements.
	packF32, packBF16 func(dst []float32, ldd int, src []byte, lds, m, n int)

	// sumSquares is the sum of the squares of x, added up in float64. len(x) is a
	// positive multiple of lanes.
	sumSquares func(x []float32) float64

	// applyWeight computes dst[i] = x[i] * factor * weight[i], in this order, for the
	// elements of x, a positive multiple of lanes. dst may be x.
	applyWeight func(dst, x, weight []float32, factor float32)

	// swiGLU computes dst[i] = gate[i] / (1 + exp(-gate[i])) * up[i] for the
	// elements of gate, a positive multiple of lanes. dst may be gate or up. The
	// relative error of a result that is not subnormal is within 4e-7, but where
	// gate[i] < -87 the result may be 0.
	swiGLU func(dst, gate, up []float32)

	// rotate turns pairs (d, half+d), d < half = len(cos), of the heads that follow
	// one another in src, with 2*half elements each, into heads that lie at a
	// distance of ldd in dst:
	//
	//	for h := range heads {
	//		x, y := src[h*2*half:], dst[h*ldd:]
	//		for d := range half {
	//			y[d] = x[d]*cos[d] - x[half+d]*sin[d]
	//			y[half+d] = x[half+d]*cos[d] + x[d]*sin[d]
	//		}
	//	}
	//
	// half is a positive multiple of rowUnit, heads is positive.
	rotate func(dst []float32, ldd int, src, cos, sin []float32, heads int)

	// sortKeys computes order[i] = sortKey(scores[i]) for the elements of scores, a positive
	// multiple of lanes.
	sortKeys func(order []uint32, scores []float32)

	// partition compares the leading digitBits of sort keys, a positive multiple of
	// lanes, with digit: bit i of bits [len(order)/32] says that those of order[i]
	// are larger, and ties gets the indices, ascending, where they are equal. It
	// returns their number. ties has room for lanes more than there are sort keys.
	partition func(bits, ties, order []uint32, digit uint32) int

	// peakFMA runs n rounds of independent multiply-adds on registers and returns
	// the number of floating-point operations of one round. It measures the
	// peak speed that the other routines are compared with.
	peakFMA func(n int) (flops int)

	bf16  bf16Products
	int16 int16Products
	codes codeProducts
}

const (
	// lanes is the width of a panel: two AVX-512 registers.
	lanes = 32
	// rowUnit is the number of rows a multiplication computes at a time.
	rowUnit = 8
)

// active is the isa in use. It is selected once, before any call; only tests
// change it.
var active = isas()[0]

// Features names the instruction set that runs on this machine: "amx", "avx512bf16",
// "avx512", "avx2", "neon" or "portable".
func Features() string { return active.name }

// PeakFMA runs n rounds of independent multiply-adds on registers and returns the
// number of floating-point operations that makes. Timed, it gives the peak speed
// of one thread, which nothing here can exceed.
func PeakFMA(n int) (flops int) { return n * active.peakFMA(n) }
