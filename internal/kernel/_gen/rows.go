package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// loadWeights loads the vectors of a parameter of panelLanes elements.
func (v *isa) loadWeights(param string) []reg.VecVirtual {
	w := loadBase(param)
	r := v.regs(panelLanes / v.lanes)
	for i, x := range r {
		VMOVUPS(Mem{Base: w, Disp: i * v.bytes()}, x)
	}
	return r
}

func (v *isa) scaleRows() {
	function("scaleRows"+v.name, "(c []float32, rows int, w []float32)", "is isa.scaleRows.")
	c, rows, w := loadBase("c"), load("rows"), v.loadWeights("w")
	Label("row")
	for i, x := range w {
		y := v.reg()
		at := Mem{Base: c, Disp: i * v.bytes()}
		VMULPS(at, x, y)
		VMOVUPS(y, at)
	}
	ADDQ(U32(4*panelLanes), c)
	DECQ(rows)
	JNZ(LabelRef("row"))
	finish()
}

// dotRows reduces rowUnit rows to one vector of eight lanes each, and these to
// the eight results by horizontal additions, which add neighbours of two
// vectors at a time.
func (v *isa) dotRows() {
	function("dotRows"+v.name, "(dst, p []float32, rows int, w []float32)", "is isa.dotRows.")
	dst, p, rows, w := loadBase("dst"), loadBase("p"), load("rows"), v.loadWeights("w")
	Label("rows")
	var half [2]reg.VecVirtual
	for h := range half {
		var sums [4]reg.VecVirtual
		for i := range sums {
			s := v.reg()
			at := (h*len(sums) + i) * 4 * panelLanes
			VMULPS(Mem{Base: p, Disp: at}, w[0], s)
			for j, x := range w[1:] {
				VFMADD231PS(Mem{Base: p, Disp: at + (j+1)*v.bytes()}, x, s)
			}
			if v == avx512 {
				upper := YMM()
				VEXTRACTF64X4(Imm(1), s, upper)
				VADDPS(upper, s.AsY(), s.AsY())
			}
			sums[i] = s
		}
		VHADDPS(sums[1].AsY(), sums[0].AsY(), sums[0].AsY())
		VHADDPS(sums[3].AsY(), sums[2].AsY(), sums[2].AsY())
		VHADDPS(sums[2].AsY(), sums[0].AsY(), sums[0].AsY())
		half[h] = sums[0]
	}
	// Each half now has sums over the lower and the upper four lanes of four
	// rows: a = [a0 a1], b = [b0 b1], the result is [a0+a1 b0+b1].
	lower, upper := YMM(), YMM()
	VPERM2F128(Imm(0x20), half[1].AsY(), half[0].AsY(), lower)
	VPERM2F128(Imm(0x31), half[1].AsY(), half[0].AsY(), upper)
	VADDPS(upper, lower, lower)
	VMOVUPS(lower, Mem{Base: dst})
	ADDQ(Imm(4*rowUnit), dst)
	ADDQ(U32(4*panelLanes*rowUnit), p)
	SUBQ(Imm(rowUnit), rows)
	JNZ(LabelRef("rows"))
	finish()
}
