package kernel

import "fmt"

// SplitHeadsGrad is the backward pass of SplitHeads: dy [B, Count, N, Dim] gives dx
// [B, N, T*Dim], zero outside of the heads.
func (t *Team) SplitHeadsGrad(dx, dy []float32, batch, n int, h Heads) {
	width := checkSplit("SplitHeadsGrad", dy, dx, batch, n, h)
	s := rowSpans(batch*n, width)
	run(t, &t.headsGrad, s.tasks(), headsGradJob{dx: dx, dy: dy, n: n, width: width, Heads: h, spans: s})
}

// RoPEGrad is the backward pass of RoPE, SplitHeadsGrad of heads that are turned back.
func (t *Team) RoPEGrad(dx, dy []float32, pos []int32, batch, n int, h Heads, theta float64) {
	width := checkSplit("RoPEGrad", dy, dx, batch, n, h)
	checkLen("RoPEGrad", "pos", len(pos), batch*n)
	if h.Dim%2 != 0 {
		panic(fmt.Sprintf("kernel: RoPEGrad: head dim is %d, must be even", h.Dim))
	}
	t.rotations.prepare(h.Dim, theta, pos)
	s := rowSpans(batch*n, width)
	run(t, &t.headsGrad, s.tasks(), headsGradJob{dx, dy, pos, &t.rotations, n, width, h, s})
}

type headsGradJob struct {
	dx, dy    []float32
	pos       []int32    // nil without rotations
	rotations *rotations // nil without
	n         int
	width     int // features of a token
	Heads
	spans
}

func (j *headsGradJob) run(w *scratch, task int) {
	lo, hi := j.bounds(task)
	half := j.Dim / 2
	for row := lo; row < hi; row++ {
		b, i := row/j.n, row%j.n
		dx := j.dx[row*j.width:][:j.width]
		clear(dx)
		var cos, sin []float32
		if j.pos != nil {
			cos, sin = j.rotations.at(w, int(j.pos[row]))
		}
		for h := range j.Count {
			dst := dx[(j.First+h)*j.Dim:][:j.Dim]
			src := j.dy[((b*j.Count+h)*j.n+i)*j.Dim:][:j.Dim]
			if j.pos == nil {
				copy(dst, src)
				continue
			}
			for d, c := range cos {
				x, y := src[d], src[half+d]
				dst[d], dst[half+d] = x*c+y*sin[d], y*c-x*sin[d]
			}
		}
	}
}
