package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The layout of a block of inputs: 32 bytes, the value of the byte 1, and the sum of all
// bytes, of the first 16 and of the last 16, negated.
const (
	unitAt, sumAt, inputBytes = 32, 36, 48
	wordsPerBlock             = 8
	codeRows                  = 4
)

// roundBlocks rounds blocks of 32 numbers to bytes with a factor.
func roundBlocks() {
	v := avx2
	function("roundBlocksAVX2", "(dst, src []float32, blocks int)", "is codeProducts.roundBlocks.")
	dst, src, n := loadBase("dst"), loadBase("src"), load("blocks")
	magnitude, finite := v.integers(1<<31-1), v.integers(math.Float32bits(math.MaxFloat32))
	tiny, largest := v.broadcast(0x1p-100), v.broadcast(math.MaxInt8)
	inOrder := GLOBL("bytesInOrder", attr.RODATA|attr.NOPTR)
	for i, word := range []uint32{0, 4, 1, 5, 2, 6, 3, 7} {
		DATA(4*i, U32(word))
	}
	order := YMM()
	VMOVDQU(inOrder, order)
	// across applies an operation to both halves of a register, and to all lanes of the result.
	across := func(x reg.VecVirtual, operation func(ops ...Op)) reg.VecVirtual {
		half := XMM()
		VEXTRACTI128(Imm(1), x, half)
		operation(half, x.AsX(), half)
		for _, step := range []uint64{0x4e, 0xb1} {
			swapped := XMM()
			VPSHUFD(Imm(step), half, swapped)
			operation(swapped, half, half)
		}
		return half
	}

	Label("block")
	x, most := v.regs(4), YMM()
	for i := range x {
		VMOVUPS(Mem{Base: src, Disp: 32 * i}, x[i])
		if i == 0 {
			VPAND(magnitude, x[i], most)
			continue
		}
		y := YMM()
		VPAND(magnitude, x[i], y)
		VPMAXUD(y, most, most)
	}
	m := across(most, VPMAXUD)
	wrong, unit, factor := XMM(), XMM(), YMM()
	VPCMPGTD(finite.AsX(), m, wrong)
	VMAXPS(tiny.AsX(), m, m)
	VDIVPS(largest.AsX(), m, unit)
	VORPS(wrong, unit, unit) // NaN
	VMOVSS(unit, Mem{Base: dst, Disp: unitAt})
	VDIVPS(m, largest.AsX(), factor.AsX())
	VANDNPS(factor.AsX(), wrong, factor.AsX())
	VBROADCASTSS(factor.AsX(), factor)
	for _, y := range x {
		VMULPS(factor, y, y)
		VCVTPS2DQ(y, y)
	}
	var halves [2]reg.VecVirtual
	zero, all := v.zeros(1)[0].AsX(), XMM()
	for i := range halves {
		sum := YMM()
		VPADDD(x[2*i], x[2*i+1], sum)
		halves[i] = across(sum, VPADDD)
		VPSUBD(halves[i], zero, halves[i])
		VMOVD(halves[i], Mem{Base: dst, Disp: sumAt + 4 + 4*i})
	}
	VPADDD(halves[0], halves[1], all)
	VMOVD(all, Mem{Base: dst, Disp: sumAt})
	VPACKSSDW(x[1], x[0], x[0])
	VPACKSSDW(x[3], x[2], x[2])
	VPACKSSWB(x[2], x[0], x[0])
	VPERMD(x[0], order, x[0])
	VMOVDQU(x[0], Mem{Base: dst})
	ADDQ(U32(128), src)
	ADDQ(U32(codeRows*inputBytes), dst)
	DECQ(n)
	JNZ(LabelRef("block"))
	finish()
}

