//go:build !noasm

package kernel

import (
	"golang.org/x/sys/cpu"

	"github.com/pulsecol/pulsecol/internal/quant"
)

// neonCodes multiplies with SDOT, which processors from about 2018 on have.
func neonCodes() codeProducts {
	p := portableCodes
	p.expand = func(f quant.Form, dst, codes, scales, minima []float32, n int) {
		expandNEON(dst, codes, scales, minima, n, f.Group, f.Offset)
	}
	if cpu.ARM64.HasASIMDDP {
		p.mulBlocks = func(f quant.Form, y []float32, ldy int, x []float32, ldx, rows, blocks int, codes, scales, minima []float32, accumulate bool) {
			mulBlocksSDOT(y, ldy, x, ldx, rows, blocks, codes, scales, minima, f.Offset, f.Group, accumulate)
		}
		p.peak = peakSDOT
	}
	return p
}
