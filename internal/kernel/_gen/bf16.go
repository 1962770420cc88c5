package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// avx512bf16 multiplies with AVX512-BF16: an element of 32 bits is a pair of
// bfloat16, and a product of two pairs the sum of two products.
var avx512bf16 = &isa{"AVX512BF16", 16, ZMM}

// multiplyAdd adds x y to sum, lane by lane.
func (v *isa) multiplyAdd(x, y, sum Op) {
	switch v {
	case avx512bf16:
		encodeEVEX("AVX512_BF16", "VDPBF16PS", prefixF3, 0x52, []Op{x, y, sum}, sum)
	case avx512vnni:
		VPDPWSSD(x, y, sum)
	default:
		VFMADD231PS(x, y, sum)
	}
}

// narrow rounds lower and upper to bfloat16, into the halves of dst.
func narrow(lower, upper, dst Op) {
	encodeEVEX("AVX512_BF16", "VCVTNE2PS2BF16", prefixF2, 0x72, []Op{lower, upper}, dst)
}

// packSignature is that of all routines that round to bfloat16.
const packSignature = "(dst []float32, ldd int, list []int32, src []float32, lds, n int)"

// packing walks over the listed rows of a matrix and the rows of its result.
type packing struct {
	dst, ldd, list, count, src, lds, n reg.GPVirtual
}

func newPacking() *packing {
	return &packing{
		dst: loadBase("dst"), ldd: loadBytes("ldd", 4), list: loadBase("list"),
		count: Load(Param("list").Len(), GP64()).(reg.GPVirtual),
		src:   loadBase("src"), lds: loadBytes("lds", 4), n: load("n"),
	}
}

// row is the address of the i-th row from here on.
func (p *packing) row(i int) reg.GPVirtual {
	r := GP64()
	MOVLQSX(Mem{Base: p.list, Disp: 4 * i}, r)
	IMULQ(p.lds, r)
	ADDQ(p.src, r)
	return r
}

// firstBits is a mask of the first n <= 32 bits.
func firstBits(n reg.GPVirtual) reg.GPVirtual {
	ones, mask := GP32(), GP32()
	MOVL(U32(1<<32-1), ones)
	BZHIL(n.As32(), ones, mask)
	return mask
}

func opmask(bits reg.Register) reg.OpmaskVirtual {
	k := K()
	KMOVW(bits, k)
	return k
}

// whole runs body for each whole vector of a row of elements, and leaves the
// number of elements after these in left.
func whole(name string, row, left reg.GPVirtual, elements int, body func()) {
	MOVQ(row, left)
	Label(name)
	CMPQ(left, Imm(uint64(elements)))
	JL(LabelRef(name + "_end"))
	body()
	SUBQ(Imm(uint64(elements)), left)
	JMP(LabelRef(name))
	Label(name + "_end")
}

// interleave is the order that makes of the halves of a vector, 16 elements each,
// their pairs.
func interleave() Mem {
	if interleaved == nil {
		table := GLOBL("interleave", attr.RODATA|attr.NOPTR)
		for i := range 32 {
			DATA(2*i, U16(i/2+i%2*16))
		}
		interleaved = &table
	}
	return *interleaved
}

var interleaved *Mem

// packRows makes words of two rows. The words of a vector come out of the
// conversion as the halves of another, 16 of each row.
func packRows() {
	function("packRowsAVX512BF16", packSignature, "is bf16Products.packRows.")
	p := newPacking()
	order := ZMM()
	VMOVDQU32(interleave(), order)
	const lanes = 16
	rest := GP64()
	MOVQ(p.n, rest)
	ANDQ(Imm(lanes-1), rest)
	tail := firstBits(rest)

	Label("rows")
	first, d, left := p.row(0), GP64(), GP64()
	second, present := GP64(), GP32()
	MOVQ(p.dst, d)
	// A missing second row is zeros: nothing of the first is read for it.
	MOVQ(first, second)
	XORL(present, present)
	CMPQ(p.count, Imm(1))
	JE(LabelRef("single"))
	MOVQ(p.row(1), second)
	NOTL(present)
	Label("single")
	both := opmask(present)
	pack := func(x, y reg.VecVirtual) {
		narrow(x, y, x)
		VPERMW(x, order, x)
	}
	whole("vectors", p.n, left, lanes, func() {
		x, y := ZMM(), ZMM()
		VMOVUPS(Mem{Base: first}, x)
		VMOVUPS_Z(Mem{Base: second}, both, y)
		pack(x, y)
		VMOVUPS(x, Mem{Base: d})
		for _, r := range []reg.GPVirtual{first, second, d} {
			ADDQ(Imm(4*lanes), r)
		}
	})
	TESTQ(left, left)
	JZ(LabelRef("next"))
	x, y := ZMM(), ZMM()
	VMOVUPS_Z(Mem{Base: first}, opmask(tail), x)
	ANDL(tail, present)
	VMOVUPS_Z(Mem{Base: second}, opmask(present), y)
	pack(x, y)
	VMOVUPS(x, opmask(tail), Mem{Base: d})
	Label("next")
	ADDQ(Imm(8), p.list)
	ADDQ(p.ldd, p.dst)
	SUBQ(Imm(2), p.count)
	JG(LabelRef("rows"))
	finish()
}

// pairTail are the masks of what follows the last 32 elements of a row: of its
// elements, and of the words that they make.
type pairTail struct{ lower, upper, result reg.OpmaskVirtual }

