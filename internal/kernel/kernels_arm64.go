//go:build !noasm

package kernel

// mulRowsNEON is level.mulRows.
//
//go:noescape
func mulRowsNEON(list []int32, k int, a []float32, lda int, b, c []float32, ldc int, accumulate bool, next *ahead)

// mulColsNEON is level.mulCols.
//
//go:noescape
func mulColsNEON(m int, list []int32, a []float32, lda int, b, c []float32, ldc int, keep *[lanes]float32, next *ahead)

// softmaxNEON is level.softmax.
//
//go:noescape
func softmaxNEON(s []float32, rows int, state []float32)

// scaleRowsNEON is level.scaleRows.
//
//go:noescape
func scaleRowsNEON(c []float32, rows int, w []float32)

// dotRowsNEON is level.dotRows.
//
//go:noescape
func dotRowsNEON(dst, p []float32, rows int, w []float32)

// spinNEON is level.spin.
//
//go:noescape
func spinNEON(n int) (flops int)

// swiGLUNEON is level.swiGLU.
//
//go:noescape
func swiGLUNEON(dst, gate, up []float32)
