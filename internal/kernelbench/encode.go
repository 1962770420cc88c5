package kernelbench

import (
	"encoding/binary"
	"math"

	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// encode is the data of a kernel.Matrix.
func encode(values []float32, t kernel.DType) []byte {
	switch t {
	case kernel.BF16:
		data := make([]byte, 2*len(values))
		bf16.Encode(data, values)
		return data
	case kernel.F16:
		data := make([]byte, 2*len(values))
		bf16.EncodeHalf(data, values)
		return data
	case kernel.F32:
		break
	default:
		data := make([]byte, t.Bytes(len(values)))
		if err := t.Encode(data, values); err != nil {
			panic(err) // of finite numbers: a defect
		}
		return data
	}
	data := make([]byte, 0, 4*len(values))
	for _, f := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
	}
	return data
}
