package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// mulPanel multiplies a tile of rows at a time, with the tile's sums in
// registers. The tile is as large as registers allow: each k step loads one row
// of b and broadcasts one element of a per row of the tile.
//
//	AVX-512: 8 rows x 32 columns, 16 of 32 registers
//	AVX2:    4 rows x 16 columns, 8 of 16 registers, twice for 32 columns
func (v *isa) mulPanel() {
	function("mulPanel"+v.name,
		"(m, k int, a []float32, rs, cs int, b []float32, ldb int, c []float32, ldc int, accumulate bool)",
		"is level.mulPanel.")
	rows, vectors := 8, 2
	if v == avx2 {
		rows = 4
	}
	m := load("m")
	a, rs, cs := loadBase("a"), loadBytes("rs", 4), loadBytes("cs", 4)
	b, ldb := loadBase("b"), loadBytes("ldb", 4)
	c, ldc := loadBase("c"), loadBytes("ldc", 4)
	rs3 := times3(rs)

	Label("rows")
	for column := 0; column < panelLanes; column += vectors * v.lanes {
		suffix := ""
		if column > 0 {
			suffix = "_right"
		}
		k := load("k")
		a0, b0 := GP64(), GP64()
		MOVQ(a, a0)
		a4 := a0
		if rows > 4 {
			a4 = plus4(a0, rs)
		}
		LEAQ(Mem{Base: b, Disp: 4 * column}, b0)
		sums := v.zeros(rows * vectors)
		right := v.regs(vectors)
		left := v.reg()

		Label("k" + suffix)
		for j, x := range right {
			VMOVUPS(Mem{Base: b0, Disp: j * v.bytes()}, x)
		}
		for i := range rows {
			VBROADCASTSS(row(i, a0, a4, rs, rs3), left)
			for j, x := range right {
				VFMADD231PS(x, left, sums[i*vectors+j])
			}
		}
		ADDQ(cs, a0)
		if rows > 4 {
			ADDQ(cs, a4)
		}
		ADDQ(ldb, b0)
		DECQ(k)
		JNZ(LabelRef("k" + suffix))

		// The row pointer of c runs in a0, which is free now.
		LEAQ(Mem{Base: c, Disp: 4 * column}, a0)
		accumulate := Load(Param("accumulate"), GP8())
		TESTB(accumulate, accumulate)
		JZ(LabelRef("store" + suffix))
		c0 := GP64()
		MOVQ(a0, c0)
		for i := range rows {
			for j := range vectors {
				s := sums[i*vectors+j]
				VADDPS(Mem{Base: c0, Disp: j * v.bytes()}, s, s)
			}
			if i < rows-1 {
				ADDQ(ldc, c0)
			}
		}
		Label("store" + suffix)
		for i := range rows {
			for j := range vectors {
				VMOVUPS(sums[i*vectors+j], Mem{Base: a0, Disp: j * v.bytes()})
			}
			if i < rows-1 {
				ADDQ(ldc, a0)
			}
		}
	}
	LEAQ(Mem{Base: a, Index: rs, Scale: 4}, a)
	LEAQ(Mem{Base: c, Index: ldc, Scale: 4}, c)
	if rows > 4 {
		LEAQ(Mem{Base: a, Index: rs, Scale: 4}, a)
		LEAQ(Mem{Base: c, Index: ldc, Scale: 4}, c)
	}
	SUBQ(Imm(uint64(rows)), m)
	JNZ(LabelRef("rows"))
	finish()
}
