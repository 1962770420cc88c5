//go:build !noasm

package kernel

// levels lists what this machine can run, fastest first. Every arm64 processor has
// vectors of four float32. Fetching ahead is left to the hardware, and what takes
// little time to portable Go.
func levels() []*level {
	neon := portable
	neon.name = "neon"
	neon.mulRows = mulRowsNEON
	neon.mulCols = mulColsNEON
	neon.softmax = softmaxNEON
	neon.scaleRows = scaleRowsNEON
	neon.dotRows = dotRowsNEON
	neon.swiGLU = swiGLUNEON
	neon.spin = spinNEON
	neon.bf16 = neon.roundedProducts(roundRowsPortable)
	neon.int16 = neon.integerProducts()
	return []*level{&neon, &portable}
}
