package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
)

// Key is a key of the metadata with its value: a number, a bool, a string, strings, int32s,
// or what File.Value has returned.
type Key struct {
	Name  string
	Value any
}

// Value returns the value under a key, for a Key of another file.
func (f *File) Value(key string) any { return f.values[key] }

// version is that of written files.
const version = 3

// Write writes a file of version 3 with the default alignment. elements writes the
// elements of the tensor with an index of the list, in its order: so no more of them is in
// memory than elements needs.
func Write(w io.Writer, keys []Key, tensors []safetensors.Info, elements func(i int, w io.Writer) error) error {
	header, sizes, err := makeHeader(keys, tensors)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for i, t := range tensors {
		counted := &counter{w: w}
		if err := elements(i, counted); err != nil {
			return err
		}
		if counted.n != sizes[i] {
			return fmt.Errorf("gguf: tensor %q: %d bytes were written, want %d", t.Name, counted.n, sizes[i])
		}
		if _, err := w.Write(padding(counted.n)); err != nil {
			return err
		}
	}
	return nil
}

type counter struct {
	w io.Writer
	n uint64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += uint64(n)
	return n, err
}

// padding is what comes before the next multiple of the alignment.
func padding(n uint64) []byte { return make([]byte, roundUp(n, alignment)-n) }

// makeHeader returns what comes before the elements, and the sizes of these.
func makeHeader(keys []Key, tensors []safetensors.Info) (header []byte, sizes []uint64, err error) {
	b := appendHeader(nil, version, uint64(len(tensors)), uint64(len(keys)))
	seen := map[string]bool{}
	for _, k := range keys {
		if k.Name == "" || len(k.Name) > maxKey || !utf8.ValidString(k.Name) || seen[k.Name] {
			return nil, nil, fmt.Errorf("key %.80q: want keys of 1 to %d bytes of UTF-8, each once", k.Name, maxKey)
		}
		seen[k.Name] = true
		if b, err = appendKey(b, k); err != nil {
			return nil, nil, err
		}
	}
	if len(b) > maxMetadata || len(keys) > maxKeys || len(tensors) > maxTensors {
		return nil, nil, fmt.Errorf("%d keys of %d bytes and %d tensors, want at most %d of %d bytes and %d", len(keys), len(b), len(tensors), maxKeys, maxMetadata, maxTensors)
	}
	clear(seen)
	offset := uint64(0)
	for _, t := range tensors {
		size, err := checkTensor(t)
		if err == nil && seen[t.Name] {
			err = errors.New("comes twice")
		}
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		seen[t.Name] = true
		b = appendTensor(b, t.Name, ids[t.DType], offset, t.Shape...)
		sizes = append(sizes, size)
		offset = roundUp(offset+size, alignment)
	}
	return append(b, padding(uint64(len(b)))...), sizes, nil
}

// checkTensor returns the size of a tensor that a file may have.
func checkTensor(t safetensors.Info) (uint64, error) {
	_, ok := ids[t.DType]
	switch {
	case t.Name == "" || len(t.Name) >= maxName || !utf8.ValidString(t.Name):
		return 0, fmt.Errorf("want a name of 1 to %d bytes of UTF-8", maxName-1)
	case !ok:
		return 0, fmt.Errorf("type %v is not one of %s", t.DType, supported())
	case len(t.Shape) < 1 || len(t.Shape) > maxDims || slices.Min(t.Shape) < 1:
		return 0, fmt.Errorf("shape %v: want 1 to %d dimensions of at least 1", t.Shape, maxDims)
	case t.Shape[len(t.Shape)-1]%t.DType.Block() != 0:
		return 0, fmt.Errorf("rows have %d elements, want a multiple of the %d of a block of %v", t.Shape[len(t.Shape)-1], t.DType.Block(), t.DType)
	}
	return (&tensor{t.Name, t.DType, t.Shape, nil}).size()
}

// ids are the ids of element types.
var ids = func() map[quant.DType]uint32 {
	m := map[quant.DType]uint32{}
	for id, t := range types {
		m[t] = id
	}
	return m
}()

// appendHeader appends the beginning of a file.
func appendHeader(b []byte, version uint32, tensors, keys uint64) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, magicNumber...), version)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, tensors), keys)
}

// appendKey appends a key with its value.
func appendKey(b []byte, k Key) ([]byte, error) {
	v, err := newValue(k.Value)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", k.Name, err)
	}
	return append(binary.LittleEndian.AppendUint32(appendString(b, k.Name), uint32(v.typ)), v.data...), nil
}

// appendString appends a string with its length.
func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendTensor appends an entry of the list of tensors, with the id of its type.
func appendTensor(b []byte, name string, id uint32, offset uint64, shape ...int) []byte {
	b = binary.LittleEndian.AppendUint32(appendString(b, name), uint32(len(shape)))
	for _, n := range slices.Backward(shape) {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, id), offset)
}

// newValue returns a value as files have it.
func newValue(x any) (v value, err error) {
	switch x := x.(type) {
	case value:
		return x, nil
	case string:
		return value{typeString, appendString(nil, x)}, nil
	case []string:
		return newArray(x, typeString)
	case []int32:
		return newArray(x, typeInt32)
	case uint8:
		v.typ = typeUint8
	case int8:
		v.typ = typeInt8
	case uint16:
		v.typ = typeUint16
	case int16:
		v.typ = typeInt16
	case uint32:
		v.typ = typeUint32
	case int32:
		v.typ = typeInt32
	case float32:
		v.typ = typeFloat32
	case bool:
		v.typ = typeBool
	case uint64:
		v.typ = typeUint64
	case int64:
		v.typ = typeInt64
	case float64:
		v.typ = typeFloat64
	default:
		return v, fmt.Errorf("values of type %T are not supported", x)
	}
	var b bytes.Buffer
	err = binary.Write(&b, binary.LittleEndian, x)
	v.data = b.Bytes()
	return v, err
}

func newArray[T string | int32](list []T, element valueType) (value, error) {
	var values []byte
	for _, x := range list {
		v, err := newValue(x)
		if err != nil {
			return v, err
		}
		values = append(values, v.data...)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(element))
	return value{typeArray, append(binary.LittleEndian.AppendUint64(b, uint64(len(list))), values...)}, nil
}
