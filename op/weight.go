package op

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Weight is a weight matrix [Rows, Cols], row-major, in the storage type of its
// checkpoint. Its data is read and never written, so it may be a view of a
// mapped file. A linear layer's weight is [outputs, inputs]. Its Precision is that
// of products with it, whatever the storage type; the zero
// value is AutoPrecision.
type Weight = kernel.Matrix

// DType is the storage type of a Weight: F32, BF16 or F16, little-endian.
type DType = kernel.DType

// The storage types of weights.
const (
	F32  = kernel.F32
	BF16 = kernel.BF16
	F16  = kernel.F16
)

// Precision is what the operands of products are rounded to.
type Precision = kernel.Precision

// The precisions of products.
const (
	AutoPrecision = kernel.AutoPrecision // the device's own
	Float32       = kernel.Float32
	BFloat16      = kernel.BFloat16
	Int16         = kernel.Int16
)

// NewWeight returns the matrix stored in data, which must hold exactly
// rows*cols elements of type t.
func NewWeight(rows, cols int, t DType, data []byte) (Weight, error) {
	w, err := kernel.NewMatrix(rows, cols, t, data)
	if err != nil {
		return Weight{}, fmt.Errorf("op: weight: %w", err)
	}
	return w, nil
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
func sameWeight(a, b *Weight) bool {
	return a.Rows == b.Rows && a.Cols == b.Cols && a.DType == b.DType &&
		len(a.Data) == len(b.Data) && (len(a.Data) == 0 || &a.Data[0] == &b.Data[0])
}

// sameFloats is sameWeight for vectors.
func sameFloats(a, b []float32) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
