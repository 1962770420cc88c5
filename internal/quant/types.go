// Package quant has the element types of tensors in files. Those of weights are floats and
// the block formats of GGUF files, in which a block of consecutive elements of a row shares
// scales.
//
// Each type has a file, which decodes and encodes it; the scales of blocks are found in
// levels.go (multiples of fixed values), line.go (even steps from a minimum) and
// superscales.go and superlines.go (the same with scales of scales).
//
// The values of a block are those of the format's C and Python implementations, bit for bit.
package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/internal/bf16"
)

// DType is an element type.
type DType uint8

// The types of weights.
const (
	F32    DType = iota // IEEE 754 binary32
	BF16                // bfloat16: the upper half of a binary32
	F16                 // IEEE 754 binary16
	Q8_0                // 8 bits and a scale for 32
	Q4_0                // 4 bits and a scale for 32
	Q4_1                // 4 bits, a scale and a minimum for 32
	Q5_0                // 5 bits and a scale for 32
	Q5_1                // 5 bits, a scale and a minimum for 32
	Q4_K                // 4 bits, scales and minima for 32 in blocks of 256
	Q5_K                // 5 bits, scales and minima for 32 in blocks of 256
	Q6_K                // 6 bits, scales for 16 in blocks of 256
	IQ4_NL              // 4 bits that select one of 16 uneven values, a scale for 32
	IQ4_XS              // the same with scales for 32 in blocks of 256

	weights = iota // how many weights may have
)

// The other types of safetensors files.
const (
	BOOL DType = weights + iota // one byte an element
	U8
	I8
	F8E5M2
	F8E4M3
	F8E8M0
	I16
	U16
	I32
	U32
	C64 // two F32: real, imaginary
	F64
	I64
	U64
)

// formats are indexed by DType.
var formats = [...]struct {
	name   string
	block  int // elements of a block
	bytes  int // of a block
	decode func(dst []float32, block []byte)
	encode func(block []byte, src []float64)
}{
	F32:    {"F32", 1, 4, nil, nil},
	BF16:   {"BF16", 1, 2, nil, nil},
	F16:    {"F16", 1, 2, nil, nil},
	Q8_0:   {"Q8_0", 32, 34, decodeQ8_0, encodeQ8_0},
	Q4_0:   {"Q4_0", 32, 18, decodeQ4_0, encodeQ4_0},
	Q4_1:   {"Q4_1", 32, 20, decodeQ4_1, encodeQ4_1},
	Q5_0:   {"Q5_0", 32, 22, decodeQ5_0, encodeQ5_0},
	Q5_1:   {"Q5_1", 32, 24, decodeQ5_1, encodeQ5_1},
	Q4_K:   {"Q4_K", 256, 144, decodeQ4_K, encodeQ4_K},
	Q5_K:   {"Q5_K", 256, 176, decodeQ5_K, encodeQ5_K},
	Q6_K:   {"Q6_K", 256, 210, decodeQ6_K, encodeQ6_K},
	IQ4_NL: {"IQ4_NL", 32, 18, decodeIQ4_NL, encodeIQ4_NL},
	IQ4_XS: {"IQ4_XS", 256, 136, decodeIQ4_XS, encodeIQ4_XS},

	BOOL:   {"BOOL", 1, 1, nil, nil},
	U8:     {"U8", 1, 1, nil, nil},
	I8:     {"I8", 1, 1, nil, nil},
	F8E5M2: {"F8_E5M2", 1, 1, nil, nil},
	F8E4M3: {"F8_E4M3", 1, 1, nil, nil},
	F8E8M0: {"F8_E8M0", 1, 1, nil, nil},
	I16:    {"I16", 1, 2, nil, nil},
	U16:    {"U16", 1, 2, nil, nil},
	I32:    {"I32", 1, 4, nil, nil},
	U32:    {"U32", 1, 4, nil, nil},
	C64:    {"C64", 1, 8, nil, nil},
	F64:    {"F64", 1, 8, nil, nil},
	I64:    {"I64", 1, 8, nil, nil},
	U64:    {"U64", 1, 8, nil, nil},
}

// maxBlock is the largest number of elements of a block.
const maxBlock = 256

// WeightTypes are the types that weights may have.
func WeightTypes() []DType {
	all := make([]DType, weights)
	for i := range all {
		all[i] = DType(i)
	}
	return all
}

// Parse returns the type of a name, as String gives it.
func Parse(name string) (DType, bool) {
	for i, f := range formats {
		if f.name == name {
			return DType(i), true
		}
	}
	return 0, false
}

// OfWeights reports whether weights may have the type.
func (t DType) OfWeights() bool { return t < weights }

// String is the name that safetensors and GGUF give the type.
func (t DType) String() string {
	if int(t) >= len(formats) {
		return fmt.Sprintf("DType(%d)", uint8(t))
	}
	return formats[t].name
}

// Block is the number of elements of a block: 1 for floats. A row has whole blocks.
func (t DType) Block() int { return formats[t].block }

// Quantized reports whether elements are in blocks with shared scales.
func (t DType) Quantized() bool { return formats[t].block > 1 }

// Bytes is the size of n elements, which are whole blocks.
func (t DType) Bytes(n int) int { return n / formats[t].block * formats[t].bytes }

// BlockBytes is the size of a block.
func (t DType) BlockBytes() int { return formats[t].bytes }

// Decode writes the elements from col on of a row to dst. The type is one of weights.
func (t DType) Decode(dst []float32, row []byte, col int) {
	switch t {
	case F32:
		src := row[4*col:][:4*len(dst)]
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case BF16:
		bf16.Decode(dst, row[2*col:][:2*len(dst)])
	case F16:
		bf16.DecodeHalf(dst, row[2*col:][:2*len(dst)])
	default:
		t.decodeBlocks(dst, row, col)
	}
}

func (t DType) decodeBlocks(dst []float32, row []byte, col int) {
	f := &formats[t]
	src := row[col/f.block*f.bytes:]
	skip := col % f.block
	for len(dst) > 0 {
		block := src[:f.bytes]
		src = src[f.bytes:]
		if skip == 0 && len(dst) >= f.block {
			f.decode(dst[:f.block], block)
			dst = dst[f.block:]
			continue
		}
		var whole [maxBlock]float32
		f.decode(whole[:f.block], block)
		dst = dst[copy(dst, whole[skip:f.block]):]
		skip = 0
	}
}
