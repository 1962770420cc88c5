// Command gen writes the x86 assembly of package kernel. Run "go generate" in
// internal/kernel after a change; check.sh verifies that the committed files are
// what this program writes.
package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The geometry that package kernel shares among its instruction sets.
const (
	panelLanes = 32
	rowUnit    = 8
)

// isa is an instruction set: its name as a suffix of functions, and its vectors.
type isa struct {
	name  string
	lanes int
	reg   func() reg.VecVirtual
}

var (
	avx512 = &isa{"AVX512", 16, ZMM}
	avx2   = &isa{"AVX2", 8, YMM}
)

func (v *isa) bytes() int { return 4 * v.lanes }

// regs makes n vector registers.
func (v *isa) regs(n int) []reg.VecVirtual {
	r := make([]reg.VecVirtual, n)
	for i := range r {
		r[i] = v.reg()
	}
	return r
}

// zeros makes n vector registers that hold 0.
func (v *isa) zeros(n int) []reg.VecVirtual {
	r := v.regs(n)
	for _, x := range r {
		VXORPS(x, x, x)
	}
	return r
}

// function starts a function without a frame. Nothing here calls anything or
// lets Go pointers escape.
func function(name, signature, doc string) {
	TEXT(name, NOSPLIT, "func"+signature)
	Pragma("noescape")
	Doc(name + " " + doc)
}

// finish returns from a function that has used vectors. Without VZEROUPPER,
// later SSE instructions would be slow.
func finish() {
	VZEROUPPER()
	RET()
}

func load(param string) reg.GPVirtual { return Load(Param(param), GP64()).(reg.GPVirtual) }

func loadBase(param string) reg.GPVirtual {
	return Load(Param(param).Base(), GP64()).(reg.GPVirtual)
}

// loadBytes loads a distance in elements of size bytes, 2 or 4, as bytes.
func loadBytes(param string, size int) reg.GPVirtual {
	r := load(param)
	SHLQ(Imm(map[int]uint64{2: 1, 4: 2}[size]), r)
	return r
}

// times3 is 3 r.
func times3(r reg.GPVirtual) reg.GPVirtual {
	x := GP64()
	LEAQ(Mem{Base: r, Index: r, Scale: 2}, x)
	return x
}

// plus4 is base + 4 stride: with it, eight rows are addressed by two bases.
func plus4(base, stride reg.GPVirtual) reg.GPVirtual {
	x := GP64()
	LEAQ(Mem{Base: base, Index: stride, Scale: 4}, x)
	return x
}

// row addresses row i < 8 of a matrix with its first and fifth row at base and
// base4, rows at a distance of stride, and stride3 = 3 stride.
func row(i int, base, base4, stride, stride3 reg.GPVirtual) Mem {
	m := Mem{Base: base}
	if i >= 4 {
		m.Base = base4
	}
	switch i % 4 {
	case 1:
		m.Index, m.Scale = stride, 1
	case 2:
		m.Index, m.Scale = stride, 2
	case 3:
		m.Index, m.Scale = stride3, 1
	}
	return m
}

// broadcast makes a register with x in all lanes.
func (v *isa) broadcast(x float64) reg.VecVirtual { return v.integers(math.Float32bits(float32(x))) }

// integers makes a register with the same 32 bits in all lanes.
func (v *isa) integers(bits uint32) reg.VecVirtual {
	g, r := GP32(), v.reg()
	MOVL(U32(bits), g)
	VMOVD(g, r.AsX())
	VPBROADCASTD(r.AsX(), r)
	return r
}

func main() {
	ConstraintExpr("amd64,!noasm")
	for _, v := range []*isa{avx512, avx2} {
		v.mulRows()
		v.mulCols()
		v.softmax(false)
		v.scaleRows()
		v.dotRows()
		v.sumSquares()
		v.applyWeight()
		v.swiGLU()
		v.roundRows()
		v.peakFMA()
	}
	transposes()
	rotate()
	sortKeys()
	partition()
	avx512bf16.mulRows()
	avx512bf16.mulCols()
	avx512bf16.peakFMA()
	avx512.softmax(true)
	packRows()
	packCols(false)
	tileProducts()
	packCols(true)
	packTransposed()
	peakFMATiles()
	avx512vnni.mulRows()
	avx512vnni.mulCols()
	avx512vnni.peakFMA()
	quantizeRows()
	quantizeCols()
	unscale()
	unpacks()
	roundBlocks()
	avx2.expand()
	avx512.expand()
	mulBlocks()
	cpuid()
	Generate()
}
