package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// expPoly and expMin are those of exp.go in package kernel, where they are
// explained.
var expPoly = []float64{1, 0.6931527868, 0.2401489562, 0.05584989256, 0.00895402729, 0.001894337083}

const expMin = -126

const log2E = math.Log2E

// negativeZero has the sign bit alone.
var negativeZero = math.Copysign(0, -1)

// exponential holds the constants of 2^x.
type exponential struct {
	v          *isa
	floor, one Op // of AVX2
	poly       []Op
}

func (v *isa) exponential() *exponential {
	constant := v.constants("expConstants")
	e := &exponential{v: v}
	if v == avx2 {
		// Arguments below expMin become one whose power of 2 has the exponent 0,
		// which means 0.
		e.floor, e.one = constant(expMin-1), constant(1)
	}
	for _, c := range expPoly {
		e.poly = append(e.poly, constant(c))
	}
	return e
}

// apply replaces every x <= 0 by 2^x. Instructions for independent vectors
// alternate, to fill the latency of each other. With AVX-512, results are 0 instead
// of subnormal only between flush and unflush.
func (e *exponential) apply(x []reg.VecVirtual) {
	n := len(x)
	const down = 9 // round towards -Inf, without an exception
	each := func(f func(i int)) {
		for i := range n {
			f(i)
		}
	}
	fraction, power := e.v.regs(n), e.v.regs(n)
	if e.v == avx512 {
		each(func(i int) { VREDUCEPS(Imm(down), x[i], fraction[i]) })
	} else {
		// With a NaN, VMAXPS gives its first operand (the second source of
		// Intel's order): x.
		each(func(i int) { VMOVUPS(e.floor, power[i]) })
		each(func(i int) { VMAXPS(x[i], power[i], x[i]) })
		each(func(i int) { VROUNDPS(Imm(down), x[i], power[i]) })
		each(func(i int) { VSUBPS(power[i], x[i], fraction[i]) })
	}
	last := len(e.poly) - 1
	p := x
	if e.v == avx512 {
		p = e.v.regs(n)
	}
	each(func(i int) { VMOVUPS(e.poly[last], p[i]) })
	for d := last - 1; d >= 0; d-- {
		each(func(i int) { VFMADD213PS(e.poly[d], fraction[i], p[i]) })
	}
	if e.v == avx512 {
		// VSCALEFPS rounds the exponent down by itself.
		each(func(i int) { VSCALEFPS(x[i], p[i], x[i]) })
		return
	}
	each(func(i int) { VCVTPS2DQ(power[i], power[i]) })
	each(func(i int) { VPSLLD(Imm(23), power[i], power[i]) })
	each(func(i int) { VPADDD(e.one, power[i], power[i]) })
	each(func(i int) { VMULPS(power[i], p[i], x[i]) })
}

// flush makes subnormal results 0, which saves a comparison for each vector, until
// unflush. No other code sees that: the runtime does not preempt assembly, and a
// signal handler returns to the control register that it found.
func flush() (unflush func()) {
	const flushToZero = 1 << 15
	saved, bits := AllocLocal(8), GP32()
	STMXCSR(saved)
	MOVL(saved, bits)
	ORL(U32(flushToZero), bits)
	MOVL(bits, saved.Offset(4))
	LDMXCSR(saved.Offset(4))
	return func() { LDMXCSR(saved) }
}

// softmax walks over the rows once for the maximum and once for the
// exponentials, one vector of columns after the other.
//
// With pairs, which takes AVX-512 with its instructions for bfloat16, it also
// writes the exponentials as words of two rows.
func (v *isa) softmax(pairs bool) {
	steps := []int{4, 1} // rows at a time
	var words reg.GPVirtual
	if pairs {
		function("softmaxAVX512BF16", "(words, s []float32, rows int, state []float32)", "is bf16Products.softmax.")
		steps = []int{4, 2, 1}
		words = loadBase("words")
	} else {
		function("softmax"+v.name, "(s []float32, rows int, state []float32)", "is isa.softmax.")
	}
	s, state := loadBase("s"), loadBase("state")
	unroll := steps[0]
	const rowBytes = 4 * panelLanes

	unflush := func() {}
	if v == avx512 {
		unflush = flush()
	}
	e := v.exponential()
	columns := GP64()
	MOVQ(U32(panelLanes/v.lanes), columns)

	Label("columns")
	// loop runs body over all rows, as many at a time as a step says.
	p, left := GP64(), GP64()
	loop := func(name string, body func(n int)) {
		MOVQ(s, p)
		rows := load("rows")
		MOVQ(rows, left)
		for _, n := range steps {
			step := fmt.Sprint(name, n)
			Label(step)
			CMPQ(left, Imm(uint64(n)))
			JL(LabelRef(step + "_end"))
			body(n)
			ADDQ(U32(uint32(n*rowBytes)), p)
			SUBQ(Imm(uint64(n)), left)
			JMP(LabelRef(step))
			Label(step + "_end")
		}
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

	word := GP64()
	var order reg.VecVirtual
	if pairs {
		order = v.reg()
		VMOVDQU32(interleave(), order)
		MOVQ(words, word)
	}
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
		if !pairs {
			return
		}
		if n == 1 {
			x = append(x, v.zeros(1)...)
		}
		for i := 0; i < len(x); i += 2 {
			narrow(x[i], x[i+1], x[i])
			VPERMW(x[i], order, x[i])
			VMOVUPS(x[i], Mem{Base: word})
			ADDQ(U32(rowBytes), word)
		}
	})
	VADDPS(sums[1], sums[0], sums[0])
	VMOVUPS(sums[0], Mem{Base: state, Disp: rowBytes})

	ADDQ(U32(uint32(v.bytes())), s)
	if pairs {
		ADDQ(U32(uint32(v.bytes())), words)
	}
	ADDQ(U32(uint32(v.bytes())), state)
	DECQ(columns)
	JNZ(LabelRef("columns"))
	unflush()
	finish()
}
