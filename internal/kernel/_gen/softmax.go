package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// expPoly and expRound are those of exp.go in package kernel, where they are
// explained.
var expPoly = []float64{1, 1.000000038, 0.5000000047, 0.1666641551, 0.0416663529, 0.008375126398, 0.001394110843}

const expRound = 12582912

// expFloor is below the smallest argument whose exponential is not flushed to 0:
// x = n ln2 + r with n = -127 gives 2^n = 0.
const expFloor = -88

// exponential holds the constants of exp.
type exponential struct {
	v                             *isa
	floor, log2e, round, ln2, one Op
	poly                          []Op
}

// exponential puts the constants into registers, or with AVX2, which has too few,
// into memory, where one operand of any instruction may be.
func (v *isa) exponential() *exponential {
	constant := func(x float64) Op { return v.broadcast(x) }
	if v == avx2 {
		table := GLOBL("expConstants", attr.RODATA|attr.NOPTR)
		size := 0
		constant = func(x float64) Op {
			at := table.Offset(size)
			for range v.lanes {
				DATA(size, F32(x))
				size += 4
			}
			return at
		}
	}
	e := &exponential{v: v,
		floor: constant(expFloor), log2e: constant(math.Log2E), round: constant(expRound),
		ln2: constant(math.Ln2), one: constant(1)}
	for _, c := range expPoly {
		e.poly = append(e.poly, constant(c))
	}
	return e
}

// apply replaces every x <= 0 by exp(x). Instructions for independent vectors
// alternate, to fill the latency of each other.
func (e *exponential) apply(x []reg.VecVirtual) {
	n := len(x)
	t, r := e.v.regs(n), e.v.regs(n)
	each := func(f func(i int)) {
		for i := range n {
			f(i)
		}
	}
	each(func(i int) { VMOVUPS(e.floor, t[i]) })
	// With a NaN, VMAXPS gives its first operand (the second source of Intel's
	// order): x.
	each(func(i int) { VMAXPS(x[i], t[i], x[i]) })
	each(func(i int) { VMOVUPS(e.round, t[i]) })
	each(func(i int) { VFMADD231PS(e.log2e, x[i], t[i]) })
	each(func(i int) { VSUBPS(e.round, t[i], r[i]) })
	each(func(i int) { VFNMADD231PS(e.ln2, r[i], x[i]) })
	last := len(e.poly) - 1
	each(func(i int) { VMOVUPS(e.poly[last], r[i]) })
	for d := last - 1; d >= 0; d-- {
		each(func(i int) { VFMADD213PS(e.poly[d], x[i], r[i]) })
	}
	each(func(i int) { VPSLLD(Imm(23), t[i], t[i]) })
	each(func(i int) { VPADDD(e.one, t[i], t[i]) })
	each(func(i int) { VMULPS(t[i], r[i], x[i]) })
}

// softmax walks over the rows once for the maximum and once for the
// exponentials, one vector of columns after the other.
func (v *isa) softmax() {
	function("softmax"+v.name, "(s []float32, rows int, state []float32)", "is level.softmax.")
	s, state := loadBase("s"), loadBase("state")
	unroll := 4
	const rowBytes = 4 * panelLanes

	e := v.exponential()
	columns := GP64()
	MOVQ(U32(panelLanes/v.lanes), columns)

	Label("columns")
	// loop runs body over all rows, unroll at a time and then one at a time.
	// The first body sees the row count at least once.
	p, left := GP64(), GP64()
	loop := func(name string, body func(n int)) {
		MOVQ(s, p)
		rows := load("rows")
		MOVQ(rows, left)
		Label(name)
		CMPQ(left, Imm(uint64(unroll)))
		JL(LabelRef(name + "_single"))
		body(unroll)
		ADDQ(U32(uint32(unroll*rowBytes)), p)
		SUBQ(Imm(uint64(unroll)), left)
		JMP(LabelRef(name))
		Label(name + "_single")
		TESTQ(left, left)
		JZ(LabelRef(name + "_end"))
		body(1)
		ADDQ(U32(rowBytes), p)
		DECQ(left)
		JMP(LabelRef(name + "_single"))
		Label(name + "_end")
	}
	at := func(i int) Mem { return Mem{Base: p, Disp: i * rowBytes} }

	maxima := v.regs(unroll)
	for _, m := range maxima {
		VMOVUPS(Mem{Base: state}, m)
	}
	loop("max", func(n int) {
		x := v.regs(n)
		for i := range n {
			VMOVUPS(at(i), x[i])
		}
		for i := range n {
			// With a NaN in x, VMAXPS gives its first operand, the maximum.
			VMAXPS(maxima[i], x[i], maxima[i])
		}
	})
	for step := unroll / 2; step > 0; step /= 2 {
		for i := range step {
			VMAXPS(maxima[i], maxima[i+step], maxima[i])
		}
	}
	maximum := maxima[0]

	// shift = maximum, or 0 where that is -Inf.
	lowest, shift := v.broadcast(-math.MaxFloat32), v.reg()
	const greaterEqual = 13
	if v == avx512 {
		finite := K()
		VCMPPS(Imm(greaterEqual), lowest, maximum, finite)
		VMOVAPS_Z(maximum, finite, shift)
	} else {
		VCMPPS(Imm(greaterEqual), lowest, maximum, shift)
		VANDPS(maximum, shift, shift)
	}
	shrink := v.reg()
	VMOVUPS(Mem{Base: state}, shrink)
	VMOVUPS(maximum, Mem{Base: state})
	VSUBPS(shift, shrink, shrink)
	e.apply([]reg.VecVirtual{shrink})
	VMOVUPS(shrink, Mem{Base: state, Disp: 2 * rowBytes})

	sums := v.zeros(2)
	VMULPS(Mem{Base: state, Disp: rowBytes}, shrink, sums[0])
	loop("exp", func(n int) {
		x := v.regs(n)
		for i := range n {
			VMOVUPS(at(i), x[i])
		}
		for i := range n {
			VSUBPS(shift, x[i], x[i])
		}
		e.apply(x)
		for i := range n {
			VADDPS(x[i], sums[i%2], sums[i%2])
			VMOVUPS(x[i], at(i))
		}
	})
	VADDPS(sums[1], sums[0], sums[0])
	VMOVUPS(sums[0], Mem{Base: state, Disp: rowBytes})

	ADDQ(U32(uint32(v.bytes())), s)
	ADDQ(U32(uint32(v.bytes())), state)
	DECQ(columns)
	JNZ(LabelRef("columns"))
	finish()
}
