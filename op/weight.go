package op

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Weight is a weight matrix. A linear layer's is [outputs, inputs], an embedding's
// [tokens, features].
type Weight struct {
	Rows, Cols int
	DType      DType // of the elements in Data

	// Data holds the elements row by row, little-endian, in Rows*Cols times the element's
	// size bytes; or the blocks of the rows of a quantized type, as GGUF files have them. It
	// is read and never written, so it may be a view of a mapped file.
	Data []byte

	// Precision is what the operands of products with the weight are rounded to, whatever
	// the storage type; the zero value is AutoPrecision.
	Precision Precision
}

// DType is the storage type of a Weight.
type DType = kernel.DType

// The storage types of weights. Those after F16 are the quantized types of GGUF files, with
// blocks of 32 or, K and XS, 256 elements. The CPU decodes them to float32 where it
// multiplies; for a GPU they are decoded when they are copied there.
const (
	F32    = kernel.F32  // IEEE 754 binary32
	BF16   = kernel.BF16 // bfloat16, the upper half of a binary32
	F16    = kernel.F16  // IEEE 754 binary16
	Q8_0   = kernel.Q8_0
	Q4_0   = kernel.Q4_0
	Q4_1   = kernel.Q4_1
	Q5_0   = kernel.Q5_0
	Q5_1   = kernel.Q5_1
	Q4_K   = kernel.Q4_K
	Q5_K   = kernel.Q5_K
	Q6_K   = kernel.Q6_K
	IQ4_NL = kernel.IQ4_NL
	IQ4_XS = kernel.IQ4_XS
)

// Precision is what the operands of products are rounded to: AutoPrecision, Float32,
// BFloat16, Int16 or Int8.
type Precision = kernel.Precision

// The precisions of products.
const (
	AutoPrecision = kernel.AutoPrecision // Float32 on the CPU, BFloat16 on GPUs
	Float32       = kernel.Float32       // not rounded
	BFloat16      = kernel.BFloat16      // 8 significant bits
	Int16         = kernel.Int16         // integers with a common factor; CPU only
	Int8          = kernel.Int8          // inputs of quantized weights in 8 bits; CPU only
)

// NewWeight returns the matrix stored in data, which must hold exactly
// rows*cols elements of type t, each row in whole blocks.
func NewWeight(rows, cols int, t DType, data []byte) (Weight, error) {
	w, err := kernel.NewMatrix(rows, cols, t, data)
	if err != nil {
		return Weight{}, fmt.Errorf("op: weight: %w", err)
	}
	return Weight(w), nil
}

// NewWeightFloat32 returns a matrix of float32 values, copied from v.
func NewWeightFloat32(rows, cols int, v []float32) (Weight, error) {
	data := make([]byte, 0, 4*len(v))
	for _, x := range v {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return NewWeight(rows, cols, F32, data)
}

// sameWeight reports whether two operators would read the same numbers.
func sameWeight(a, b *kernel.Matrix) bool {
	return a.Rows == b.Rows && a.Cols == b.Cols && a.DType == b.DType &&
		len(a.Data) == len(b.Data) && (len(a.Data) == 0 || &a.Data[0] == &b.Data[0])
}

// sameFloats is sameWeight for vectors.
func sameFloats(a, b []float32) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
