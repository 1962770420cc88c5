package ref

import (
	"math"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// step is the distance of the two points of a central difference.
const step = 1.0 / (1 << 18)

// Slopes are the gradients of sum(dout * Attention(a, t)) with respect to q, k and v
// by central differences in float64, and a bound on their error. The elements of q, k
// and v must be multiples of 1/256 below 8: float32 then holds x±step exactly.
//
// A difference is off by step²/6 times a third derivative, and by the rounding of its
// two points. Along a coordinate of q or k the logits of a query move with a range u,
// and its output changes the sum by a mean of values with a range f over the keys. The
// third derivative of that mean is a fourth cumulant, at most u³f/2. A coordinate of q
// moves one query, one of k all that read it.
func Slopes(dout []float32, a *kernel.Operands, t *kernel.Table) (dq, dk, dv []float64, err float64) {
	b := *a
	b.Q, b.K, b.V = append([]float32{}, a.Q...), append([]float32{}, a.K...), append([]float32{}, a.V...)
	slope := func(x []float32) []float64 {
		d := make([]float64, len(x))
		for i, old := range x {
			x[i] = old + step
			up, _ := Attention[float64](&b, t)
			x[i] = old - step
			down, _ := Attention[float64](&b, t)
			x[i] = old
			for j := range up {
				d[i] += (up[j] - down[j]) * float64(dout[j])
			}
			d[i] /= 2 * step
		}
		return d
	}
	dq, dk, dv = slope(b.Q), slope(b.K), slope(b.V)

	n, dim := float64(a.Len), float64(a.HeadDim)
	q, k, v, w := largest(a.Q), largest(a.K), largest(a.V), largest(dout)
	queries := n * float64(a.Heads/a.KVHeads)
	u, f := 2*float64(a.Scale)*max(q, k), 2*dim*w*v
	logit := float64(a.Scale) * dim * q * k
	rounding := dim * w * v * (n + 8 + (2*logit+1)*(dim+2)) * 0x1p-52
	return dq, dk, dv, queries * (step*step*f*u*u*u/12 + rounding/step)
}

func largest(x []float32) (most float64) {
	for _, v := range x {
		most = max(most, math.Abs(float64(v)))
	}
	return most
}

// Differences are the gradient of sum(dy * f()) with respect to x, which f reads, by central
// differences, and an estimate of their error: the largest difference from those at twice the
// distance, which is about three times as large.
func Differences(f func() []float64, dy []float32, x []float64) (grad []float64, err float64) {
	for i, old := range x {
		var d [2]float64
		for k, step := range []float64{step, 2 * step} {
			x[i] = old + step
			up := f()
			x[i] = old - step
			down := f()
			x[i] = old
			for j := range up {
				d[k] += (up[j] - down[j]) * float64(dy[j])
			}
			d[k] /= 2 * step
		}
		grad, err = append(grad, d[0]), max(err, math.Abs(d[1]-d[0]))
	}
	return grad, err
}
