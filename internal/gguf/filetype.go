package gguf

import (
	"strconv"
	"strings"

	"github.com/pulsecol/pulsecol/internal/quant"
)

// FileType says what types the matrices of a file have, under the name that llama.cpp gives
// it: most have one type, some a type of more bits.
type FileType struct {
	Name string
	ID   uint32 // value of general.file_type
	most quant.DType
}

// fileTypes are in descending order of the size of files.
var fileTypes = []FileType{
	{"F32", 0, quant.F32}, {"BF16", 32, quant.BF16}, {"F16", 1, quant.F16}, {"Q8_0", 7, quant.Q8_0}, {"Q6_K", 18, quant.Q6_K},
	{"Q5_1", 9, quant.Q5_1}, {"Q5_K_M", 17, quant.Q5_K}, {"Q5_K_S", 16, quant.Q5_K}, {"Q5_0", 8, quant.Q5_0},
	{"Q4_1", 3, quant.Q4_1}, {"Q4_K_M", 15, quant.Q4_K}, {"Q4_K_S", 14, quant.Q4_K}, {"Q4_0", 2, quant.Q4_0},
	{"IQ4_NL", 25, quant.IQ4_NL}, {"IQ4_XS", 30, quant.IQ4_XS},
}

// FileTypes are all file types, those of the largest files first.
func FileTypes() []FileType { return fileTypes }

// ModelShape is what of a model the types of its tensors depend on.
type ModelShape struct {
	Layers       int
	QueriesPerKV int  // query heads of a key-value head
	Tied         bool // the head is token_embd
}

// Tensor returns the type of a tensor of a model of llama.cpp's names, by the rules of its
// quantizer without an importance matrix: what is not a matrix of weights is F32. Rows that
// are no whole number of blocks get a type with smaller blocks, or F16.
func (t FileType) Tensor(name string, shape []int, m ModelShape) quant.DType {
	if len(shape) < 2 || !strings.HasSuffix(name, ".weight") {
		return quant.F32
	}
	cols := shape[len(shape)-1]
	typ := t.most
	if typ.Quantized() {
		typ = t.mixed(name, cols, m)
	}
	if cols%typ.Block() != 0 {
		typ = smaller(typ)
	}
	if cols%typ.Block() != 0 {
		typ = quant.F16
	}
	return typ
}

// smaller is the type of blocks of 32 that takes the place of one of 256.
func smaller(t quant.DType) quant.DType {
	switch t {
	case quant.Q4_K:
		return quant.Q5_0
	case quant.Q5_K:
		return quant.Q5_1
	case quant.Q6_K:
		return quant.Q8_0
	case quant.IQ4_XS:
		return quant.IQ4_NL
	}
	return t
}

// mixed is the type of a matrix in a file of quantized types.
func (t FileType) mixed(name string, cols int, m ModelShape) quant.DType {
	layer, part := splitName(name)
	first := layer < m.Layers/8
	switch {
	case name == "output.weight" || m.Tied && name == "token_embd.weight":
		switch {
		case cols%t.most.Block() != 0:
			return quant.Q8_0
		case t.most != quant.Q8_0:
			return quant.Q6_K
		}
	case part == "attn_v" || part == "ffn_down":
		value := part == "attn_v"
		switch t.Name {
		case "Q4_K_M", "Q5_K_M":
			if first || layer >= 7*m.Layers/8 || (layer-m.Layers/8)%3 == 2 {
				return quant.Q6_K
			}
		case "Q4_K_S":
			if value && layer < 4 || !value && first {
				return quant.Q5_K
			}
		case "IQ4_NL", "IQ4_XS":
			if value && m.QueriesPerKV >= 4 || !value && first {
				return quant.Q5_K
			}
		}
	}
	return t.most
}

// splitName returns the layer of a tensor, -1 if it is of none, and what it is there.
func splitName(name string) (layer int, part string) {
	parts := strings.Split(name, ".")
	if len(parts) != 4 || parts[0] != "blk" {
		return -1, ""
	}
	layer, err := strconv.Atoi(parts[1])
	if err != nil {
		return -1, ""
	}
	return layer, parts[2]
}
