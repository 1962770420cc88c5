package ref

import (
	"math"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// The layers of a transformer and their gradients. dy is the gradient of a scalar with respect
// to the result.

// Product is x wᵀ for x [rows, in], w [out, in].
func Product[F Float](x, w []F, in int) []F {
	rows, out := len(x)/in, len(w)/in
	y := make([]F, rows*out)
	for i := range rows {
		for j := range out {
			for d := range in {
				y[i*out+j] += x[i*in+d] * w[j*in+d]
			}
		}
	}
	return y
}

// ProductGrad are the gradients of Product.
func ProductGrad[F Float](dy, x, w []F, in int) (dx, dw []F) {
	rows, out := len(x)/in, len(w)/in
	dx, dw = make([]F, len(x)), make([]F, len(w))
	for i := range rows {
		for j := range out {
			for d := range in {
				dx[i*in+d] += dy[i*out+j] * w[j*in+d]
				dw[j*in+d] += dy[i*out+j] * x[i*in+d]
			}
		}
	}
	return dx, dw
}

// RMSNorm is weight x / sqrt(mean(x²) + eps) for rows of x.
func RMSNorm[F Float](x, weight []F, eps float64) []F {
	y := make([]F, len(x))
	for i := range x {
		row := i / len(weight) * len(weight)
		y[i] = weight[i-row] * x[i] * rms(x[row:][:len(weight)], eps)
	}
	return y
}

// rms is 1 / sqrt(mean(x²) + eps).
func rms[F Float](x []F, eps float64) F {
	var sum F
	for _, v := range x {
		sum += v * v
	}
	return 1 / F(math.Sqrt(float64(sum/F(len(x))+F(eps))))
}

// RMSNormGrad are the gradients of RMSNorm.
func RMSNormGrad[F Float](dy, x, weight []F, eps float64) (dx, dweight []F) {
	n := len(weight)
	dx, dweight = make([]F, len(x)), make([]F, n)
	for row := 0; row < len(x); row += n {
		r := rms(x[row:][:n], eps)
		var dot F
		for i := range n {
			dot += dy[row+i] * weight[i] * x[row+i]
		}
		for i := range n {
			dx[row+i] = r*weight[i]*dy[row+i] - r*r*r*x[row+i]*dot/F(n)
			dweight[i] += dy[row+i] * x[row+i] * r
		}
	}
	return dx, dweight
}

// RoPE takes the heads out of x [B, N, width] and turns the pairs (d, d+Dim/2) of each by
// pos * theta^(-2d/Dim): [B, Count, N, Dim].
func RoPE[F Float](x []F, pos []int32, n, width int, h kernel.Heads, theta float64) []F {
	y := make([]F, len(x)/width*h.Count*h.Dim)
	eachPair(pos, len(x)/width, n, width, h, theta, func(from, to, half int, sin, cos float64) {
		y[to] = x[from]*F(cos) - x[from+half]*F(sin)
		y[to+half] = x[from+half]*F(cos) + x[from]*F(sin)
	})
	return y
}

// RoPEGrad is the gradient of RoPE.
func RoPEGrad[F Float](dy []F, pos []int32, tokens, n, width int, h kernel.Heads, theta float64) []F {
	dx := make([]F, tokens*width)
	eachPair(pos, tokens, n, width, h, theta, func(from, to, half int, sin, cos float64) {
		dx[from] += dy[to]*F(cos) + dy[to+half]*F(sin)
		dx[from+half] += dy[to+half]*F(cos) - dy[to]*F(sin)
	})
	return dx
}

// eachPair visits the pairs of features: where the first one is in x and in the result, how
// far the second is from it, and the angle.
func eachPair(pos []int32, tokens, n, width int, h kernel.Heads, theta float64, visit func(from, to, half int, sin, cos float64)) {
	half := h.Dim / 2
	for token := range tokens {
		b, i := token/n, token%n
		for head := range h.Count {
			for d := range half {
				sin, cos := math.Sincos(float64(pos[token]) * math.Pow(theta, -2*float64(d)/float64(h.Dim)))
				visit(token*width+(h.First+head)*h.Dim+d, ((b*h.Count+head)*n+i)*h.Dim+d, half, sin, cos)
			}
		}
	}
}

// Gate is silu(gate) up.
func Gate[F Float](gate, up []F) []F {
	y := make([]F, len(gate))
	for i, g := range gate {
		y[i] = g / (1 + exp(-g)) * up[i]
	}
	return y
}

// GateGrad are the gradients of Gate.
func GateGrad[F Float](dy, gate, up []F) (dgate, dup []F) {
	dgate, dup = make([]F, len(gate)), make([]F, len(gate))
	for i, g := range gate {
		s := 1 / (1 + exp(-g))
		dgate[i] = dy[i] * up[i] * s * (1 + g*(1-s))
		dup[i] = dy[i] * g * s
	}
	return dgate, dup
}

// CrossEntropy is log(sum(exp(logits))) - logits[target] for each row of logits, 0 for a
// negative target.
func CrossEntropy[F Float](logits []F, targets []int32) []F {
	vocab := len(logits) / len(targets)
	loss := make([]F, len(targets))
	for r, target := range targets {
		if target < 0 {
			continue
		}
		var sum F
		for _, x := range logits[r*vocab:][:vocab] {
			sum += exp(x)
		}
		loss[r] = log(sum) - logits[r*vocab+int(target)]
	}
	return loss
}

// CrossEntropyGrad is the gradient of CrossEntropy.
func CrossEntropyGrad[F Float](dy, logits []F, targets []int32) []F {
	vocab := len(logits) / len(targets)
	grad := make([]F, len(logits))
	for r, target := range targets {
		if target < 0 {
			continue
		}
		row, out := logits[r*vocab:][:vocab], grad[r*vocab:][:vocab]
		var sum F
		for _, x := range row {
			sum += exp(x)
		}
		for i, x := range row {
			out[i] = dy[r] * exp(x) / sum
		}
		out[target] -= dy[r]
	}
	return grad
}
