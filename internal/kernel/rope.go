package kernel

import (
	"fmt"
	"math"
)

// RoPE applies rotary position embeddings while splitting heads: x [B, N, H*D]
// gives dst [B, H, N, D]. It rotates the pairs (d, d+D/2) ("half-split", as
// LLaDA, Llama and Qwen weights expect) by pos * theta^(-2d/D), with the angle
// computed in float64. pos is [B, N].
func RoPE(dst, x []float32, pos []int32, batch, n, heads, dim int, theta float64) {
	checkSplit("RoPE", dst, x, batch, n, heads, dim)
	checkLen("RoPE", "pos", len(pos), batch*n)
	if dim%2 != 0 {
		panic(fmt.Sprintf("kernel: RoPE: head dim is %d, must be even", dim))
	}
	half := dim / 2
	frequency := make([]float64, half)
	for d := range frequency {
		frequency[d] = math.Pow(theta, -2*float64(d)/float64(dim))
	}
	parallelRange(batch*n, max(1, elementGrain/(heads*dim)), func(lo, hi int) {
		cos, sin := make([]float32, half), make([]float32, half)
		for row := lo; row < hi; row++ {
			for d, f := range frequency {
				s, c := math.Sincos(float64(pos[row]) * f)
				sin[d], cos[d] = float32(s), float32(c)
			}
			b, i := row/n, row%n
			for h := range heads {
				src := x[(row*heads+h)*dim:][:dim]
				out := dst[((b*heads+h)*n+i)*dim:][:dim]
				for d, c := range cos {
					x0, x1 := src[d], src[half+d]
					out[d] = x0*c - x1*sin[d]
					out[half+d] = x1*c + x0*sin[d]
				}
			}
		}
	})
}
