package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AMX multiplies tiles: an instruction adds to [16, 16] sums the products of 16
// rows of 16 words and 16 words of 16 columns. A word is a pair of bfloat16, as for
// AVX512-BF16. There are eight tiles; a step multiplies two by two:
//
//	0 1   sums of rows  0..15, columns 0..15 and 16..31
//	2 3   sums of rows 16..31
//	4 5   rows of a
//	6 7   columns of b
//
// In memory, c and b have the layout of all instruction sets. a is made of tiles, which are read
// in the order of their addresses, which hardware prefetches.
// Element p of row i of a is word
//
//	i/16*16*lda + p/16*256 + i%16*16 + p%16
//
// Each routine configures the tiles and releases them: they belong to a thread, and
// a goroutine may be on another one at its next call.

const (
	tileRows  = 16
	tileWords = 16
	tileBytes = 4 * tileWords // of a row
)

// onMemory emits an instruction on a tile and memory at base + index, or at base if
// index is nil.
func onMemory(name string, prefix, opcode, t uint32, base, index reg.Register, disp int) {
	inputs := []Op{base}
	if index != nil {
		inputs = append(inputs, index)
	}
	encode("AMX", inputs, nil, func(registers []uint32) string {
		const sib, disp32, none = 4, 2 << 6, 4
		b, x := registers[0], uint32(none)
		if index != nil {
			x = registers[1]
		}
		return fmt.Sprintf("$0x%08x; WORD $0x%04x; LONG $0x%08x // %s T%d, %d(R%d)(R%d*1)",
			vex(x, b, 0, prefix, opcode), disp32|t<<3|sib|((x&7)<<3|b&7)<<8, uint32(disp), name, t, disp, b, x)
	})
}

// onTiles emits an instruction on tiles alone.
func onTiles(name string, prefix, opcode, dst, x, y uint32) {
	encode("AMX", nil, nil, func([]uint32) string {
		return fmt.Sprintf("$0x%08x; BYTE $0x%02x // %s T%d, T%d, T%d", vex(0, 0, y, prefix, opcode), 3<<6|dst<<3|x, name, y, x, dst)
	})
}

func tileLoad(at, stride reg.Register, disp int, t uint32) {
	onMemory("TILELOADD", prefixF2, 0x4b, t, at, stride, disp)
}

// tileStream is tileLoad of what will not be needed again soon: it leaves the
// first-level cache to others.
func tileStream(at, stride reg.Register, disp int, t uint32) {
	onMemory("TILELOADDT1", prefix66, 0x4b, t, at, stride, disp)
}

func tileStore(t uint32, at, stride reg.Register, disp int) {
	onMemory("TILESTORED", prefixF3, 0x4b, t, at, stride, disp)
}

func tileZero(t uint32)           { onTiles("TILEZERO", prefixF2, 0x49, t, 0, 0) }
func tileRelease()                { onTiles("TILERELEASE", prefixNone, 0x49, 0, 0, 0) }
func tileMultiply(x, y, t uint32) { onTiles("TDPBF16PS", prefixF3, 0x5c, t, x, y) }

// tileConfig gives the tiles of upper rows, 0, 1 and 4, and of lower rows, 2, 3 and
// 5, as many as they have.
func tileConfig(upper, lower int) {
	name := fmt.Sprintf("tiles%d_%d", upper, lower)
	config, ok := tileConfigs[name]
	if !ok {
		config = GLOBL(name, attr.RODATA|attr.NOPTR)
		rows := []int{upper, upper, lower, lower, upper, lower, tileRows, tileRows}
		DATA(0, U64(1)) // palette
		DATA(8, U64(0))
		for i := range 2 {
			DATA(16+8*i, U64(tileBytes*0x0001000100010001))
		}
		DATA(32, U64(0))
		DATA(40, U64(0))
		var bits uint64
		for i, r := range rows {
			bits |= uint64(r) << (8 * i)
		}
		DATA(48, U64(bits))
		DATA(56, U64(0))
		tileConfigs[name] = config
	}
	at := GP64()
	LEAQ(config, at)
	onMemory("LDTILECFG", prefixNone, 0x49, 0, at, nil, 0)
}

