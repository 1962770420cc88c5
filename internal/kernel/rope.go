package kernel

import (
	"fmt"
	"math"
)

// RoPE applies rotary position embeddings while splitting heads: x [B, N, H*D]
// gives dst [B, H, N, D]. It rotates the pairs (d, d+D/2) ("half-split", as
// LLaDA, Llama and Qwen weights expect) by pos * theta^(-2d/D), with the angle
// computed in float64. pos is [B, N].
func (t *Team) RoPE(dst, x []float32, pos []int32, batch, n, heads, dim int, theta float64) {
	checkSplit("RoPE", dst, x, batch, n, heads, dim)
	checkLen("RoPE", "pos", len(pos), batch*n)
	if dim%2 != 0 {
		panic(fmt.Sprintf("kernel: RoPE: head dim is %d, must be even", dim))
	}
	frequencies := sized(&t.frequencies, dim/2)
	for d := range frequencies {
		frequencies[d] = math.Pow(theta, -2*float64(d)/float64(dim))
	}
	s := rowSpans(batch*n, heads*dim)
	run(t, &t.rope, s.tasks(), ropeJob{dst, x, pos, frequencies, n, heads, dim, s})
}

type ropeJob struct {
	dst, x        []float32
	pos           []int32
	frequencies   []float64
	n, heads, dim int
	spans
}

func (j *ropeJob) run(w *scratch, task int) {
	half := j.dim / 2
	w.column, w.product = sized(&w.column, half), sized(&w.product, half)
	cos, sin := w.column, w.product
	lo, hi := j.bounds(task)
	for row := lo; row < hi; row++ {
		for d, f := range j.frequencies {
			s, c := math.Sincos(float64(j.pos[row]) * f)
			sin[d], cos[d] = float32(s), float32(c)
		}
		b, i := row/j.n, row%j.n
		for h := range j.heads {
			src := j.x[(row*j.heads+h)*j.dim:][:j.dim]
			out := j.dst[((b*j.heads+h)*j.n+i)*j.dim:][:j.dim]
			for d, c := range cos {
				x0, x1 := src[d], src[half+d]
				out[d] = x0*c - x1*sin[d]
				out[half+d] = x1*c + x0*sin[d]
			}
		}
	}
}
