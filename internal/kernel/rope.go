package kernel

import (
	"fmt"
	"math"
)

// RoPE applies rotary position embeddings while splitting heads: heads of x
// [B, N, T*Dim] give dst [B, Count, N, Dim]. It rotates the pairs (d, d+Dim/2)
// ("half-split", as LLaDA, Llama and Qwen weights expect) by pos * theta^(-2d/Dim),
// with the angle computed in float64. pos is [B, N].
func (t *Team) RoPE(dst, x []float32, pos []int32, batch, n int, h Heads, theta float64) {
	width := checkSplit("RoPE", dst, x, batch, n, h)
	checkLen("RoPE", "pos", len(pos), batch*n)
	if h.Dim%2 != 0 {
		panic(fmt.Sprintf("kernel: RoPE: head dim is %d, must be even", h.Dim))
	}
	t.rotations.prepare(h.Dim, theta, pos)
	s := rowSpans(batch*n, h.Count*h.Dim)
	run(t, &t.rope, s.tasks(), ropeJob{dst, x, pos, &t.rotations, n, width, h, s})
}

type ropeJob struct {
	dst, x    []float32
	pos       []int32
	rotations *rotations
	n         int
	width     int // features of a token
	Heads
	spans
}

func (j *ropeJob) run(w *scratch, task int) {
	rotate := active.rotate
	if j.Dim/2%rowUnit != 0 {
		rotate = rotatePortable
	}
	lo, hi := j.bounds(task)
	for row := lo; row < hi; row++ {
		cos, sin := j.rotations.at(w, int(j.pos[row]))
		b, i := row/j.n, row%j.n
		rotate(j.dst[(b*j.Count*j.n+i)*j.Dim:], j.n*j.Dim, j.x[row*j.width+j.First*j.Dim:], cos, sin, j.Count)
	}
}

// rotations are the cosines and sines of one dim and theta, those of the positions
// [0, len(table)/dim) computed in advance. All layers of a model share them.
type rotations struct {
	dim         int
	theta       float64
	frequencies []float64 // [dim/2]
	table       []float32 // [positions, dim]: the cosines of a position, then its sines
}

// maxRotations bounds the table to 16 MiB: positions up to 32,768 at a head
// dimension of 128. Those beyond are computed when they are needed.
const maxRotations = 4 << 20

// prepare extends the table to the largest position that has a place in it.
func (r *rotations) prepare(dim int, theta float64, pos []int32) {
	if r.dim != dim || r.theta != theta {
		*r = rotations{dim: dim, theta: theta}
		for d := range dim / 2 {
			r.frequencies = append(r.frequencies, math.Pow(theta, -2*float64(d)/float64(dim)))
		}
	}
	have := len(r.table) / dim
	want := have
	for _, p := range pos {
		if p := int(p); p >= want && p < maxRotations/dim {
			want = p + 1
		}
	}
	if want == have {
		return
	}
	table := make([]float32, want*dim)
	copy(table, r.table)
	for p := have; p < want; p++ {
		r.fill(table[p*dim:][:dim], p)
	}
	r.table = table
}

func (r *rotations) fill(row []float32, pos int) {
	half := r.dim / 2
	for d, f := range r.frequencies {
		sin, cos := math.Sincos(float64(pos) * f)
		row[d], row[half+d] = float32(cos), float32(sin)
	}
}

// at returns the cosines and sines of a position, [dim/2] each.
func (r *rotations) at(w *scratch, pos int) (cos, sin []float32) {
	half := r.dim / 2
	if pos >= 0 && pos < len(r.table)/r.dim {
		row := r.table[pos*r.dim:][:r.dim]
		return row[:half], row[half:]
	}
	w.column = sized(&w.column, r.dim)
	row := w.column
	r.fill(row, pos)
	return row[:half], row[half:]
}
