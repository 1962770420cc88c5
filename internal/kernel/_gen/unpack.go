package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unpacking takes quantized blocks apart. A register of AVX2 holds the codes of 32
// elements.
type unpacking struct {
	src, codes, scales, minima reg.GPVirtual
}

// unpack makes the routine of a type with blocks of so many elements and bytes, and groups of
// elements that share a scale. body unpacks one block.
func unpack(typ string, elements, bytes, group int, minima bool, prepare func() func(u *unpacking)) {
	function("unpack"+typ+"AVX2", "(codes []byte, scales, minima []float32, blocks []byte, rows, stride, n, ahead int)",
		"is codeProducts.unpack of "+typ+".")
	u := &unpacking{src: loadBase("blocks"), codes: loadBase("codes"), scales: loadBase("scales"), minima: loadBase("minima")}
	rows, next, n, ahead := load("rows"), load("stride"), GP64(), load("ahead")
	IMUL3Q(U32(uint32(bytes)), load("n"), n)
	SUBQ(n, next) // from the last block of a row to the next row
	body := prepare()
	Label("row")
	MOVQ(NewParamAddr("n", 112), n)
	Label("block")
	for line := 0; line < bytes; line += 64 {
		PREFETCHT0(Mem{Base: u.src, Index: ahead, Scale: 1, Disp: line})
	}
	body(u)
	ADDQ(U32(uint32(bytes)), u.src)
	ADDQ(U32(uint32(elements)), u.codes)
	ADDQ(U32(uint32(4*elements/group)), u.scales)
	if minima {
		ADDQ(U32(uint32(4*elements/32)), u.minima)
	}
	DECQ(n)
	JNZ(LabelRef("block"))
	ADDQ(next, u.src)
	DECQ(rows)
	JNZ(LabelRef("row"))
	finish()
}

// half is the binary16 at an offset of the block, as a float32.
func (u *unpacking) half(at int) reg.VecVirtual {
	bits, x := GP32(), XMM()
	MOVWLZX(Mem{Base: u.src, Disp: at}, bits)
	VMOVD(bits, x)
	VCVTPH2PS(x, x)
	return x
}

// halves are the binary16 at an offset of the block in all lanes.
func (u *unpacking) halves(at int) reg.VecVirtual {
	x := YMM()
	VBROADCASTSS(u.half(at), x)
	return x
}

func (u *unpacking) storeScale(at int)   { VMOVSS(u.half(at), Mem{Base: u.scales}) }
func (u *unpacking) storeMinimum(at int) { VMOVSS(u.half(at), Mem{Base: u.minima}) }

func (u *unpacking) storeCodes(b int, x reg.VecVirtual) { VMOVDQU(x, Mem{Base: u.codes, Disp: 32 * b}) }

// nibbles are the codes of 16 bytes at an offset: low ones, then high ones.
func (u *unpacking) nibbles(at int, mask reg.VecVirtual) reg.VecVirtual {
	low, high, x := XMM(), XMM(), YMM()
	VMOVDQU(Mem{Base: u.src, Disp: at}, low)
	VPSRLW(Imm(4), low, high)
	VINSERTI128(Imm(1), high, low.AsY(), x)
	VPAND(mask, x, x)
	return x
}

// fifths returns a function that sets the fifth bits of codes to the 32 bits at an offset of
// the block.
func fifths() func(u *unpacking, at int, x reg.VecVirtual) {
	spread, bit, fifth := YMM(), YMM(), avx2.integers(0x10101010)
	VMOVDQU(bitTable.Offset(0), spread)
	VMOVDQU(bitTable.Offset(32), bit)
	return func(u *unpacking, at int, x reg.VecVirtual) {
		high := YMM()
		VPBROADCASTD(Mem{Base: u.src, Disp: at}, high)
		VPSHUFB(spread, high, high)
		VPAND(bit, high, high)
		VPCMPEQB(bit, high, high)
		VPAND(fifth, high, high)
		VPOR(high, x, x)
	}
}

// uneven returns a function that replaces four bits by the codes of the IQ4 types.
func uneven() func(x reg.VecVirtual) {
	values := YMM()
	VMOVDQU(unevenTable, values)
	return func(x reg.VecVirtual) { VPSHUFB(x, values, x) }
}

// scaled stores eight integers times a factor.
func scaled(x, factor reg.VecVirtual, base reg.GPVirtual, at int) {
	VCVTDQ2PS(x, x)
	VMULPS(factor, x, x)
	VMOVUPS(x, Mem{Base: base, Disp: 4 * at})
}

