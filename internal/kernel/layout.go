package kernel

import "fmt"

// SplitHeads turns x [B, N, H*D], what a projection gives, into dst [B, H, N, D],
// what attention takes.
func SplitHeads(dst, x []float32, batch, n, heads, dim int) {
	checkSplit("SplitHeads", dst, x, batch, n, heads, dim)
	parallelRange(batch*n, max(1, elementGrain/(heads*dim)), func(lo, hi int) {
		for row := lo; row < hi; row++ {
			b, i := row/n, row%n
			for h := range heads {
				copy(dst[((b*heads+h)*n+i)*dim:][:dim], x[(row*heads+h)*dim:])
			}
		}
	})
}

// MergeHeads is the inverse of SplitHeads: x [B, H, N, D] gives dst [B, N, H*D].
func MergeHeads(dst, x []float32, batch, n, heads, dim int) {
	checkSplit("MergeHeads", dst, x, batch, n, heads, dim)
	parallelRange(batch*n, max(1, elementGrain/(heads*dim)), func(lo, hi int) {
		for row := lo; row < hi; row++ {
			b, i := row/n, row%n
			for h := range heads {
				copy(dst[(row*heads+h)*dim:][:dim], x[((b*heads+h)*n+i)*dim:])
			}
		}
	})
}

func checkSplit(fn string, dst, x []float32, batch, n, heads, dim int) {
	if batch <= 0 || n <= 0 || heads <= 0 || dim <= 0 || !fits(batch, n, heads, dim) {
		panic(fmt.Sprintf("kernel: %s: batch %d, length %d, heads %d, head dim %d: must be positive", fn, batch, n, heads, dim))
	}
	checkLen(fn, "dst", len(dst), batch*n*heads*dim)
	checkLen(fn, "x", len(x), batch*n*heads*dim)
}