var tileConfigs = map[string]Mem{}

// multiplyTiles is mulRows, or mulCols on the transpose of its left-hand matrix,
// which is the same but for what becomes of c.
func multiplyTiles(name, signature, doc string, rowsParam, wordsParam Mem, keep bool) {
	function(name, signature, doc)
	tileConfig(tileRows, tileRows)
	lda, ldb, ldc := GP64(), GP64(), GP64()
	MOVQ(U32(tileBytes), lda) // within a tile
	MOVQ(U32(4*panelLanes), ldb)
	MOVQ(ldcParam, ldc)
	SHLQ(Imm(2), ldc)

	// body computes the upper and, if there are two, the lower tiles of rows.
	body := func(suffix string, two bool) {
		sumTiles := uint32(2)
		if two {
			sumTiles = 4
		}
		sums := func(f func(t uint32, at reg.Register, disp int)) {
			c, lower := GP64(), GP64()
			MOVQ(cParam, c)
			MOVQ(ldc, lower)
			SHLQ(Imm(4), lower)
			ADDQ(c, lower)
			f(0, c, 0)
			f(1, c, tileBytes)
			if two {
				f(2, lower, 0)
				f(3, lower, tileBytes)
			}
		}
		if keep {
			scaleTile(suffix, rowsParam, ldc)
		} else {
			add := GP8()
			MOVB(addParam, add)
			TESTB(add, add)
			JZ(LabelRef("zero" + suffix))
		}
		sums(func(t uint32, at reg.Register, disp int) { tileLoad(at, ldc, disp, t) })
		JMP(LabelRef("multiply" + suffix))
		Label("zero" + suffix)
		for t := range sumTiles {
			tileZero(t)
		}
		Label("multiply" + suffix)
		a, below, b, left := GP64(), GP64(), GP64(), GP64()
		MOVQ(aParam, a)
		MOVQ(ldaParam, below)
		SHLQ(Imm(6), below)
		ADDQ(a, below)
		MOVQ(bParam, b)
		MOVQ(wordsParam, left)
		Label("words" + suffix)
		tileStream(a, lda, 0, 4)
		tileLoad(b, ldb, 0, 6)
		tileLoad(b, ldb, tileBytes, 7)
		tileMultiply(4, 6, 0)
		tileMultiply(4, 7, 1)
		if two {
			tileStream(below, lda, 0, 5)
			tileMultiply(5, 6, 2)
			tileMultiply(5, 7, 3)
			ADDQ(U32(tileRows*tileBytes), below)
		}
		ADDQ(U32(tileRows*tileBytes), a)
		ADDQ(U32(4*panelLanes*tileWords), b)
		prefetch("prefetch" + suffix)
		SUBQ(Imm(tileWords), left)
		JNZ(LabelRef("words" + suffix))
		sums(func(t uint32, at reg.Register, disp int) { tileStore(t, at, ldc, disp) })
	}
	Label("tiles")
	CMPQ(rowsParam, Imm(2*tileRows))
	JL(LabelRef("rest"))
	body("", true)
	step := GP64()
	MOVQ(ldaParam, step)
	SHLQ(Imm(7), step)
	ADDQ(step, aParam)
	MOVQ(ldc, step)
	SHLQ(Imm(5), step)
	ADDQ(step, cParam)
	SUBQ(Imm(2*tileRows), rowsParam)
	JNZ(LabelRef("tiles"))
	JMP(LabelRef("end"))

	// What is left is 8, 16 or 24 rows.
	Label("rest")
	CMPQ(rowsParam, Imm(tileRows))
	JE(LabelRef("one"))
	JG(LabelRef("two"))
	tileConfig(rowUnit, rowUnit)
	Label("one")
	body("_one", false)
	JMP(LabelRef("end"))
	Label("two")
	tileConfig(tileRows, rowUnit)
	body("_two", true)
	Label("end")
	tileRelease()
	finish()
}

