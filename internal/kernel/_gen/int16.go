package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// avx512vnni multiplies with AVX512-VNNI: an element of 32 bits is a pair of
// int16, and sums are int32.
var avx512vnni = &isa{"AVX512VNNI", 16, ZMM}

// quantizer holds the constants of rounding to integers with a common scale.
type quantizer struct {
	magnitude, finite, infinity, tiny, nan, low reg.VecVirtual
}

func newQuantizer() *quantizer {
	v := avx512vnni
	return &quantizer{
		magnitude: v.integers(1<<31 - 1), finite: v.broadcast(math.MaxFloat32), infinity: v.integers(0x7f800000),
		tiny: v.broadcast(0x1p-100), nan: v.integers(0x7fc00000), low: v.integers(1<<16 - 1),
	}
}

// widest keeps in most the largest magnitudes of each lane, as integers, of which
// those of infinities and NaN are the largest.
func (q *quantizer) widest(x, most reg.VecVirtual) {
	VPANDD(q.magnitude, x, x)
	VPMAXUD(x, most, most)
}

// factors makes of the largest magnitude of each lane the factor that takes it to
// largest, and the value of the integer 1, which is NaN if not all are finite. The
// view of registers says of how many lanes: divisions of vectors take long.
func (q *quantizer) factors(view func(reg.VecVirtual) reg.Register, most, largest, factor, unit reg.VecVirtual) {
	wrong := K()
	const greaterEqual = 5
	VPCMPUD(Imm(greaterEqual), view(q.infinity), view(most), wrong)
	VMAXPS(view(q.tiny), view(most), view(most))
	VDIVPS(view(most), view(largest), view(factor))
	VDIVPS(view(largest), view(most), view(unit))
	VMOVAPS(view(q.nan), wrong, view(unit))
}

// integer rounds x factor, to even.
func (q *quantizer) integer(x, factor reg.VecVirtual) {
	VMULPS(x, factor, x)
	VCVTPS2DQ(x, x)
}

// broadcastParam fills a vector with a parameter.
func broadcastParam(offset int, name string) reg.VecVirtual {
	r := ZMM()
	VBROADCASTSS(NewParamAddr(name, offset), r)
	return r
}

