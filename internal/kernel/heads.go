package kernel

import "fmt"

// Heads are heads First to First+Count-1 of features that are heads of Dim each.
type Heads struct{ First, Count, Dim int }

// SplitHeads changes the layout of heads of x [B, N, T*Dim], the output of a projection, to
// dst [B, Count, N, Dim], the input of attention.
func (t *Team) SplitHeads(dst, x []float32, batch, n int, h Heads) {
	width := checkSplit("SplitHeads", dst, x, batch, n, h)
	s := rowSpans(batch*n, h.Count*h.Dim)
	run(t, &t.heads, s.tasks(), headsJob{dst, x, n, width, h, false, s})
}

// MergeHeads is the inverse of SplitHeads: x [B, H, N, D] gives dst [B, N, H*D].
func (t *Team) MergeHeads(dst, x []float32, batch, n, heads, dim int) {
	h := Heads{0, heads, dim}
	checkSplit("MergeHeads", x, dst, batch, n, h)
	checkLen("MergeHeads", "dst", len(dst), len(x))
	s := rowSpans(batch*n, heads*dim)
	run(t, &t.heads, s.tasks(), headsJob{dst, x, n, heads * dim, h, true, s})
}

type headsJob struct {
	dst, x []float32
	n      int
	width  int // features of a token
	Heads
	merge bool
	spans
}

func (j *headsJob) run(_ *scratch, task int) {
	lo, hi := j.bounds(task)
	for row := lo; row < hi; row++ {
		b, i := row/j.n, row%j.n
		for h := range j.Count {
			split, merged := ((b*j.Count+h)*j.n+i)*j.Dim, row*j.width+(j.First+h)*j.Dim
			if j.merge {
				copy(j.dst[merged:][:j.Dim], j.x[split:])
			} else {
				copy(j.dst[split:][:j.Dim], j.x[merged:])
			}
		}
	}
}

// checkSplit returns the features of a token of x.
func checkSplit(fn string, dst, x []float32, batch, n int, h Heads) (width int) {
	if batch <= 0 || n <= 0 || h.First < 0 || h.Count <= 0 || h.Dim <= 0 || !fits(batch, n, h.Count, h.Dim) {
		panic(fmt.Sprintf("kernel: %s: batch %d, length %d, heads %d to %d of dim %d: must be positive", fn, batch, n, h.First, h.First+h.Count-1, h.Dim))
	}
	width = len(x) / (batch * n)
	checkLen(fn, "x", len(x), batch*n*width)
	if width%h.Dim != 0 || width/h.Dim-h.First < h.Count {
		panic(fmt.Sprintf("kernel: %s: %d features have no heads %d to %d of dim %d", fn, width, h.First, h.First+h.Count-1, h.Dim))
	}
	checkLen(fn, "dst", len(dst), batch*n*h.Count*h.Dim)
	return width
}
