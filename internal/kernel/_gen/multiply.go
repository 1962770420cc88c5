package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Both multiplications compute a tile of results at a time, with the tile's sums
// in registers. The tile is as large as registers allow: each step loads one row
// of b and broadcasts one element of a per row of the tile.
//
//	AVX-512: 8 rows x 32 columns, 16 of 32 registers
//	AVX2:    4 rows x 16 columns, 8 of 16 registers, twice for 32 columns
//
// AVX512-BF16 and AVX512-VNNI have the tile of AVX-512; their elements are pairs.
//
// Their inner loops pause every prefetchSteps steps to fetch memory for a later
// call, see prefetch.

const prefetchSteps = 16

// prefetchRows is the distance in rows at which both prefetch into the first-level cache. The products
// of a step that has to wait for the second-level cache are issued twice.
const prefetchRows = 8

// tileRows is the number of rows of a tile; its width is two vectors.
func (v *isa) tileRows() int {
	if v == avx2 {
		return 4
	}
	return 8
}

// The parameters that both multiplications have at the same place of the frame.
var (
	lenParam  = map[bool]Mem{true: NewParamAddr("list_len", 8), false: NewParamAddr("list_len", 16)}
	aParam    = NewParamAddr("a_base", 32)
	ldaParam  = NewParamAddr("lda", 56)
	bParam    = NewParamAddr("b_base", 64)
	cParam    = NewParamAddr("c_base", 88)
	ldcParam  = NewParamAddr("ldc", 112)
	addParam  = NewParamAddr("accumulate", 120)
	keepParam = NewParamAddr("keep", 120) // of mulCols, at the same place
	nextParam = NewParamAddr("next", 128)
)

// prefetchType is the type prefetch of that name in package kernel.
const prefetchType = "[3]struct{ left int; list *int32; rows *float32; ld, lines, line, burst int }"

// prefetch prefetches cache lines of the matrix that the parameter next describes. The
// offsets are those of struct prefetch. Rows are taken from the end of the list, lines
// from the end of a row.
func prefetch(name string) {
	const left, list, base, ld, lines, line, burst, size = 0, 8, 16, 24, 32, 40, 48, 56
	h, i := GP64(), GP64()
	MOVQ(nextParam, h)
	TESTQ(h, h)
	JZ(LabelRef(name + "_end"))
	MOVQ(Mem{Base: h, Disp: burst}, i)
	Label(name + "_line")
	at, n := GP64(), GP64()
	MOVQ(Mem{Base: h, Disp: left}, at)
	MOVQ(Mem{Base: h, Disp: line}, n)
	TESTQ(n, n)
	JNZ(LabelRef(name + "_more"))
	TESTQ(at, at)
	JNZ(LabelRef(name + "_row"))
	ADDQ(Imm(size), h)
	CMPQ(Mem{Base: h, Disp: base}, Imm(0))
	JZ(LabelRef(name + "_end"))
	JMP(LabelRef(name + "_line"))
	Label(name + "_row")
	DECQ(at)
	MOVQ(at, Mem{Base: h, Disp: left})
	MOVQ(Mem{Base: h, Disp: lines}, n)
	Label(name + "_more")
	row := GP64()
	MOVQ(Mem{Base: h, Disp: list}, row)
	MOVLQSX(Mem{Base: row, Index: at, Scale: 4}, row)
	IMULQ(Mem{Base: h, Disp: ld}, row)
	ADDQ(Mem{Base: h, Disp: base}, row)
	MOVQ(n, at)
	SHLQ(Imm(6), at)
	ADDQ(at, row)
	Label(name + "_fetch")
	SUBQ(Imm(64), row)
	PREFETCHT1(Mem{Base: row})
	DECQ(n)
	DECQ(i)
	JZ(LabelRef(name + "_pause"))
	TESTQ(n, n)
	JNZ(LabelRef(name + "_fetch"))
	MOVQ(n, Mem{Base: h, Disp: line})
	JMP(LabelRef(name + "_line"))
	Label(name + "_pause")
	MOVQ(n, Mem{Base: h, Disp: line})
	Label(name + "_end")
}

