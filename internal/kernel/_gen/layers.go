package main

import (
	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// constants returns a function that provides a vector with x in all lanes: in a
// register, or with AVX2, which has too few, in a table of this name in memory,
// where one operand of any instruction may be.
func (v *isa) constants(name string) func(x float64) Op {
	if v == avx512 {
		return func(x float64) Op { return v.broadcast(x) }
	}
	table := GLOBL(name, attr.RODATA|attr.NOPTR)
	size := 0
	return func(x float64) Op {
		at := table.Offset(size)
		for range v.lanes {
			DATA(size, F32(x))
			size += 4
		}
		return at
	}
}

// sumSquares converts before it squares, and keeps four sums so that additions do
// not wait for one another.
func (v *isa) sumSquares() {
	function("sumSquares"+v.name, "(x []float32) float64", "is isa.sumSquares.")
	x, n := loadBase("x"), Load(Param("x").Len(), GP64()).(reg.GPVirtual)
	sums := v.zeros(4)
	half := v.bytes() / 2 // of a vector: as many float32 as fit as float64
	Label("next")
	for at := 0; at < 4*panelLanes; at += half {
		y := v.reg()
		VCVTPS2PD(Mem{Base: x, Disp: at}, y)
		VFMADD231PD(y, y, sums[at/half%len(sums)])
	}
	ADDQ(Imm(4*panelLanes), x)
	SUBQ(Imm(panelLanes), n)
	JNZ(LabelRef("next"))
	VADDPD(sums[2], sums[0], sums[0])
	VADDPD(sums[3], sums[1], sums[1])
	VADDPD(sums[1], sums[0], sums[0])
	upper, all := YMM(), sums[0]
	if v == avx512 {
		VEXTRACTF64X4(Imm(1), all, upper)
		VADDPD(upper, all.AsY(), all.AsY())
	}
	sum := all.AsX()
	VEXTRACTF128(Imm(1), all.AsY(), upper.AsX())
	VADDPD(upper.AsX(), sum, sum)
	VHADDPD(sum, sum, sum)
	Store(sum, ReturnIndex(0))
	finish()
}

func (v *isa) applyWeight() {
	function("applyWeight"+v.name, "(dst, x, weight []float32, factor float32)", "is isa.applyWeight.")
	dst, x, weight := loadBase("dst"), loadBase("x"), loadBase("weight")
	n := Load(Param("x").Len(), GP64()).(reg.GPVirtual)
	factor := v.reg()
	VBROADCASTSS(NewParamAddr("factor", 72), factor)
	Label("next")
	for at := 0; at < 4*panelLanes; at += v.bytes() {
		y := v.reg()
		VMULPS(Mem{Base: x, Disp: at}, factor, y)
		VMULPS(Mem{Base: weight, Disp: at}, y, y)
		VMOVUPS(y, Mem{Base: dst, Disp: at})
	}
	for _, p := range []reg.GPVirtual{dst, x, weight} {
		ADDQ(Imm(4*panelLanes), p)
	}
	SUBQ(Imm(panelLanes), n)
	JNZ(LabelRef("next"))
	finish()
}

// swiGLU computes silu(x) as x/(1+e) for x >= 0 and x e/(1+e) for x < 0, with
// e = exp(-|x|) = 2^(n+r), n an integer and r in [0, 1].
func (v *isa) swiGLU() {
	function("swiGLU"+v.name, "(dst, gate, up []float32)", "is isa.swiGLU.")
	dst, gate, up := loadBase("dst"), loadBase("gate"), loadBase("up")
	left := Load(Param("gate").Len(), GP64()).(reg.GPVirtual)

	constant := v.constants("swiGLUConstants")
	sign, one := constant(negativeZero), constant(1)
	// e of a smaller argument would be subnormal; of this one n is -127 and e is 0.
	floor := constant(-88)
	// log2 e, and what float32 lacks of it: the product with x is exact but for one
	// rounding of r.
	log2e, log2eLow := constant(log2E), constant(log2E-float64(float32(log2E)))
	var poly []Op
	for _, c := range expPoly {
		poly = append(poly, constant(c))
	}

	const unroll = 2
	each := func(f func(i int)) {
		for i := range unroll {
			f(i)
		}
	}
	at := func(base reg.GPVirtual, i int) Mem { return Mem{Base: base, Disp: i * v.bytes()} }
	const down = 9 // round towards -Inf, without an exception
	Label("next")
	x, n, r, p, e := v.regs(unroll), v.regs(unroll), v.regs(unroll), v.regs(unroll), v.regs(unroll)
	each(func(i int) { VMOVUPS(at(gate, i), x[i]) })
	each(func(i int) { VORPS(sign, x[i], e[i]) })
	// With a NaN, VMAXPS gives its first operand (the second source of Intel's
	// order): x.
	each(func(i int) { VMOVUPS(floor, n[i]) })
	each(func(i int) { VMAXPS(e[i], n[i], e[i]) })
	each(func(i int) { VMULPS(log2e, e[i], n[i]) })
	if v == avx512 {
		each(func(i int) { VRNDSCALEPS(Imm(down), n[i], n[i]) })
	} else {
		each(func(i int) { VROUNDPS(Imm(down), n[i], n[i]) })
	}
	each(func(i int) { VMOVAPS(n[i], r[i]) })
	each(func(i int) { VFMSUB231PS(log2e, e[i], r[i]) })
	each(func(i int) { VFMADD231PS(log2eLow, e[i], r[i]) })
	each(func(i int) { VMOVUPS(poly[len(poly)-1], p[i]) })
	for d := len(poly) - 2; d >= 0; d-- {
		each(func(i int) { VFMADD213PS(poly[d], r[i], p[i]) })
	}
	each(func(i int) { VCVTPS2DQ(n[i], n[i]) })
	each(func(i int) { VPSLLD(Imm(23), n[i], n[i]) })
	each(func(i int) { VPADDD(one, n[i], n[i]) })
	each(func(i int) { VMULPS(p[i], n[i], e[i]) })

	// The numerator is e where x is negative, else 1.
	each(func(i int) { VMOVUPS(one, p[i]) })
	each(func(i int) { VADDPS(e[i], p[i], n[i]) })
	if v == avx512 {
		each(func(i int) {
			negative := K()
			VPMOVD2M(x[i], negative)
			VMOVAPS(e[i], negative, p[i])
		})
	} else {
		each(func(i int) { VBLENDVPS(x[i], e[i], p[i], p[i]) })
	}
	each(func(i int) { VDIVPS(n[i], p[i], p[i]) })
	each(func(i int) { VMULPS(p[i], x[i], x[i]) })
	each(func(i int) { VMULPS(at(up, i), x[i], x[i]) })
	each(func(i int) { VMOVUPS(x[i], at(dst, i)) })
	for _, p := range []reg.GPVirtual{dst, gate, up} {
		ADDQ(Imm(uint64(unroll*v.bytes())), p)
	}
	SUBQ(Imm(uint64(unroll*v.lanes)), left)
	JNZ(LabelRef("next"))
	finish()
}

// rotate needs little more than its loads and stores, which are as many with wider
// registers as long as the halves of heads have 32 elements or so.
func rotate() {
	v := avx2
	function("rotateAVX2", "(dst []float32, ldd int, src, cos, sin []float32, heads int)", "is isa.rotate.")
	dst, ldd, src := loadBase("dst"), loadBytes("ldd", 4), loadBase("src")
	cos, sin := loadBase("cos"), loadBase("sin")
	half, heads := Load(Param("cos").Len(), GP64()).(reg.GPVirtual), load("heads")
	SHLQ(Imm(2), half)
	Label("head")
	at := GP64()
	XORQ(at, at)
	Label("next")
	upper := func(base reg.GPVirtual) Mem { // the upper half of the head at base
		p := GP64()
		LEAQ(Mem{Base: base, Index: half, Scale: 1}, p)
		return Mem{Base: p, Index: at, Scale: 1}
	}
	x0, x1, c, s, y0, y1 := v.reg(), v.reg(), v.reg(), v.reg(), v.reg(), v.reg()
	srcUpper, dstUpper := upper(src), upper(dst)
	VMOVUPS(Mem{Base: cos, Index: at, Scale: 1}, c)
	VMOVUPS(Mem{Base: sin, Index: at, Scale: 1}, s)
	VMOVUPS(Mem{Base: src, Index: at, Scale: 1}, x0)
	VMOVUPS(srcUpper, x1)
	VMULPS(x1, s, y0)
	VFMSUB231PS(x0, c, y0)
	VMULPS(x0, s, y1)
	VFMADD231PS(x1, c, y1)
	VMOVUPS(y0, Mem{Base: dst, Index: at, Scale: 1})
	VMOVUPS(y1, dstUpper)
	ADDQ(Imm(uint64(v.bytes())), at)
	CMPQ(at, half)
	JL(LabelRef("next"))
	ADDQ(half, src)
	ADDQ(half, src)
	ADDQ(ldd, dst)
	DECQ(heads)
	JNZ(LabelRef("head"))
	finish()
}
