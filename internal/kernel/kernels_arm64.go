//go:build !noasm

package kernel

// mulRowsNEON is isa.mulRows.
//
//go:noescape
func mulRowsNEON(list []int32, k int, a []float32, lda int, b, c []float32, ldc int, accumulate bool, next *prefetch)

// mulColsNEON is isa.mulCols.
//
//go:noescape
func mulColsNEON(m int, list []int32, a []float32, lda int, b, c []float32, ldc int, keep *[lanes]float32, next *prefetch)

// softmaxNEON is isa.softmax.
//
//go:noescape
func softmaxNEON(s []float32, rows int, state []float32)

// scaleRowsNEON is isa.scaleRows.
//
//go:noescape
func scaleRowsNEON(c []float32, rows int, w []float32)

// dotRowsNEON is isa.dotRows.
//
//go:noescape
func dotRowsNEON(dst, p []float32, rows int, w []float32)

// peakFMANEON is isa.peakFMA.
//
//go:noescape
func peakFMANEON(n int) (flops int)

// swiGLUNEON is isa.swiGLU.
//
//go:noescape
func swiGLUNEON(dst, gate, up []float32)

// mulBlocksSDOT is codeProducts.mulBlocks.
//
//go:noescape
func mulBlocksSDOT(y []float32, ldy int, x []float32, ldx, rows, blocks int, codes, scales, minima []float32, offset, group int, accumulate bool)

// expandNEON is codeProducts.expand; minima may be empty.
//
//go:noescape
func expandNEON(dst, codes, scales, minima []float32, n, group, offset int)

// peakSDOT is codeProducts.peak.
//
//go:noescape
func peakSDOT(n int) (flops int)
