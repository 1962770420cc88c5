package kernel

import "math"

// RMSNormGrad is the backward pass of RMSNorm: from dy, the gradient of a scalar with respect
// to the result, it computes those with respect to x and to weight,
//
//	dx = r (weight dy - x r² mean(x weight dy))
//	dweight = sum of dy x r over the rows
//
// with r = 1 / sqrt(mean(x²) + eps). Each of dx and dweight may be nil.
func (t *Team) RMSNormGrad(dx, dweight, dy, x, weight []float32, eps float32) {
	n := len(weight)
	checkLen("RMSNormGrad", "x", len(x), len(dy))
	checkLen("RMSNormGrad", "dy", len(dy), len(dy)/max(1, n)*n)
	checkOptional("RMSNormGrad", "dx", dx, len(dy))
	checkOptional("RMSNormGrad", "dweight", dweight, n)
	if len(dy) == 0 {
		return
	}
	rows := rowSpans(len(dy)/n, n)
	j := rmsNormGradJob{dx: dx, dy: dy, x: x, weight: weight, factors: sized(&t.inputs, rows.n), eps: eps, spans: rows}
	run(t, &t.rmsNormGrad, rows.tasks(), j)
	if dweight != nil {
		j.dweight, j.spans = dweight, spans{n, lanes}
		run(t, &t.rmsNormGrad, j.tasks(), j)
	}
}

type rmsNormGradJob struct {
	dx, dy, x, weight []float32
	factors           []float32 // r of each row, which the first pass computes
	dweight           []float32 // nil in the first pass
	eps               float32
	spans             // of rows, or of features in the second pass
}

func (j *rmsNormGradJob) run(_ *scratch, task int) {
	lo, hi := j.bounds(task)
	n := len(j.weight)
	if j.dweight != nil {
		sums := j.dweight[lo:hi]
		clear(sums)
		for row, r := range j.factors {
			x, dy := j.x[row*n+lo:][:len(sums)], j.dy[row*n+lo:][:len(sums)]
			for i := range sums {
				sums[i] += dy[i] * x[i] * r
			}
		}
		return
	}
	for row := lo; row < hi; row++ {
		x, dy := j.x[row*n:][:n], j.dy[row*n:][:n]
		squares, dot := 0.0, 0.0
		for i, f := range x {
			squares += float64(f) * float64(f)
			dot += float64(f) * float64(j.weight[i]*dy[i])
		}
		inverse := 1 / math.Sqrt(squares/float64(n)+float64(j.eps))
		r := float32(inverse)
		j.factors[row] = r
		if j.dx == nil {
			continue
		}
		mean := float32(inverse * inverse * inverse * dot / float64(n))
		dx := j.dx[row*n:][:n]
		for i, f := range x {
			dx[i] = r*j.weight[i]*dy[i] - f*mean
		}
	}
}
