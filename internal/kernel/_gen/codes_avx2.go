package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// signBytes are the sign bits of 32 bytes.
var signBytes Mem

// mulBlocksAVX2 multiplies four rows of inputs with a panel of codes, eight lanes at a time.
// VPMADDUBSW multiplies bytes of which one is not signed and adds pairs, as int16: of so
// many steps, of the largest codes, the sums are int16 too. Codes of eight bits are made signed, and
// their signs are moved to the inputs.
func mulBlocksAVX2(f form) {
	v := avx2
	function("mulBlocks"+f.name+"AVX2", mulBlocksSignature, mulBlocksDoc)
	const rowBytes = 4 * panelLanes
	ones := avx2.integers(1<<16 | 1)
	column := GP64()
	XORQ(column, column)
	Label("column")
	y, ldy := loadBase("y"), loadBytes("ldy", 4)
	x, ldx := loadBase("x"), loadBytes("ldx", 4)
	ldy3, rows := times3(ldy), load("rows")
	ADDQ(column, y)
	output := func(i int) Mem {
		m := row(i, y, y, ldy, ldy3)
		return m
	}
	Label("rows")
	sums := v.zeros(codeRows)
	add := GP8()
	MOVB(NewParamAddr("accumulate", 160), add)
	TESTB(add, add)
	JZ(LabelRef("start"))
	for i, sum := range sums {
		VMOVUPS(output(i), sum)
	}
	Label("start")
	at, codes, scales, minima, left := GP64(), loadBase("codes"), loadBase("scales"), loadBase("minima"), load("blocks")
	for _, base := range []reg.GPVirtual{codes, scales, minima} {
		ADDQ(column, base)
	}
	MOVQ(x, at)
	Label("block")
	input := func(i, disp int) Mem { return Mem{Base: at, Disp: i*inputBytes + disp} }
	groups, words := 1, wordsPerBlock
	if f.halves {
		groups, words = 2, wordsPerBlock/2
	}
	for g := range groups {
		exact := v.regs(codeRows)
		var shift reg.VecVirtual
		if !f.minima && !f.signed {
			shift = XMM()
			VMOVQ(NewParamAddr("shift", 152), shift)
		}
		for i, e := range exact {
			if shift == nil {
				VPXOR(e, e, e)
				continue
			}
			disp := sumAt
			if f.halves {
				disp += 4 * (g + 1)
			}
			VPBROADCASTD(input(i, disp), e)
			VPSLLD(shift, e, e)
		}
		pairs := v.regs(codeRows) // sums of int16
		for k := range words {
			w, magnitudes := v.reg(), v.reg()
			at := Mem{Base: codes, Disp: (g*words + k) * rowBytes}
			VMOVDQU(at, w)
			if f.signed {
				VPXOR(signBytes, w, w)
				VPABSB(w, magnitudes)
			}
			first, last := k%f.steps == 0, (k+1)%f.steps == 0
			for i := range codeRows {
				products := v.reg()
				VPBROADCASTD(input(i, 4*(g*words+k)), products)
				if f.signed {
					VPSIGNB(w, products, products)
					VPMADDUBSW(products, magnitudes, products)
				} else {
					VPMADDUBSW(products, w, products)
				}
				if !first {
					VPADDW(products, pairs[i], pairs[i])
					products = pairs[i]
				}
				switch {
				case last:
					VPMADDWD(ones, products, products)
					VPADDD(products, exact[i], exact[i])
				case first:
					pairs[i] = products
				}
			}
		}
		for i, part := range exact {
			unit := v.reg()
			VCVTDQ2PS(part, part)
			VMULPS(Mem{Base: scales, Disp: g * rowBytes}, part, part)
			if f.minima {
				sum := v.reg()
				VPBROADCASTD(input(i, sumAt), sum)
				VCVTDQ2PS(sum, sum)
				VFNMADD231PS(Mem{Base: minima}, sum, part)
			}
			VBROADCASTSS(input(i, unitAt), unit)
			VFMADD231PS(part, unit, sums[i])
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
	for i, sum := range sums {
		VMOVUPS(sum, output(i))
	}
	ADDQ(ldx, x)
	LEAQ(Mem{Base: y, Index: ldy, Scale: 4}, y)
	SUBQ(Imm(codeRows), rows)
	JNZ(LabelRef("rows"))
	ADDQ(Imm(uint64(v.bytes())), column)
	CMPQ(column, U32(rowBytes))
	JNE(LabelRef("column"))
	finish()
}
