package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// Comparisons of VPCMPUD.
const (
	equal   = 0
	greater = 6
)

// splat makes a vector with the 32 bits of x in all lanes.
func splat(x uint32) Op {
	g, r := GP32(), ZMM()
	MOVL(U32(x), g)
	VPBROADCASTD(g, r)
	return r
}

func sortKeys() {
	function("sortKeysAVX512", "(order []uint32, scores []float32)", "is isa.sortKeys.")
	order, scores, n := loadBase("order"), loadBase("scores"), GP64()
	Load(Param("scores").Len(), n)
	sign, magnitude, inf, one := splat(1<<31), splat(1<<31-1), splat(0x7f800000), splat(1)
	Label("next")
	bits, abs, flip := ZMM(), ZMM(), ZMM()
	nan, positive := K(), K()
	VMOVDQU32(Mem{Base: scores}, bits)
	VPANDD(magnitude, bits, abs)
	VPCMPUD(Imm(greater), inf, abs, nan)
	// -0 becomes 0.
	VPTESTMD(magnitude, bits, positive)
	VMOVDQA32_Z(bits, positive, bits)
	VPSRAD(Imm(31), bits, flip)
	VPORD(sign, flip, flip)
	VPXORD(flip, bits, bits)
	VMOVDQA32(one, nan, bits)
	VMOVDQU32(bits, Mem{Base: order})
	ADDQ(Imm(64), scores)
	ADDQ(Imm(64), order)
	SUBQ(Imm(16), n)
	JNZ(LabelRef("next"))
	finish()
}

func partition() {
	function("partitionAVX512", "(bits, ties, order []uint32, digit uint32) int", "is isa.partition.")
	bits, ties, order, n := loadBase("bits"), loadBase("ties"), loadBase("order"), GP64()
	Load(Param("order").Len(), n)
	digit := ZMM()
	VPBROADCASTD(Load(Param("digit"), GP32()), digit)
	start, index, step := GP64(), ZMM(), splat(16)
	MOVQ(ties, start)
	table := GLOBL("firstIndices", attr.RODATA|attr.NOPTR)
	for i := range 16 {
		DATA(4*i, U32(uint32(i)))
	}
	VMOVDQU32(table.Offset(0), index)
	Label("next")
	r, equals := ZMM(), ZMM()
	above, tie := K(), K()
	mask, count := GP32(), GP32()
	VPSRLD(Imm(21), Mem{Base: order}, r)
	VPCMPUD(Imm(greater), digit, r, above)
	VPCMPUD(Imm(equal), digit, r, tie)
	KMOVW(above, mask)
	MOVW(mask.As16(), Mem{Base: bits})
	// The ties come first, and what follows is overwritten by the next ones.
	VPCOMPRESSD_Z(index, tie, equals)
	VMOVDQU32(equals, Mem{Base: ties})
	KMOVW(tie, count)
	POPCNTL(count, count)
	LEAQ(Mem{Base: ties, Index: count.As64(), Scale: 4}, ties)
	VPADDD(step, index, index)
	ADDQ(Imm(64), order)
	ADDQ(Imm(2), bits)
	SUBQ(Imm(16), n)
	JNZ(LabelRef("next"))
	SUBQ(start, ties)
	SHRQ(Imm(2), ties)
	Store(ties, ReturnIndex(0))
	finish()
}
