package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// encoding is the operand of LONG that makes it an instruction that Go's assembler
// does not know: its bytes, and a comment. Registers are assigned long after this is
// made, but before it is printed.
type encoding struct {
	text func() string
	Constant
}

func (e encoding) Asm() string { return e.text() }

// encode emits an instruction of the set isa. text is given the numbers of the
// registers in inputs and outputs.
func encode(isa string, inputs, outputs []Op, text func(registers []uint32) string) {
	i := &ir.Instruction{Opcode: "LONG", Inputs: inputs, Outputs: outputs, ISA: []string{isa}}
	i.Operands = []Op{encoding{func() string {
		var registers []uint32
		for _, o := range append(i.Inputs[:len(i.Inputs):len(i.Inputs)], i.Outputs...) {
			registers = append(registers, uint32(o.(reg.Physical).PhysicalIndex()))
		}
		return text(registers)
	}, U32(0)}}
	Instruction(i)
}

// Opcode prefixes in the encodings of VEX and EVEX.
const prefixNone, prefix66, prefixF3, prefixF2 = 0, 1, 2, 3

// encodeEVEX emits an instruction of the opcode map 0F38 on 512-bit registers. Of the
// inputs, the first two are its operands.
func encodeEVEX(isa, name string, prefix, opcode uint32, inputs []Op, output Op) {
	encode(isa, inputs, []Op{output}, func(registers []uint32) string {
		x, y, dst := registers[0], registers[1], registers[len(registers)-1]
		// Bits 3 and 4 of register numbers are stored inverted, apart from the rest.
		not := func(r, bit uint32) uint32 { return ^r >> bit & 1 }
		const escape, map0F38, evexMark, length512 = 0x62, 2, 1 << 2, 2 << 5
		p0 := not(dst, 3)<<7 | not(x, 4)<<6 | not(x, 3)<<5 | not(dst, 4)<<4 | map0F38
		p1 := (^y&15)<<3 | evexMark | prefix
		p2 := length512 | not(y, 4)<<3
		modRM := 3<<6 | (dst&7)<<3 | x&7
		return fmt.Sprintf("$0x%08x; WORD $0x%04x // %s Z%d, Z%d, Z%d",
			escape|p0<<8|p1<<16|p2<<24, opcode|modRM<<8, name, x, y, dst)
	})
}

// vex is the start of an instruction of the opcode map 0F38: registers beyond the
// first eight are marked by inverted bits, and so is the number of the second
// source.
func vex(index, base, source, prefix, opcode uint32) uint32 {
	const escape, map0F38 = 0xc4, 2
	p0 := 1<<7 | (^index>>3&1)<<6 | (^base>>3&1)<<5 | map0F38
	return escape | p0<<8 | ((^source&15)<<3|prefix)<<16 | opcode<<24
}