// step adds to the sums the products of one row of b with one element of a per
// row of the tile.
func (v *isa) step(b reg.GPVirtual, sums []reg.VecVirtual, element func(i int) Mem) {
	right, left := v.regs(2), v.reg()
	for j, x := range right {
		VMOVUPS(Mem{Base: b, Disp: j * v.bytes()}, x)
	}
	for i := range v.tileRows() {
		VBROADCASTSS(element(i), left)
		for j, x := range right {
			v.multiplyAdd(x, left, sums[2*i+j])
		}
	}
	ADDQ(Imm(4*panelLanes), b)
}

// prefetchElements fetches, for the next tile of mulRows, the cache lines at the place
// that this one has just passed.
func (v *isa) prefetchElements(listParam, kParam Mem, offset reg.GPVirtual) {
	list, lda, end, at := GP64(), GP64(), GP64(), GP64()
	MOVQ(listParam, list)
	MOVQ(ldaParam, lda)
	MOVQ(kParam, end)
	SHLQ(Imm(2), end)
	ADDQ(aParam, end)
	ADDQ(offset, end)
	for i := range v.tileRows() {
		MOVLQSX(Mem{Base: list, Disp: 4 * i}, at)
		IMULQ(lda, at)
		PREFETCHT0(Mem{Base: end, Index: at, Scale: 4, Disp: -4 * prefetchSteps})
	}
}

// storeTile writes the sums of a tile, after adding what a parameter asks for, to
// columns from column on of the rows that c points at: with keep those of mulCols,
// otherwise those of mulRows.
func (v *isa) storeTile(name string, sums []reg.VecVirtual, column int, keep bool) {
	c, ldc := GP64(), GP64()
	MOVQ(cParam, c)
	MOVQ(ldcParam, ldc)
	SHLQ(Imm(2), ldc)
	each := func(c reg.GPVirtual, f func(at Mem, j int, sum reg.VecVirtual)) {
		for i := range v.tileRows() {
			for j := range 2 {
				f(Mem{Base: c, Disp: 4*column + j*v.bytes()}, j, sums[2*i+j])
			}
			ADDQ(ldc, c)
		}
	}
	before := GP64()
	switch {
	case keep && v == avx512vnni: // sums are not accumulated
	case keep:
		factors := GP64()
		MOVQ(keepParam, factors)
		TESTQ(factors, factors)
		JZ(LabelRef(name))
		factor := v.regs(2)
		for j, x := range factor {
			VMOVUPS(Mem{Base: factors, Disp: 4*column + j*v.bytes()}, x)
		}
		MOVQ(c, before)
		each(before, func(at Mem, j int, sum reg.VecVirtual) { VFMADD231PS(at, factor[j], sum) })
	default:
		add := GP8()
		MOVB(addParam, add)
		TESTB(add, add)
		JZ(LabelRef(name))
		MOVQ(c, before)
		each(before, func(at Mem, _ int, sum reg.VecVirtual) {
			if v == avx512vnni {
				VPADDD(at, sum, sum)
			} else {
				VADDPS(at, sum, sum)
			}
		})
	}
	Label(name)
	each(c, func(at Mem, _ int, sum reg.VecVirtual) { VMOVUPS(sum, at) })
	if column+2*v.lanes == panelLanes {
		MOVQ(c, cParam) // the next rows
	}
}