// quantizeCols makes words of neighbours in a row; every row has a scale.
func quantizeCols() {
	function("packColsAVX512VNNI",
		"(dst []float32, ldd int, units []float32, list []int32, src []float32, lds, n int, largest float32)",
		"is int16Products.packCols.")
	p := newPacking()
	units := loadBase("units")
	largest := broadcastParam(120, "largest")
	q := newQuantizer()
	inOrder := GLOBL("inOrder", attr.RODATA|attr.NOPTR)
	for i, quarter := range []int{0, 2, 4, 6, 1, 3, 5, 7} {
		DATA(8*i, U64(quarter))
	}
	order := ZMM()
	VMOVDQU64(inOrder, order)
	const elements = 32
	t := newPairTail(p.n)

	Label("rows")
	from, d, left := p.row(0), GP64(), GP64()
	at := GP64()
	MOVQ(from, at)
	most := avx512vnni.zeros(2)
	whole("widest", p.n, left, elements, func() {
		x, y := ZMM(), ZMM()
		VMOVUPS(Mem{Base: at}, x)
		VMOVUPS(Mem{Base: at, Disp: 64}, y)
		q.widest(x, most[0])
		q.widest(y, most[1])
		ADDQ(U32(4*elements), at)
	})
	x, y := ZMM(), ZMM()
	VMOVUPS_Z(Mem{Base: at}, t.lower, x)
	VMOVUPS_Z(Mem{Base: at, Disp: 64}, t.upper, y)
	q.widest(x, most[0])
	q.widest(y, most[1])
	VPMAXUD(most[1], most[0], most[0])
	// The largest of the row, in all lanes.
	for _, step := range []uint64{0x4e, 0xb1} { // halves, quarters
		swapped := ZMM()
		VSHUFF64X2(Imm(step), most[0], most[0], swapped)
		VPMAXUD(swapped, most[0], most[0])
	}
	for _, step := range []uint64{0x4e, 0xb1} {
		swapped := ZMM()
		VPSHUFD(Imm(step), most[0], swapped)
		VPMAXUD(swapped, most[0], most[0])
	}
	factor, unit := ZMM(), ZMM()
	one := func(r reg.VecVirtual) reg.Register { return r.AsX() }
	q.factors(one, most[0], largest, factor, unit)
	VMOVSS(unit.AsX(), Mem{Base: units})
	VBROADCASTSS(factor.AsX(), factor)

	MOVQ(p.dst, d)
	pack := func(x, y reg.VecVirtual) {
		q.integer(x, factor)
		q.integer(y, factor)
		VPACKSSDW(y, x, x)
		VPERMQ(x, order, x)
	}
	whole("vectors", p.n, left, elements, func() {
		x, y := ZMM(), ZMM()
		VMOVUPS(Mem{Base: from}, x)
		VMOVUPS(Mem{Base: from, Disp: 64}, y)
		pack(x, y)
		VMOVUPS(x, Mem{Base: d})
		ADDQ(U32(4*elements), from)
		ADDQ(Imm(2*elements), d)
	})
	TESTQ(left, left)
	JZ(LabelRef("next"))
	x, y = ZMM(), ZMM()
	VMOVUPS_Z(Mem{Base: from}, t.lower, x)
	VMOVUPS_Z(Mem{Base: from, Disp: 64}, t.upper, y)
	pack(x, y)
	VMOVUPS(x, t.result, Mem{Base: d})
	Label("next")
	ADDQ(Imm(4), p.list)
	ADDQ(Imm(4), units)
	ADDQ(p.ldd, p.dst)
	DECQ(p.count)
	JNZ(LabelRef("rows"))
	finish()
}

// quantizeRows makes words of neighbours in a column; every column has a scale.
// It takes 32 columns at a time, through all rows twice.
func quantizeRows() {
	function("packRowsAVX512VNNI",
		"(dst []float32, ldd int, units []float32, list []int32, src []float32, lds, n int, largest, share float32)",
		"is int16Products.packRows.")
	p := newPacking()
	units := loadBase("units")
	q := newQuantizer()
	const columns = 32

	Label("strip")
	// Masks of the columns in the two halves of the strip.
	bits := firstBits(p.n)
	CMPQ(p.n, Imm(columns))
	some := GP32()
	MOVL(U32(1<<32-1), some)
	CMOVLGE(some, bits)
	k := [2]reg.OpmaskVirtual{opmask(bits), K()}
	SHRL(Imm(16), bits)
	KMOVW(bits, k[1])

	left, list, d := GP64(), GP64(), GP64()
	walk := func(name string, body func(at reg.GPVirtual)) {
		MOVQ(p.list, list)
		MOVQ(p.count, left)
		Label(name)
		at := GP64()
		MOVLQSX(Mem{Base: list}, at)
		IMULQ(p.lds, at)
		ADDQ(p.src, at)
		body(at)
	}
	load := func(at reg.GPVirtual, half int, x reg.VecVirtual) {
		VMOVUPS_Z(Mem{Base: at, Disp: 64 * half}, k[half], x)
	}
	most, sums := avx512vnni.zeros(2), avx512vnni.zeros(2)
	walk("widest", func(at reg.GPVirtual) {
		for half := range 2 {
			x := ZMM()
			load(at, half, x)
			q.widest(x, most[half])
			VADDPS(x, sums[half], sums[half])
		}
		ADDQ(Imm(4), list)
		DECQ(left)
		JNZ(LabelRef("widest"))
	})
	var factor [2]reg.VecVirtual
	for half := range 2 {
		unit, least := ZMM(), ZMM()
		factor[half] = ZMM()
		VMINPS(q.finite, sums[half], least)
		VMULPS(broadcastParam(124, "share"), least, least)
		VPMAXUD(least, most[half], most[half])
		all := func(r reg.VecVirtual) reg.Register { return r }
		q.factors(all, most[half], broadcastParam(120, "largest"), factor[half], unit)
		VMOVUPS(unit, k[half], Mem{Base: units, Disp: 64 * half})
	}
	MOVQ(p.dst, d)
	walk("pair", func(at reg.GPVirtual) {
		x, y := [2]reg.VecVirtual{ZMM(), ZMM()}, [2]reg.VecVirtual{ZMM(), ZMM()}
		for half := range 2 {
			load(at, half, x[half])
			q.integer(x[half], factor[half])
			VPXORD(y[half], y[half], y[half])
		}
		CMPQ(left, Imm(1))
		JE(LabelRef("single"))
		second := GP64()
		MOVLQSX(Mem{Base: list, Disp: 4}, second)
		IMULQ(p.lds, second)
		ADDQ(p.src, second)
		for half := range 2 {
			load(second, half, y[half])
			q.integer(y[half], factor[half])
			VPSLLD(Imm(16), y[half], y[half])
		}
		Label("single")
		for half := range 2 {
			const blend = 0xd8 // second operand where the first has ones, else the third
			VPTERNLOGD(Imm(blend), q.low, x[half], y[half])
			VMOVUPS(y[half], k[half], Mem{Base: d, Disp: 64 * half})
		}
		ADDQ(p.ldd, d)
		ADDQ(Imm(8), list)
		SUBQ(Imm(2), left)
		JG(LabelRef("pair"))
	})
	ADDQ(U32(4*columns), p.dst)
	ADDQ(U32(4*columns), p.src)
	ADDQ(U32(4*columns), units)
	SUBQ(Imm(columns), p.n)
	JG(LabelRef("strip"))
	finish()
}

