package safetensors

// DType is the name of an element type in a header.
type DType string

// The element types of the format that fill whole bytes.
const (
	BOOL   DType = "BOOL" // one byte an element
	U8     DType = "U8"
	I8     DType = "I8"
	F8E5M2 DType = "F8_E5M2"
	F8E4M3 DType = "F8_E4M3"
	F8E8M0 DType = "F8_E8M0"
	I16    DType = "I16"
	U16    DType = "U16"
	F16    DType = "F16" // IEEE 754 binary16
	BF16   DType = "BF16"
	I32    DType = "I32"
	U32    DType = "U32"
	F32    DType = "F32"
	C64    DType = "C64" // two F32: real, imaginary
	F64    DType = "F64"
	I64    DType = "I64"
	U64    DType = "U64"
)

// dtypes is in the order of the reference implementation, which writes the last
// ones first; sizes ascend.
var dtypes = []DType{
	BOOL, U8, I8, F8E5M2, F8E4M3, F8E8M0,
	I16, U16, F16, BF16,
	I32, U32, F32,
	C64, F64, I64, U64,
}

// Size is the number of bytes of an element, 0 for an unknown dtype.
func (d DType) Size() int {
	switch d {
	case BOOL, U8, I8, F8E5M2, F8E4M3, F8E8M0:
		return 1
	case I16, U16, F16, BF16:
		return 2
	case I32, U32, F32:
		return 4
	case C64, F64, I64, U64:
		return 8
	}
	return 0
}
