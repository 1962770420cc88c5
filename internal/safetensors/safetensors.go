// Package safetensors reads and writes safetensors files and reads sharded
// checkpoints of them, as published at https://github.com/huggingface/safetensors.
//
// A file is a little-endian uint64 N, a JSON object of N bytes that gives each
// tensor's dtype, shape and byte range, and then the tensors' elements,
// row-major and little-endian, without gaps.
//
// Files are mapped where the system supports it, so a tensor takes no memory until its bytes
// are read. A header is checked when the file is opened: a Tensor of this package has exactly
// the number of bytes that its shape and dtype require.
package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/mapped"
	"github.com/pulsecol/pulsecol/internal/quant"
)

// ErrNotFound is wrapped by Tensor when there is no tensor of that name.
var ErrNotFound = errors.New("tensor not found")

// Source is a set of named tensors: a File or a Checkpoint. Its methods may be
// called concurrently, but not Close with any other.
type Source interface {
	// Names lists the tensors in ascending order. The caller owns the slice.
	Names() []string

	// Tensor returns the named tensor without copying its data. The error wraps
	// ErrNotFound or, after Close, fs.ErrClosed.
	Tensor(name string) (Tensor, error)

	// Intact reports a file that was truncated or written to since it was opened. The
	// contents of tensors may then have changed, and reading their Data may fault: read it
	// under mapped.Guard. The error wraps mapped.ErrLost.
	Intact() error

	// Close releases the files. The Data of every tensor they gave becomes
	// invalid: touching it may end the process. A second Close does nothing.
	Close() error
}

var (
	_ Source = (*File)(nil)
	_ Source = (*Checkpoint)(nil)
)

// dtypes are the element types of the format that fill whole bytes, in the order of the
// reference implementation, which writes the last ones first; sizes ascend.
var dtypes = []quant.DType{
	quant.BOOL, quant.U8, quant.I8, quant.F8E5M2, quant.F8E4M3, quant.F8E8M0,
	quant.I16, quant.U16, quant.F16, quant.BF16,
	quant.I32, quant.U32, quant.F32,
	quant.C64, quant.F64, quant.I64, quant.U64,
}

// Info describes a tensor.
type Info struct {
	Name  string
	DType quant.DType // a file's is one of dtypes; a source in another format has others
	Shape []int       // outermost dimension first; empty for a scalar
}

// Tensor is a tensor's description and its elements, row-major and little-endian.
//
// Data that comes from a File or Checkpoint is read-only: it may be a mapping,
// and writing to it then ends the process. It need not be aligned to its element
// size.
type Tensor struct {
	Info
	Data []byte
}

// Float32s returns the elements of an F32, BF16 or F16 tensor in a new slice.
func (t Tensor) Float32s() ([]float32, error) {
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	values := make([]float32, len(t.Data)/t.DType.BlockBytes())
	decode := func() {}
	switch t.DType {
	case quant.F32:
		decode = func() {
			for i := range values {
				values[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
			}
		}
	case quant.BF16:
		decode = func() { bf16.Decode(values, t.Data) }
	case quant.F16:
		decode = func() { bf16.DecodeHalf(values, t.Data) }
	default:
		return nil, fmt.Errorf("safetensors: tensor %q is %s, want F32, BF16 or F16", t.Name, t.DType)
	}
	if err := mapped.Guard(func() error { decode(); return nil }); err != nil {
		return nil, fmt.Errorf("safetensors: tensor %q: %w", t.Name, err)
	}
	return values, nil
}

// Int32s returns the elements of an I32 tensor in a new slice.
func (t Tensor) Int32s() ([]int32, error) {
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	if t.DType != quant.I32 {
		return nil, fmt.Errorf("safetensors: tensor %q is %s, want I32", t.Name, t.DType)
	}
	values := make([]int32, len(t.Data)/4)
	err := mapped.Guard(func() error {
		for i := range values {
			values[i] = int32(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("safetensors: tensor %q: %w", t.Name, err)
	}
	return values, nil
}

// FromFloat32s makes an F32 tensor for Write from a copy of values. Write checks that shape
// and values agree.
func FromFloat32s(name string, shape []int, values []float32) Tensor {
	data := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	return Tensor{Info: Info{Name: name, DType: quant.F32, Shape: slices.Clone(shape)}, Data: data}
}

// check returns an error unless Data has the size of dtype and shape.
func (t Tensor) check() error {
	size, err := t.size()
	if err != nil {
		return err
	}
	if len(t.Data) != size {
		return fmt.Errorf("tensor %q: shape %v of %s needs %d bytes, data has %d",
			t.Name, t.Shape, t.DType, size, len(t.Data))
	}
	return nil
}

// size is the number of bytes of a tensor.
func (i Info) size() (int, error) {
	if !slices.Contains(dtypes, i.DType) {
		return 0, fmt.Errorf("tensor %q: dtype %q is none of %v", i.Name, i.DType.String(), dtypes)
	}
	n := uint64(i.DType.BlockBytes())
	for _, d := range i.Shape {
		if d < 0 {
			return 0, fmt.Errorf("tensor %q: shape %v has a negative dimension", i.Name, i.Shape)
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, fmt.Errorf("tensor %q: shape %v of %s needs more bytes than %d",
				i.Name, i.Shape, i.DType, math.MaxInt)
		}
		n = lo
	}
	return int(n), nil
}