// unscale turns sums into numbers: times the units of their row and their lane.
func unscale() {
	v := avx512vnni
	function("unscaleAVX512VNNI", "(c []float32, ldc int, sums []float32, rows int, byRow, byLane, keep []float32)",
		"is int16Products.unscale.")
	c, ldc := loadBase("c"), loadBytes("ldc", 4)
	sums, rows, byRow := loadBase("sums"), load("rows"), loadBase("byRow")
	lane, kept := v.loadWeights("byLane"), v.regs(2)
	keep := loadBase("keep")
	result := func(i int, unit reg.VecVirtual) (x, scale reg.VecVirtual) {
		x, scale = v.reg(), v.reg()
		VCVTDQ2PS(Mem{Base: sums, Disp: i * v.bytes()}, x)
		VMULPS(unit, lane[i], scale)
		return x, scale
	}
	next := func(label string) {
		ADDQ(Imm(4), byRow)
		ADDQ(U32(4*panelLanes), sums)
		ADDQ(ldc, c)
		DECQ(rows)
		JNZ(LabelRef(label))
		finish()
	}
	unit := v.reg()
	TESTQ(keep, keep)
	JZ(LabelRef("set"))
	for i, k := range kept {
		VMOVUPS(Mem{Base: keep, Disp: i * v.bytes()}, k)
	}
	Label("add")
	VBROADCASTSS(Mem{Base: byRow}, unit)
	for i := range kept {
		x, scale := result(i, unit)
		at, y := Mem{Base: c, Disp: i * v.bytes()}, v.reg()
		VMULPS(at, kept[i], y)
		VFMADD231PS(x, scale, y)
		VMOVUPS(y, at)
	}
	next("add")
	Label("set")
	VBROADCASTSS(Mem{Base: byRow}, unit)
	for i := range lane {
		x, scale := result(i, unit)
		VMULPS(x, scale, x)
		VMOVUPS(x, Mem{Base: c, Disp: i * v.bytes()})
	}
	next("set")
}