func newPairTail(n reg.GPVirtual) *pairTail {
	rest, words := GP64(), GP64()
	MOVQ(n, rest)
	ANDQ(Imm(31), rest)
	tail := firstBits(rest)
	LEAQ(Mem{Base: rest, Disp: 1}, words)
	SHRQ(Imm(1), words)
	t := &pairTail{lower: opmask(tail), result: opmask(firstBits(words))}
	SHRL(Imm(16), tail)
	t.upper = opmask(tail)
	return t
}

// packCols makes words of neighbours in a row. With tiles, each 16 of them are the row
// of a tile, and what words lack is 0.
func packCols(tiles bool) {
	const elements = 2 * tileWords
	var row reg.GPVirtual // of its tile, in bytes
	var p *packing
	step := Op(Imm(tileBytes))
	if tiles {
		function("packColsAMX", packSignature, "is bf16Products.packCols in tiles.")
		p = newPacking()
		SHLQ(Imm(4), p.ldd) // from one row of tiles to the next
		step = U32(tileRows * tileBytes)
	} else {
		function("packColsAVX512BF16", packSignature, "is bf16Products.packCols.")
		p = newPacking()
	}
	t := newPairTail(p.n)
	if tiles {
		row = GP64()
		XORQ(row, row)
	}

	Label("rows")
	from, d, left := p.row(0), GP64(), GP64()
	if tiles {
		LEAQ(Mem{Base: p.dst, Index: row, Scale: 1}, d)
	} else {
		MOVQ(p.dst, d)
	}
	whole("vectors", p.n, left, elements, func() {
		x, y := ZMM(), ZMM()
		VMOVUPS(Mem{Base: from}, x)
		VMOVUPS(Mem{Base: from, Disp: 64}, y)
		narrow(x, y, x)
		VMOVUPS(x, Mem{Base: d})
		ADDQ(U32(4*elements), from)
		ADDQ(step, d)
	})
	TESTQ(left, left)
	JZ(LabelRef("next"))
	x, y := ZMM(), ZMM()
	VMOVUPS_Z(Mem{Base: from}, t.lower, x)
	VMOVUPS_Z(Mem{Base: from, Disp: 64}, t.upper, y)
	narrow(x, y, x)
	if tiles {
		VMOVUPS(x, Mem{Base: d})
	} else {
		VMOVUPS(x, t.result, Mem{Base: d})
	}
	Label("next")
	ADDQ(Imm(4), p.list)
	if tiles {
		ADDQ(Imm(tileBytes), row)
		CMPQ(row, U32(tileRows*tileBytes))
		JNE(LabelRef("same"))
		XORQ(row, row)
	}
	ADDQ(p.ldd, p.dst)
	if tiles {
		Label("same")
	}
	DECQ(p.count)
	JNZ(LabelRef("rows"))
	finish()
}

// roundRows rounds in float32. Adding just under half a unit of the 16 bits that
// are kept, and one more where they are odd, carries into them when they have to
// go up; see package bf16. NaN becomes quiet and keeps its upper bits. With AVX2,
// n is a multiple of rowUnit.
func (v *isa) roundRows() {
	function("roundRows"+v.name, packSignature, "is bf16Products.packRows and packCols with one value per word.")
	p := newPacking()
	upper, quiet, almostHalf := v.integers(0xffff0000), v.integers(1<<22), v.integers(1<<15-1)
	round := v.rounding(upper, quiet, almostHalf)
	var tail reg.GPVirtual
	if v == avx512 {
		rest := GP64()
		MOVQ(p.n, rest)
		ANDQ(Imm(uint64(v.lanes-1)), rest)
		tail = firstBits(rest)
	}

	Label("rows")
	from, d, left := p.row(0), GP64(), GP64()
	MOVQ(p.dst, d)
	whole("vectors", p.n, left, v.lanes, func() {
		x, y := v.reg(), v.reg()
		VMOVUPS(Mem{Base: from}, x)
		round(x, y)
		VMOVUPS(y, Mem{Base: d})
		ADDQ(Imm(uint64(v.bytes())), from)
		ADDQ(Imm(uint64(v.bytes())), d)
	})
	if v == avx512 {
		TESTQ(left, left)
		JZ(LabelRef("next"))
		x, y := v.reg(), v.reg()
		VMOVUPS_Z(Mem{Base: from}, opmask(tail), x)
		round(x, y)
		VMOVUPS(y, opmask(tail), Mem{Base: d})
		Label("next")
	}
	ADDQ(Imm(4), p.list)
	ADDQ(p.ldd, p.dst)
	DECQ(p.count)
	JNZ(LabelRef("rows"))
	finish()
}

// rounding emits the rounding of x to y; x is lost.
func (v *isa) rounding(upper, quiet, almostHalf reg.VecVirtual) (round func(x, y reg.VecVirtual)) {
	const unordered = 3
	if v == avx512 {
		half, lowest := v.integers(1<<15), v.integers(1<<16)
		return func(x, y reg.VecVirtual) {
			odd, nan := K(), K()
			VPTESTMD(lowest, x, odd)
			VCMPPS(Imm(unordered), x, x, nan)
			VPADDD(almostHalf, x, y)
			VPADDD(half, x, odd, y)
			VPORD(quiet, x, nan, y)
			VPANDD(upper, y, y)
		}
	}
	one := v.integers(1)
	return func(x, y reg.VecVirtual) {
		nan := v.reg()
		VPSRLD(Imm(16), x, y)
		VPAND(one, y, y)
		VPADDD(almostHalf, y, y)
		VPADDD(x, y, y)
		VCMPPS(Imm(unordered), x, x, nan)
		VPOR(quiet, x, x)
		VBLENDVPS(nan, x, y, y)
		VPAND(upper, y, y)
	}
}