// scalesMinima are those of Q4_K and Q5_K: 12 bytes hold eight scales and eight minima of six
// bits, the last four of each in two parts.
func (u *unpacking) scalesMinima(sign reg.VecVirtual) {
	const six, four, two = 0x3f3f3f3f, 0x0f0f0f0f, 0x03030303
	const first, second, third = 4, 8, 12
	word := func(at int, shift uint64, mask uint32) reg.GPVirtual {
		x := GP32()
		MOVL(Mem{Base: u.src, Disp: at}, x)
		if shift > 0 {
			SHRL(Imm(shift), x)
		}
		ANDL(U32(mask), x)
		return x
	}
	eight := func(low, four, two reg.GPVirtual) reg.VecVirtual {
		SHLL(Imm(4), two)
		ORL(two, four)
		SHLQ(Imm(32), four.As64())
		ORQ(low.As64(), four.As64())
		x, y := XMM(), YMM()
		VMOVQ(four.As64(), x)
		VPMOVZXBD(x, y)
		return y
	}
	scaled(eight(word(first, 0, six), word(third, 0, four), word(first, 6, two)), u.halves(0), u.scales, 0)
	least := u.halves(2)
	VXORPS(sign, least, least)
	scaled(eight(word(second, 0, six), word(third, 4, four), word(second, 6, two)), least, u.minima, 0)
}

// Tables of unpacks: the byte of 32 bits that has the bit of each of 32 elements and which
// of its bits that is, and the codes of the IQ4 types, twice.
var bitTable, unevenTable Mem

