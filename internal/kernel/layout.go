package kernel

import "fmt"

// SplitHeads turns x [B, N, H*D], what a projection gives, into dst [B, H, N, D],
// what attention takes.
func (t *Team) SplitHeads(dst, x []float32, batch, n, heads, dim int) {
	checkSplit("SplitHeads", dst, x, batch, n, heads, dim)
	s := rowSpans(batch*n, heads*dim)
	run(t, &t.heads, s.tasks(), headsJob{dst, x, n, heads, dim, false, s})
}

// MergeHeads is the inverse of SplitHeads: x [B, H, N, D] gives dst [B, N, H*D].
func (t *Team) MergeHeads(dst, x []float32, batch, n, heads, dim int) {
	checkSplit("MergeHeads", dst, x, batch, n, heads, dim)
	s := rowSpans(batch*n, heads*dim)
	run(t, &t.heads, s.tasks(), headsJob{dst, x, n, heads, dim, true, s})
}

type headsJob struct {
	dst, x        []float32
	n, heads, dim int
	merge         bool
	spans
}

func (j *headsJob) run(_ *scratch, task int) {
	lo, hi := j.bounds(task)
	for row := lo; row < hi; row++ {
		b, i := row/j.n, row%j.n
		for h := range j.heads {
			split, merged := ((b*j.heads+h)*j.n+i)*j.dim, (row*j.heads+h)*j.dim
			if j.merge {
				copy(j.dst[merged:][:j.dim], j.x[split:])
			} else {
				copy(j.dst[split:][:j.dim], j.x[merged:])
			}
		}
	}
}

func checkSplit(fn string, dst, x []float32, batch, n, heads, dim int) {
	if batch <= 0 || n <= 0 || heads <= 0 || dim <= 0 || !fits(batch, n, heads, dim) {
		panic(fmt.Sprintf("kernel: %s: batch %d, length %d, heads %d, head dim %d: must be positive", fn, batch, n, heads, dim))
	}
	checkLen(fn, "dst", len(dst), batch*n*heads*dim)
	checkLen(fn, "x", len(x), batch*n*heads*dim)
}
