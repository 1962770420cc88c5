package kernel

import "math"

// RMSNorm normalises each row of x, of len(weight) elements, by its root mean
// square: dst = x / sqrt(mean(x^2) + eps) * weight. Squares are summed in
// float64. dst may be x.
func (t *Team) RMSNorm(dst, x, weight []float32, eps float32) {
	checkLen("RMSNorm", "dst", len(dst), len(x))
	n := len(weight)
	if n == 0 {
		checkLen("RMSNorm", "x", len(x), 0)
		return
	}
	rows := len(x) / n
	checkLen("RMSNorm", "x", len(x), rows*n)
	s := rowSpans(rows, n)
	run(t, &t.rmsNorm, s.tasks(), rmsNormJob{dst, x, weight, eps, s})
}

type rmsNormJob struct {
	dst, x, weight []float32
	eps            float32
	spans
}

func (j *rmsNormJob) run(_ *scratch, task int) {
	n := len(j.weight)
	units := n / lanes * lanes
	lo, hi := j.bounds(task)
	for i := lo; i < hi; i++ {
		dst, x := j.dst[i*n:][:n], j.x[i*n:][:n]
		sum := sumSquaresPortable(x[units:])
		if units > 0 {
			sum += active.sumSquares(x[:units])
		}
		r := float32(1 / math.Sqrt(sum/float64(n)+float64(j.eps)))
		if units > 0 {
			active.applyWeight(dst[:units], x[:units], j.weight[:units], r)
		}
		applyWeightPortable(dst[units:], x[units:], j.weight[units:], r)
	}
}
