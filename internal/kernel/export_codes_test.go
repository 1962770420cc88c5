package kernel

import "github.com/pulsecol/pulsecol/internal/quant"

// checkedCodes is checked for products of codes.
func checkedCodes(p codeProducts) codeProducts {
	c := p
	panel := func(what string, f quant.Form, n int, codes, scales, minima []float32) {
		require(what+" inputs", n > 0 && n%blockInputs == 0, n)
		require(what+" panel", n/4*lanes <= len(codes) && n/f.Group*lanes <= len(scales), n, f.Group, len(codes), len(scales))
		require(what+" minima", f.Minima == (len(minima) > 0) && (!f.Minima || n/quant.MinimumGroup*lanes <= len(minima)), n, len(minima))
	}
	c.unpack = func(t quant.DType, codes []byte, scales, minima []float32, blocks []byte, rows, stride, n, ahead int) {
		f, in := t.Form(), n*t.Block()
		require("unpack", rows > 0 && n > 0 && stride >= n*t.BlockBytes(), rows, stride, n)
		require("unpack blocks", (rows-1)*stride+n*t.BlockBytes() <= len(blocks), rows, stride, n, len(blocks))
		require("unpack codes", rows*in <= len(codes) && rows*in/f.Group <= len(scales), rows, in, len(codes), len(scales))
		require("unpack minima", !f.Minima || rows*in/quant.MinimumGroup <= len(minima), rows, in, len(minima))
		p.unpack(t, codes, scales, minima, blocks, rows, stride, n, ahead)
	}
	c.expand = func(f quant.Form, dst, codes, scales, minima []float32, n int) {
		panel("expand", f, n, codes, scales, minima)
		require("expand dst", n*lanes <= len(dst), n, len(dst))
		p.expand(f, dst, codes, scales, minima, n)
	}
	c.roundBlocks = func(dst, src []float32, blocks int) {
		require("roundBlocks", blocks > 0 && blocks*blockInputs <= len(src), blocks, len(src))
		require("roundBlocks dst", (blocks-1)*codeRows*blockWords+blockWords <= len(dst), blocks, len(dst))
		p.roundBlocks(dst, src, blocks)
	}
	c.mulBlocks = func(f quant.Form, y []float32, ldy int, x []float32, ldx, rows, blocks int, codes, scales, minima []float32, accumulate bool) {
		panel("mulBlocks", f, blocks*blockInputs, codes, scales, minima)
		require("mulBlocks rows", rows > 0 && rows%codeRows == 0, rows)
		require("mulBlocks x", (rows/codeRows-1)*ldx+blocks*codeRows*blockWords <= len(x), rows, ldx, blocks, len(x))
		require("mulBlocks y", ldy >= lanes && (rows-1)*ldy+lanes <= len(y), rows, ldy, len(y))
		p.mulBlocks(f, y, ldy, x, ldx, rows, blocks, codes, scales, minima, accumulate)
	}
	return c
}