// expand makes float32 of a panel of codes. Without minima, a minimum of -0 changes nothing.
func (v *isa) expand() {
	function("expand"+v.name, "(dst, codes, scales, minima []float32, n, group, offset int)",
		"is codeProducts.expand; minima may be empty.")
	const sizeOfRow = 4 * panelLanes
	offset, bits := v.reg(), load("offset")
	VMOVD(bits.As32(), offset.AsX())
	VPBROADCASTD(offset.AsX(), offset)
	mask := v.integers(255)
	for column := 0; column < panelLanes; column += 2 * v.lanes {
		suffix := map[bool]string{true: "_right"}[column > 0]
		dst, codes, scales, minima := loadBase("dst"), loadBase("codes"), loadBase("scales"), loadBase("minima")
		left, group := load("n"), GP64()
		at := func(base reg.GPVirtual, j int) Mem { return Mem{Base: base, Disp: 4*column + j*v.bytes()} }
		least := []reg.VecVirtual{v.integers(1 << 31), v.integers(1 << 31)}
		hasMinima := GP64()
		MOVQ(NewParamAddr("minima_len", 80), hasMinima)
		Label("group" + suffix)
		scale := v.regs(2)
		for j, x := range scale {
			VMOVUPS(at(scales, j), x)
		}
		ADDQ(U32(sizeOfRow), scales)
		TESTQ(hasMinima, hasMinima)
		JZ(LabelRef("word" + suffix + "s"))
		for j, x := range least {
			VMOVUPS(at(minima, j), x)
		}
		ADDQ(U32(sizeOfRow), minima)
		Label("word" + suffix + "s")
		MOVQ(NewParamAddr("group", 104), group)
		SUBQ(group, left)
		Label("word" + suffix)
		for j := range 2 {
			words := v.reg()
			VMOVUPS(at(codes, j), words)
			for i := range 4 {
				x := v.reg()
				switch i {
				case 3:
					VPSRLD(Imm(24), words, x)
				case 0:
					v.and(mask, words, x)
				default:
					VPSRLD(Imm(uint64(8*i)), words, x)
					v.and(mask, x, x)
				}
				VPSUBD(offset, x, x)
				VCVTDQ2PS(x, x)
				VFMADD213PS(least[j], scale[j], x)
				VMOVUPS(x, Mem{Base: dst, Disp: 4*column + j*v.bytes() + sizeOfRow*i})
			}
		}
		ADDQ(U32(4*sizeOfRow), dst)
		ADDQ(U32(sizeOfRow), codes)
		SUBQ(Imm(4), group)
		JNZ(LabelRef("word" + suffix))
		TESTQ(left, left)
		JNZ(LabelRef("group" + suffix))
	}
	finish()
}

// and is x & y.
func (v *isa) and(x, y, dst reg.VecVirtual) {
	if v.lanes == 16 {
		VPANDD(x, y, dst)
	} else {
		VPAND(x, y, dst)
	}
}

// A form is a kind of quant.Form, which has a routine of its own.
type form struct {
	name                   string
	minima, halves, signed bool
	steps                  int // of AVX2, whose sums are int16
}

// The largest code has 5 bits in the first two forms, 6 in the third, and 8 in the last, which
// AVX2 alone tells from the first.
var forms = []form{
	{name: "Offset", steps: 4}, {name: "Minima", minima: true, steps: 4}, {name: "Halves", halves: true, steps: 2},
	{name: "Signed", signed: true, steps: 1},
}

const mulBlocksDoc = "is codeProducts.mulBlocks, with an offset of 1<<shift."

const mulBlocksSignature = "(y []float32, ldy int, x []float32, ldx, rows, blocks int, codes, scales, minima []float32, shift int, accumulate bool)"

