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
	lo, hi := j.bounds(task)
	for i := lo; i < hi; i++ {
		rmsNormRow(j.dst[i*n:][:n], j.x[i*n:][:n], j.weight, j.eps)
	}
}

func rmsNormRow(dst, x, weight []float32, eps float32) {
	// Four sums, because one would wait for each addition in turn.
	var s [4]float64
	for i, f := range x {
		s[i%4] += float64(f) * float64(f)
	}
	mean := (s[0] + s[1] + s[2] + s[3]) / float64(len(x))
	r := float32(1 / math.Sqrt(mean+float64(eps)))
	for i, f := range x {
		dst[i] = float32(f*r) * weight[i]
	}
}
