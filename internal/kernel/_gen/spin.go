package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// spin keeps more sums than two multiply-add units of four or five cycles of
// latency need.
func (v *isa) spin() {
	function("spin"+v.name, "(n int) (flops int)", "is level.spin.")
	const chains = 12
	n := load("n")
	x, y := v.broadcast(0.5), v.broadcast(1)
	sums := v.zeros(chains)
	Label("round")
	for _, s := range sums {
		VFMADD213PS(y, x, s)
	}
	DECQ(n)
	JNZ(LabelRef("round"))
	flops := GP64()
	MOVQ(U32(uint32(2*chains*v.lanes)), flops)
	Store(flops, ReturnIndex(0))
	finish()
}