// mulBlocksVNNI multiplies four rows of inputs with a panel of codes. VPDPBUSD multiplies bytes
// of which one is not signed: codes. Their offset is a power of two; the sums start with
// minus the sum of the inputs times it.
func mulBlocksVNNI(f form) {
	v := avx512vnni
	function("mulBlocks"+f.name+"AVX512VNNI", mulBlocksSignature, mulBlocksDoc)
	const rowBytes = 4 * panelLanes
	y, ldy := loadBase("y"), loadBytes("ldy", 4)
	x, ldx := loadBase("x"), loadBytes("ldx", 4)
	ldy3, rows := times3(ldy), load("rows")
	output := func(i, j int) Mem {
		m := row(i, y, y, ldy, ldy3)
		m.Disp = j * v.bytes()
		return m
	}
	shift := XMM()
	VMOVQ(NewParamAddr("shift", 152), shift)

	Label("rows")
	sums := v.zeros(2 * codeRows)
	add := GP8()
	MOVB(NewParamAddr("accumulate", 160), add)
	TESTB(add, add)
	JZ(LabelRef("start"))
	for i := range codeRows {
		for j := range 2 {
			VMOVUPS(output(i, j), sums[2*i+j])
		}
	}
	Label("start")
	at, codes, scales, minima, left := GP64(), loadBase("codes"), loadBase("scales"), loadBase("minima"), load("blocks")
	MOVQ(x, at)
	Label("block")
	input := func(i, disp int) Mem { return Mem{Base: at, Disp: i*inputBytes + disp} }
	groups, words := 1, wordsPerBlock
	if f.halves {
		groups, words = 2, wordsPerBlock/2
	}
	for g := range groups {
		exact := v.regs(2 * codeRows)
		for i := range codeRows {
			first, second := exact[2*i], exact[2*i+1]
			if f.minima {
				VPXORD(first, first, first)
				VPXORD(second, second, second)
				continue
			}
			disp := sumAt
			if f.halves {
				disp += 4 * (g + 1)
			}
			VPBROADCASTD(input(i, disp), first)
			VPSLLD(shift, first, first)
			VMOVDQA32(first, second)
		}
		for k := range words {
			w, bytes := v.regs(2), v.reg()
			for j := range w {
				VMOVDQU32(Mem{Base: codes, Disp: (g*words+k)*rowBytes + j*v.bytes()}, w[j])
			}
			for i := range codeRows {
				VPBROADCASTD(input(i, 4*(g*words+k)), bytes)
				for j := range w {
					VPDPBUSD(bytes, w[j], exact[2*i+j])
				}
			}
		}
		scale, least := v.regs(2), v.regs(2)
		for j := range scale {
			VMOVUPS(Mem{Base: scales, Disp: g*rowBytes + j*v.bytes()}, scale[j])
			if f.minima {
				VMOVUPS(Mem{Base: minima, Disp: j * v.bytes()}, least[j])
			}
		}
		for i := range codeRows {
			unit, sum := v.reg(), v.reg()
			VBROADCASTSS(input(i, unitAt), unit)
			if f.minima {
				VPBROADCASTD(input(i, sumAt), sum)
				VCVTDQ2PS(sum, sum)
			}
			for j := range 2 {
				part := exact[2*i+j]
				VCVTDQ2PS(part, part)
				VMULPS(scale[j], part, part)
				if f.minima {
					VFNMADD231PS(sum, least[j], part)
				}
				VFMADD231PS(part, unit, sums[2*i+j])
			}
		}
	}
	ADDQ(U32(uint32(groups*rowBytes)), scales)
	if f.minima {
		ADDQ(U32(rowBytes), minima)
	}
	ADDQ(U32(wordsPerBlock*rowBytes), codes)
	ADDQ(U32(codeRows*inputBytes), at)
	DECQ(left)
	JNZ(LabelRef("block"))
	for i := range codeRows {
		for j := range 2 {
			VMOVUPS(sums[2*i+j], output(i, j))
		}
	}
	ADDQ(ldx, x)
	LEAQ(Mem{Base: y, Index: ldy, Scale: 4}, y)
	SUBQ(Imm(codeRows), rows)
	JNZ(LabelRef("rows"))
	finish()
}

func mulBlocks() {
	signBytes = GLOBL("signBytes", attr.RODATA|attr.NOPTR)
	for i := range 4 {
		DATA(8*i, U64(0x8080808080808080))
	}
	for _, f := range forms {
		if !f.signed {
			mulBlocksVNNI(f)
		}
		mulBlocksAVX2(f)
	}
	avx512vnni.peakInt8()
	avx2.peakInt8()
}
