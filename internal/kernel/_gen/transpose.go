package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func transposes() {
	transpose("transposeAVX2", "(dst []float32, ldd int, src []float32, lds, m, n int, scale []float32)",
		"is isa.transpose.", 4, true)
	transpose("packF32AVX2", "(dst []float32, ldd int, src []byte, lds, m, n int)",
		"is isa.packF32.", 4, false)
	transpose("packBF16AVX2", "(dst []float32, ldd int, src []byte, lds, m, n int)",
		"is isa.packBF16.", 2, false)
}

// transpose moves blocks of 8x8 elements. Elements of two bytes are bfloat16:
// the upper halves of a float32.
func transpose(name, signature, doc string, size int, scaled bool) {
	function(name, signature, doc)
	dst, ldd := loadBase("dst"), loadBytes("ldd", 4)
	src, lds := loadBase("src"), loadBytes("lds", size)
	m := load("m")
	ldd3, lds3 := times3(ldd), times3(lds)

	Label("rows")
	s, d, n := GP64(), GP64(), load("n")
	MOVQ(src, s)
	MOVQ(dst, d)
	var scale reg.GPVirtual
	if scaled {
		scale = loadBase("scale")
	}
	Label("columns")
	factor := YMM()
	if scaled {
		VMOVUPS(Mem{Base: scale}, factor)
		ADDQ(Imm(32), scale)
	}
	s4, d4 := plus4(s, lds), plus4(d, ldd)
	r := avx2.regs(8)
	for i, x := range r {
		at := row(i, s, s4, lds, lds3)
		switch {
		case size == 2:
			VPMOVZXWD(at, x)
			VPSLLD(Imm(16), x, x)
		case scaled:
			VMULPS(at, factor, x)
		default:
			VMOVUPS(at, x)
		}
	}
	// Interleave elements of rows 2i and 2i+1, then pairs of these, then halves.
	pairs := avx2.regs(8)
	for i := 0; i < 8; i += 2 {
		VUNPCKLPS(r[i+1], r[i], pairs[i])
		VUNPCKHPS(r[i+1], r[i], pairs[i+1])
	}
	quads := avx2.regs(8)
	for i := 0; i < 8; i += 4 {
		for j := range 2 {
			VSHUFPS(Imm(0x44), pairs[i+2+j], pairs[i+j], quads[i+2*j])
			VSHUFPS(Imm(0xee), pairs[i+2+j], pairs[i+j], quads[i+2*j+1])
		}
	}
	for i := range 4 {
		lower, upper := YMM(), YMM()
		VPERM2F128(Imm(0x20), quads[i+4], quads[i], lower)
		VPERM2F128(Imm(0x31), quads[i+4], quads[i], upper)
		VMOVUPS(lower, row(i, d, d4, ldd, ldd3))
		VMOVUPS(upper, row(i+4, d, d4, ldd, ldd3))
	}
	ADDQ(Imm(uint64(8*size)), s)
	LEAQ(Mem{Base: d, Index: ldd, Scale: 8}, d)
	SUBQ(Imm(8), n)
	JNZ(LabelRef("columns"))

	LEAQ(Mem{Base: src, Index: lds, Scale: 8}, src)
	ADDQ(Imm(32), dst)
	SUBQ(Imm(8), m)
	JNZ(LabelRef("rows"))
	finish()
}
