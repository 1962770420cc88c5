//go:build !noasm

package kernel

// isas lists the isas of this machine, fastest first. Every arm64 processor has vectors of
// four float32. The hardware prefetches, and portable Go runs the routines that take little
// time.
func isas() []*isa {
	neon := portable
	neon.name = "neon"
	neon.mulRows = mulRowsNEON
	neon.mulCols = mulColsNEON
	neon.softmax = softmaxNEON
	neon.scaleRows = scaleRowsNEON
	neon.dotRows = dotRowsNEON
	neon.swiGLU = swiGLUNEON
	neon.peakFMA = peakFMANEON
	neon.bf16 = neon.roundedProducts(roundRowsPortable)
	neon.int16 = neon.integerProducts()
	neon.codes = neonCodes()
	return []*isa{&neon, &portable}
}
