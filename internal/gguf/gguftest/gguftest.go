// Package gguftest makes GGUF files for tests.
package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/pulsecol/pulsecol/internal/quant"
)

// Key is a key of the metadata with its value: a number, a bool, a string, or a slice of
// one of these types, of slices or of any.
type Key struct {
	Name  string
	Value any
}

// Tensor is a tensor, whose Shape has the outermost dimension first.
type Tensor struct {
	Name  string
	Type  quant.DType
	Shape []int
	Data  []byte
}

// ids are the ids of the element types.
var ids = map[quant.DType]uint32{
	quant.F32: 0, quant.F16: 1, quant.BF16: 30, quant.Q8_0: 8, quant.Q4_0: 2, quant.Q4_1: 3, quant.Q5_0: 6, quant.Q5_1: 7,
	quant.Q4_K: 12, quant.Q5_K: 13, quant.Q6_K: 14, quant.IQ4_NL: 20, quant.IQ4_XS: 23,
}

// File returns a file of version 3 with the default alignment.
func File(keys []Key, tensors []Tensor) []byte {
	file := Header(3, uint64(len(tensors)), uint64(len(keys)))
	for _, k := range keys {
		file = AppendKey(file, k)
	}
	offset := 0
	for _, t := range tensors {
		file = AppendTensor(file, t.Name, ids[t.Type], uint64(offset), t.Shape...)
		offset += len(t.Data) + padding(len(t.Data))
	}
	file = append(file, make([]byte, padding(len(file)))...)
	for _, t := range tensors {
		file = append(append(file, t.Data...), make([]byte, padding(len(t.Data)))...)
	}
	return file
}

func padding(n int) int { return -n & 31 }

// Header is the beginning of a file.
func Header(version uint32, tensors, keys uint64) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("GGUF"), version)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, tensors), keys)
}

// AppendKey appends a key with its value.
func AppendKey(b []byte, k Key) []byte {
	id, value := encode(k.Value)
	return append(binary.LittleEndian.AppendUint32(AppendString(b, k.Name), id), value...)
}

// AppendString appends a string with its length.
func AppendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// AppendTensor appends an entry of the list of tensors, with the id of its type.
func AppendTensor(b []byte, name string, id uint32, offset uint64, shape ...int) []byte {
	b = binary.LittleEndian.AppendUint32(AppendString(b, name), uint32(len(shape)))
	for _, n := range slices.Backward(shape) {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, id), offset)
}

// encode returns the id of a value's type, and the value.
func encode(value any) (id uint32, b []byte) {
	switch v := value.(type) {
	case string:
		return 8, AppendString(nil, v)
	case []string:
		return array(v)
	case []int32:
		return array(v)
	case []float32:
		return array(v)
	case []bool:
		return array(v)
	case []any:
		return array(v)
	case uint8:
		id = 0
	case int8:
		id = 1
	case uint16:
		id = 2
	case int16:
		id = 3
	case uint32:
		id = 4
	case int32:
		id = 5
	case float32:
		id = 6
	case bool:
		id = 7
	case uint64:
		id = 10
	case int64:
		id = 11
	case float64:
		id = 12
	default:
		panic(fmt.Sprintf("gguftest: a value of type %T", value))
	}
	var buffer bytes.Buffer
	if err := binary.Write(&buffer, binary.LittleEndian, value); err != nil {
		panic(err)
	}
	return id, buffer.Bytes()
}

// array encodes an array of the type of its first element, or of bytes if it is empty.
func array[T any](v []T) (id uint32, b []byte) {
	element, values := uint32(0), []byte(nil)
	for _, x := range v {
		var value []byte
		element, value = encode(x)
		values = append(values, value...)
	}
	b = binary.LittleEndian.AppendUint32(nil, element)
	return 9, append(binary.LittleEndian.AppendUint64(b, uint64(len(v))), values...)
}

// Float32s returns the bytes of numbers.
func Float32s(values []float32) []byte {
	b := make([]byte, 0, 4*len(values))
	for _, x := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}
