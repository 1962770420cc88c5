//go:build amd64 && !noasm

package kernel

import (
	"math/bits"

	"github.com/pulsecol/pulsecol/internal/quant"
)

// avx2Codes unpacks a block of 32 codes to a register.
func avx2Codes() codeProducts {
	p := portableCodes
	p.unpack = unpackAVX2
	p.roundBlocks = roundBlocksAVX2
	p.mulBlocks = mulBlocksAVX2
	p.peak = peakInt8AVX2
	p.expand = func(f quant.Form, dst, codes, scales, minima []float32, n int) {
		expandAVX2(dst, codes, scales, minima, n, f.Group, f.Offset)
	}
	return p
}

// avx512Codes are without VNNI.
func avx512Codes() codeProducts {
	p := avx2Codes()
	p.expand = func(f quant.Form, dst, codes, scales, minima []float32, n int) {
		expandAVX512(dst, codes, scales, minima, n, f.Group, f.Offset)
	}
	return p
}

func avx512VNNICodes() codeProducts {
	p := avx512Codes()
	p.mulBlocks = mulBlocksAVX512VNNI
	p.peak = peakInt8AVX512VNNI
	return p
}

func unpackAVX2(t quant.DType, codes []byte, scales, minima []float32, blocks []byte, rows, stride, n, ahead int) {
	switch t {
	case Q8_0:
		unpackQ8_0AVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	case Q4_0:
		unpackQ4_0AVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	case Q4_1:
		unpackQ4_1AVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	case Q5_0:
		unpackQ5_0AVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	case Q5_1:
		unpackQ5_1AVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	case Q4_K:
		unpackQ4_KAVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	case Q5_K:
		unpackQ5_KAVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	case Q6_K:
		unpackQ6_KAVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	case IQ4_NL:
		unpackIQ4_NLAVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	case IQ4_XS:
		unpackIQ4_XSAVX2(codes, scales, minima, blocks, rows, stride, n, ahead)
	default:
		unpackPortable(t, codes, scales, minima, blocks, rows, stride, n, ahead)
	}
}

func mulBlocksAVX2(f quant.Form, y []float32, ldy int, x []float32, ldx, rows, blocks int, codes, scales, minima []float32, accumulate bool) {
	multiply := mulBlocksOffsetAVX2
	switch {
	case f.Minima:
		multiply = mulBlocksMinimaAVX2
	case f.Group < blockInputs:
		multiply = mulBlocksHalvesAVX2
	case f.Offset == 128:
		multiply = mulBlocksSignedAVX2
	}
	multiply(y, ldy, x, ldx, rows, blocks, codes, scales, minima, bits.Len(uint(f.Offset))-1, accumulate)
}

func mulBlocksAVX512VNNI(f quant.Form, y []float32, ldy int, x []float32, ldx, rows, blocks int, codes, scales, minima []float32, accumulate bool) {
	multiply := mulBlocksOffsetAVX512VNNI
	switch {
	case f.Minima:
		multiply = mulBlocksMinimaAVX512VNNI
	case f.Group < blockInputs:
		multiply = mulBlocksHalvesAVX512VNNI
	}
	multiply(y, ldy, x, ldx, rows, blocks, codes, scales, minima, bits.Len(uint(f.Offset))-1, accumulate)
}
