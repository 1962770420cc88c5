package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// peakFMA keeps more sums than two multiply-add units of four to six cycles of
// latency need. A pair of numbers makes two products.
func (v *isa) peakFMA() {
	function("peakFMA"+v.name, "(n int) (flops int)", "is isa.peakFMA.")
	const chains = 12
	n := load("n")
	x, y := v.broadcast(0.5), v.broadcast(1)
	sums := v.zeros(chains)
	Label("round")
	for _, s := range sums {
		v.multiplyAdd(x, y, s)
	}
	DECQ(n)
	JNZ(LabelRef("round"))
	flops := GP64()
	perLane := uint32(2)
	if v == avx512bf16 || v == avx512vnni {
		perLane = 4
	}
	MOVQ(U32(perLane*uint32(chains*v.lanes)), flops)
	Store(flops, ReturnIndex(0))
	finish()
}

// peakInt8 is peakFMA for products of bytes.
func (v *isa) peakInt8() {
	function("peakInt8"+v.name, "(n int) (flops int)", "is codeProducts.peak.")
	const chains = 12
	n := load("n")
	x, y := v.integers(0x01010101), v.integers(0x02020202)
	sums := v.zeros(chains)
	Label("round")
	for _, s := range sums {
		if v == avx512vnni {
			VPDPBUSD(x, y, s)
			continue
		}
		// Sums of few products stay int16.
		products := v.reg()
		VPMADDUBSW(x, y, products)
		VPADDW(products, s, s)
	}
	DECQ(n)
	JNZ(LabelRef("round"))
	flops := GP64()
	MOVQ(U32(2*4*uint32(chains*v.lanes)), flops)
	Store(flops, ReturnIndex(0))
	finish()
}