// mulRows keeps pointers to the ends of the rows of a in registers, so that one
// offset, from minus the length of a row up to 0, addresses all of them.
func (v *isa) mulRows() {
	function("mulRows"+v.name,
		"(list []int32, k int, a []float32, lda int, b, c []float32, ldc int, accumulate bool, next *"+prefetchType+")",
		"is isa.mulRows.")
	listParam, kParam := NewParamAddr("list_base", 0), NewParamAddr("k", 24)
	rows := v.tileRows()
	Label("tile")
	ends := make([]reg.GPVirtual, rows)
	list, end := GP64(), GP64()
	MOVQ(listParam, list)
	MOVQ(kParam, end)
	SHLQ(Imm(2), end)
	ADDQ(aParam, end)
	for i := range ends {
		ends[i] = GP64()
		MOVLQSX(Mem{Base: list, Disp: 4 * i}, ends[i])
		IMULQ(ldaParam, ends[i])
		LEAQ(Mem{Base: end, Index: ends[i], Scale: 4}, ends[i])
	}
	ADDQ(Imm(uint64(4*rows)), list)
	MOVQ(list, listParam)
	for column := 0; column < panelLanes; column += 2 * v.lanes {
		suffix := map[bool]string{true: "_right"}[column > 0]
		offset, b := GP64(), GP64()
		MOVQ(kParam, offset)
		SHLQ(Imm(2), offset)
		NEGQ(offset)
		MOVQ(bParam, b)
		if column > 0 {
			ADDQ(Imm(uint64(4*column)), b)
		}
		sums := v.zeros(2 * rows)
		Label("k" + suffix)
		v.step(b, sums, func(i int) Mem { return Mem{Base: ends[i], Index: offset, Scale: 1} })
		ADDQ(Imm(4), offset)
		TESTQ(U32(4*prefetchSteps-1), offset)
		JNZ(LabelRef("k" + suffix))
		if column == 0 {
			v.prefetchElements(listParam, kParam, offset)
		}
		prefetch("prefetch" + suffix)
		TESTQ(offset, offset)
		JNZ(LabelRef("k" + suffix))
		v.storeTile("store"+suffix, sums, column, false)
	}
	SUBQ(Imm(uint64(rows)), lenParam[true])
	JNZ(LabelRef("tile"))
	finish()
}

// mulCols walks over the rows of a, of which one tile reads a few elements side
// by side.
func (v *isa) mulCols() {
	function("mulCols"+v.name,
		"(m int, list []int32, a []float32, lda int, b, c []float32, ldc int, keep *[32]float32, next *"+prefetchType+")",
		"is isa.mulCols.")
	mParam, listParam := NewParamAddr("m", 0), NewParamAddr("list_base", 8)
	rows := v.tileRows()
	end, lda := GP64(), GP64()
	Label("tile")
	// left counts the rows of a up to 0; the list is addressed from its end.
	MOVQ(lenParam[false], end)
	SHLQ(Imm(2), end)
	ADDQ(listParam, end)
	MOVQ(ldaParam, lda)
	for column := 0; column < panelLanes; column += 2 * v.lanes {
		suffix := map[bool]string{true: "_right"}[column > 0]
		a, b, left := GP64(), GP64(), GP64()
		MOVQ(aParam, a)
		MOVQ(bParam, b)
		if column > 0 {
			ADDQ(Imm(uint64(4*column)), b)
		}
		MOVQ(lenParam[false], left)
		NEGQ(left)
		sums := v.zeros(2 * rows)
		Label("k" + suffix)
		soon, at := GP64(), GP64()
		MOVLQSX(Mem{Base: end, Index: left, Scale: 4, Disp: 4 * prefetchRows}, soon)
		IMULQ(lda, soon)
		PREFETCHT0(Mem{Base: a, Index: soon, Scale: 4})
		MOVLQSX(Mem{Base: end, Index: left, Scale: 4}, at)
		IMULQ(lda, at)
		v.step(b, sums, func(i int) Mem { return Mem{Base: a, Index: at, Scale: 4, Disp: 4 * i} })
		INCQ(left)
		TESTQ(U32(prefetchSteps-1), left)
		JNZ(LabelRef("k" + suffix))
		prefetch("prefetch" + suffix)
		TESTQ(left, left)
		JNZ(LabelRef("k" + suffix))
		v.storeTile("store"+suffix, sums, column, true)
	}
	ADDQ(Imm(uint64(4*rows)), aParam)
	SUBQ(Imm(uint64(rows)), mParam)
	JNZ(LabelRef("tile"))
	finish()
}