// scaleTile multiplies the rows of c, up to 32, by the factors of the parameter keep.
// Without these it goes on where sums become 0.
func scaleTile(suffix string, rowsParam Mem, ldc reg.GPVirtual) {
	factors, left, most, at := GP64(), GP64(), GP64(), GP64()
	MOVQ(keepParam, factors)
	TESTQ(factors, factors)
	JZ(LabelRef("zero" + suffix))
	factor := avx512.regs(2)
	for j, x := range factor {
		VMOVUPS(Mem{Base: factors, Disp: j * tileBytes}, x)
	}
	MOVQ(rowsParam, left)
	MOVQ(U32(2*tileRows), most)
	CMPQ(left, most)
	CMOVQGT(most, left)
	MOVQ(cParam, at)
	Label("scale" + suffix)
	for range rowUnit {
		for j, f := range factor {
			x, here := ZMM(), Mem{Base: at, Disp: j * tileBytes}
			VMULPS(here, f, x)
			VMOVUPS(x, here)
		}
		ADDQ(ldc, at)
	}
	SUBQ(Imm(rowUnit), left)
	JNZ(LabelRef("scale" + suffix))
}

// tileProducts emits the products.
func tileProducts() {
	multiplyTiles("mulRowsAMX",
		"(list []int32, k int, a []float32, lda int, b, c []float32, ldc int, accumulate bool, next *"+prefetchType+")",
		"is bf16Products.mulRows in tiles.",
		NewParamAddr("list_len", 8), NewParamAddr("k", 24), false)
	multiplyTiles("mulColsAMX",
		"(m int, list []int32, a []float32, lda int, b, c []float32, ldc int, keep *[32]float32, next *"+prefetchType+")",
		"is bf16Products.mulCols in tiles, a transposed.",
		NewParamAddr("m", 0), NewParamAddr("list_len", 16), true)
}

// packTransposed takes 32 rows at a time, and 16 of their columns, which make a tile:
// a transposition of [16, 16] words. Edges go through masks; what tiles lack is 0.
func packTransposed() {
	function("packTransposedAMX", packSignature, "is bf16Products.packValues, transposed and in tiles.")
	dst, ldd, list := loadBase("dst"), loadBytes("ldd", 4), loadBase("list")
	count, src := Load(Param("list").Len(), GP64()).(reg.GPVirtual), loadBase("src")
	SHLQ(Imm(4), ldd) // from one row of tiles to the next
	order := ZMM()
	VMOVDQU32(interleave(), order)
	rows := AllocLocal(8 * 2 * tileWords)

	Label("rows")
	address, at := GP64(), GP64()
	lds := loadBytes("lds", 4)
	for i := range 2 * tileWords {
		// Rows beyond the last are those of the first: masks keep them out.
		MOVQ(list, at)
		if i > 0 {
			next := GP64()
			LEAQ(Mem{Base: list, Disp: 4 * i}, next)
			CMPQ(count, Imm(uint64(i)))
			CMOVQGT(next, at)
		}
		MOVLQSX(Mem{Base: at}, address)
		IMULQ(lds, address)
		ADDQ(src, address)
		MOVQ(address, rows.Offset(8*i))
	}
	column, left, d := GP64(), load("n"), GP64()
	XORQ(column, column)
	MOVQ(dst, d)
	Label("columns")
	from := GP64()
	pack := func(load func(i int, x reg.VecVirtual)) {
		words := avx512.regs(tileWords)
		for i, w := range words {
			x := ZMM()
			MOVQ(rows.Offset(8*2*i), from)
			load(2*i, w)
			MOVQ(rows.Offset(8*(2*i+1)), from)
			load(2*i+1, x)
			narrow(w, x, w)
			VPERMW(w, order, w)
		}
		for j, x := range transposeWords(words) {
			VMOVUPS(x, Mem{Base: d, Disp: j * tileBytes})
		}
	}
	CMPQ(count, Imm(2*tileWords))
	JL(LabelRef("edge"))
	CMPQ(left, Imm(tileWords))
	JL(LabelRef("edge"))
	pack(func(_ int, x reg.VecVirtual) { VMOVUPS(Mem{Base: from, Index: column, Scale: 4}, x) })
	JMP(LabelRef("next"))

	Label("edge")
	width, some, zero := GP64(), GP32(), GP32()
	MOVQ(U32(tileWords), width)
	CMPQ(left, width)
	CMOVQLT(left, width)
	all := firstBits(width)
	XORL(zero, zero)
	pack(func(i int, x reg.VecVirtual) {
		MOVL(all, some)
		CMPQ(count, Imm(uint64(i)))
		CMOVLLE(zero, some)
		VMOVUPS_Z(Mem{Base: from, Index: column, Scale: 4}, opmask(some), x)
	})

	Label("next")
	ADDQ(ldd, d)
	ADDQ(Imm(tileWords), column)
	SUBQ(Imm(tileWords), left)
	JG(LabelRef("columns"))
	ADDQ(U32(4*2*tileWords), list)
	ADDQ(U32(tileRows*tileBytes), dst)
	SUBQ(Imm(2*tileWords), count)
	JG(LabelRef("rows"))
	finish()
}