func unpacks() {
	bitTable = GLOBL("bits", attr.RODATA|attr.NOPTR)
	for i := range 8 {
		x := 0x0101010101010101 * uint64(i)
		if i >= 4 {
			x = 0x8040201008040201
		}
		DATA(8*i, U64(x))
	}
	unevenTable = GLOBL("uneven", attr.RODATA|attr.NOPTR)
	values := []int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	for i, x := range append(values, values...) {
		DATA(i, U8(uint8(128+x)))
	}
	mask := func() reg.VecVirtual { return avx2.integers(0x0f0f0f0f) }
	unpack("Q8_0", 32, 34, 32, false, func() func(u *unpacking) {
		sign := avx2.integers(0x80808080)
		return func(u *unpacking) {
			u.storeScale(0)
			x := YMM()
			VPXOR(Mem{Base: u.src, Disp: 2}, sign, x)
			u.storeCodes(0, x)
		}
	})
	unpack("Q4_0", 32, 18, 32, false, func() func(u *unpacking) {
		mask := mask()
		return func(u *unpacking) {
			u.storeScale(0)
			u.storeCodes(0, u.nibbles(2, mask))
		}
	})
	unpack("Q4_1", 32, 20, 32, true, func() func(u *unpacking) {
		mask := mask()
		return func(u *unpacking) {
			u.storeScale(0)
			u.storeMinimum(2)
			u.storeCodes(0, u.nibbles(4, mask))
		}
	})
	unpack("Q5_0", 32, 22, 32, false, func() func(u *unpacking) {
		mask := mask()
		fifth := fifths()
		return func(u *unpacking) {
			u.storeScale(0)
			x := u.nibbles(6, mask)
			fifth(u, 2, x)
			u.storeCodes(0, x)
		}
	})
	unpack("Q5_1", 32, 24, 32, true, func() func(u *unpacking) {
		mask := mask()
		fifth := fifths()
		return func(u *unpacking) {
			u.storeScale(0)
			u.storeMinimum(2)
			x := u.nibbles(8, mask)
			fifth(u, 4, x)
			u.storeCodes(0, x)
		}
	})
	unpack("Q4_K", 256, 144, 32, true, func() func(u *unpacking) {
		mask, sign := mask(), avx2.integers(1<<31)
		return func(u *unpacking) {
			u.scalesMinima(sign)
			for p := range 4 {
				low, high := YMM(), YMM()
				VMOVDQU(Mem{Base: u.src, Disp: 16 + 32*p}, low)
				VPSRLW(Imm(4), low, high)
				VPAND(mask, low, low)
				VPAND(mask, high, high)
				u.storeCodes(2*p, low)
				u.storeCodes(2*p+1, high)
			}
		}
	})
	unpack("Q5_K", 256, 176, 32, true, func() func(u *unpacking) {
		mask, sign, fifth := mask(), avx2.integers(1<<31), avx2.integers(0x10101010)
		return func(u *unpacking) {
			u.scalesMinima(sign)
			fifths := YMM() // of eight blocks, block b in bit b
			VMOVDQU(Mem{Base: u.src, Disp: 16}, fifths)
			for p := range 4 {
				x := [2]reg.VecVirtual{YMM(), YMM()}
				VMOVDQU(Mem{Base: u.src, Disp: 48 + 32*p}, x[0])
				VPSRLW(Imm(4), x[0], x[1])
				for h, codes := range x {
					VPAND(mask, codes, codes)
					bit := YMM()
					switch b := 2*p + h; {
					case b < 4:
						VPSLLW(Imm(uint64(4-b)), fifths, bit)
						VPAND(fifth, bit, bit)
					case b == 4:
						VPAND(fifth, fifths, bit)
					default:
						VPSRLW(Imm(uint64(b-4)), fifths, bit)
						VPAND(fifth, bit, bit)
					}
					VPOR(bit, codes, codes)
					u.storeCodes(2*p+h, codes)
				}
			}
		}
	})
	unpack("Q6_K", 256, 210, 16, false, func() func(u *unpacking) {
		mask, upper := mask(), avx2.integers(0x30303030)
		return func(u *unpacking) {
			d := u.halves(208)
			for i := range 2 {
				x := YMM()
				VPMOVSXBD(Mem{Base: u.src, Disp: 192 + 8*i}, x)
				scaled(x, d, u.scales, 8*i)
			}
			for n := range 2 {
				high := YMM()
				VMOVDQU(Mem{Base: u.src, Disp: 128 + 32*n}, high)
				low := [2]reg.VecVirtual{YMM(), YMM()}
				for i, x := range low {
					VMOVDQU(Mem{Base: u.src, Disp: 64*n + 32*i}, x)
				}
				for k := range 4 {
					x, y := YMM(), YMM()
					switch k {
					case 0, 1:
						VPAND(mask, low[k], x)
						VPSLLW(Imm(uint64(4-2*k)), high, y)
						VPAND(upper, y, y)
					case 2:
						VPSRLW(Imm(4), low[0], x)
						VPAND(mask, x, x)
						VPAND(upper, high, y)
					case 3:
						VPSRLW(Imm(4), low[1], x)
						VPAND(mask, x, x)
						VPSRLW(Imm(2), high, y)
						VPAND(upper, y, y)
					}
					VPOR(y, x, x)
					u.storeCodes(4*n+k, x)
				}
			}
		}
	})
	unpack("IQ4_NL", 32, 18, 32, false, func() func(u *unpacking) {
		mask, uneven := mask(), uneven()
		return func(u *unpacking) {
			u.storeScale(0)
			x := u.nibbles(2, mask)
			uneven(x)
			u.storeCodes(0, x)
		}
	})
	unpack("IQ4_XS", 256, 136, 32, false, func() func(u *unpacking) {
		mask, uneven := mask(), uneven()
		shifts := GLOBL("scaleShifts", attr.RODATA|attr.NOPTR)
		for i := range 16 {
			shift := 4 * i
			if i >= 8 {
				shift = 2 * (i - 8)
			}
			DATA(4*i, U32(uint32(shift)))
		}
		by4, by2 := YMM(), YMM()
		VMOVDQU(shifts.Offset(0), by4)
		VMOVDQU(shifts.Offset(32), by2)
		four, two, offset := avx2.integers(15), avx2.integers(3), avx2.integers(32)
		return func(u *unpacking) {
			low, high, bits := YMM(), YMM(), GP32()
			VPBROADCASTD(Mem{Base: u.src, Disp: 4}, low)
			VPSRLVD(by4, low, low)
			VPAND(four, low, low)
			MOVWLZX(Mem{Base: u.src, Disp: 2}, bits)
			VMOVD(bits, high.AsX())
			VPBROADCASTD(high.AsX(), high)
			VPSRLVD(by2, high, high)
			VPAND(two, high, high)
			VPSLLD(Imm(4), high, high)
			VPOR(high, low, low)
			VPSUBD(offset, low, low)
			scaled(low, u.halves(0), u.scales, 0)
			for b := range 8 {
				x := u.nibbles(8+16*b, mask)
				uneven(x)
				u.storeCodes(b, x)
			}
		}
	})
}