// transposeWords transposes [16, 16] words: pairs of rows interleaved, pairs of
// these, then quarters of vectors exchanged twice.
func transposeWords(r []reg.VecVirtual) []reg.VecVirtual {
	const even, odd = 0x88, 0xdd
	n := len(r)
	pairs, quads, halves, columns := avx512.regs(n), avx512.regs(n), avx512.regs(n), avx512.regs(n)
	for i := 0; i < n; i += 2 {
		VUNPCKLPS(r[i+1], r[i], pairs[i])
		VUNPCKHPS(r[i+1], r[i], pairs[i+1])
	}
	for i := 0; i < n; i += 4 {
		for j := range 2 {
			VUNPCKLPD(pairs[i+2+j], pairs[i+j], quads[i+2*j])
			VUNPCKHPD(pairs[i+2+j], pairs[i+j], quads[i+2*j+1])
		}
	}
	// Quarter q of quads[4g+c] has column 4q+c of rows 4g to 4g+3.
	for i := 0; i < n; i += 8 {
		for c := range 4 {
			VSHUFF32X4(Imm(even), quads[i+4+c], quads[i+c], halves[i+c])
			VSHUFF32X4(Imm(odd), quads[i+4+c], quads[i+c], halves[i+4+c])
		}
	}
	for c := range 4 {
		for q := range 2 {
			VSHUFF32X4(Imm(even), halves[8+4*q+c], halves[4*q+c], columns[4*q+c])
			VSHUFF32X4(Imm(odd), halves[8+4*q+c], halves[4*q+c], columns[8+4*q+c])
		}
	}
	return columns
}

// peakFMATiles keeps as many sums as a step of the products.
func peakFMATiles() {
	function("peakFMAAMX", "(n int) (flops int)", "is isa.peakFMA.")
	n := load("n")
	tileConfig(tileRows, tileRows)
	for t := range uint32(8) {
		tileZero(t)
	}
	Label("round")
	for t := range uint32(4) {
		tileMultiply(4+t/2, 6+t%2, t)
	}
	DECQ(n)
	JNZ(LabelRef("round"))
	tileRelease()
	flops := GP64()
	MOVQ(U32(4*2*2*tileRows*tileRows*tileWords), flops)
	Store(flops, ReturnIndex(0))
	RET()
}
