package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// valueType is the type of a metadata value.
type valueType uint32

const (
	typeUint8 valueType = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// valueTypes are indexed by valueType; strings and arrays have no fixed size.
var valueTypes = [...]struct {
	name string
	size int
}{
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"uint32", 4}, {"int32", 4}, {"float32", 4},
	{"bool", 1}, {"string", 0}, {"array", 0}, {"uint64", 8}, {"int64", 8}, {"float64", 8},
}

func (t valueType) String() string {
	if int64(t) < int64(len(valueTypes)) {
		return valueTypes[t].name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// size is 0 for strings, arrays and unknown types.
func (t valueType) size() int {
	if int64(t) < int64(len(valueTypes)) {
		return valueTypes[t].size
	}
	return 0
}

// value is a metadata value in the form of the file, which takes no more memory than
// there.
type value struct {
	typ  valueType
	data []byte
}

// integer returns a value of one of the integer types.
func (v value) integer() (int64, error) {
	b := v.data
	switch v.typ {
	case typeUint8:
		return int64(b[0]), nil
	case typeInt8:
		return int64(int8(b[0])), nil
	case typeUint16:
		return int64(binary.LittleEndian.Uint16(b)), nil
	case typeInt16:
		return int64(int16(binary.LittleEndian.Uint16(b))), nil
	case typeUint32:
		return int64(binary.LittleEndian.Uint32(b)), nil
	case typeInt32:
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	case typeInt64:
		return int64(binary.LittleEndian.Uint64(b)), nil
	case typeUint64:
		n := binary.LittleEndian.Uint64(b)
		if n > math.MaxInt64 {
			return 0, fmt.Errorf("is %d, want at most %d", n, int64(math.MaxInt64))
		}
		return int64(n), nil
	}
	return 0, fmt.Errorf("is of type %v, want an integer", v.typ)
}

// Int returns the integer under a key; ok is whether there is such a key.
func (f *File) Int(key string) (n int64, ok bool, err error) {
	return read(f, key, value.integer)
}

// Float returns the number under a key.
func (f *File) Float(key string) (x float64, ok bool, err error) {
	return read(f, key, func(v value) (float64, error) {
		switch v.typ {
		case typeFloat32:
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.data))), nil
		case typeFloat64:
			return math.Float64frombits(binary.LittleEndian.Uint64(v.data)), nil
		}
		return 0, fmt.Errorf("is of type %v, want float32 or float64", v.typ)
	})
}

// Bool returns the truth value under a key.
func (f *File) Bool(key string) (b, ok bool, err error) {
	return read(f, key, func(v value) (bool, error) {
		if v.typ != typeBool {
			return false, fmt.Errorf("is of type %v, want bool", v.typ)
		}
		return v.data[0] != 0, nil
	})
}

// String returns the string under a key.
func (f *File) String(key string) (s string, ok bool, err error) {
	return read(f, key, func(v value) (string, error) {
		if v.typ != typeString {
			return "", fmt.Errorf("is of type %v, want string", v.typ)
		}
		r := reader{data: v.data}
		b, err := r.bytes("the string")
		return string(b), err
	})
}

// Strings returns the array of strings under a key.
func (f *File) Strings(key string) (all []string, ok bool, err error) {
	return read(f, key, func(v value) ([]string, error) {
		r, count, err := v.elements(typeString)
		if err != nil {
			return nil, err
		}
		// A string takes 8 bytes of the file at least, and here 16.
		all := make([]string, count)
		for i := range all {
			b, err := r.bytes("a string")
			if err != nil {
				return nil, err
			}
			all[i] = string(b)
		}
		return all, nil
	})
}

// Ints returns the array of integers of one of the types under a key.
func (f *File) Ints(key string) (all []int64, ok bool, err error) {
	return read(f, key, func(v value) ([]int64, error) {
		r, count, err := v.elements(typeInt32, typeUint32, typeInt64, typeUint64, typeInt16, typeUint16, typeInt8, typeUint8)
		if err != nil {
			return nil, err
		}
		element := valueType(binary.LittleEndian.Uint32(v.data))
		all := make([]int64, count)
		for i := range all {
			b, err := r.take(uint64(element.size()), "an integer")
			if err != nil {
				return nil, err
			}
			if all[i], err = (value{element, b}).integer(); err != nil {
				return nil, fmt.Errorf("element %d %w", i, err)
			}
		}
		return all, nil
	})
}

// elements returns a reader of the elements of an array of one of the types, and their
// number.
func (v value) elements(types ...valueType) (*reader, int, error) {
	if v.typ != typeArray {
		return nil, 0, fmt.Errorf("is of type %v, want an array of type %v", v.typ, types[0])
	}
	element := valueType(binary.LittleEndian.Uint32(v.data))
	count := binary.LittleEndian.Uint64(v.data[4:])
	r := &reader{data: v.data, at: 12}
	for _, t := range types {
		if t == element {
			if count > uint64(len(v.data)) { // the data has changed since it was checked
				return nil, 0, fmt.Errorf("has %d elements in %d bytes", count, len(v.data))
			}
			return r, int(count), nil
		}
	}
	return nil, 0, fmt.Errorf("is an array of type %v, want type %v", element, types[0])
}

func read[T any](f *File, key string, get func(value) (T, error)) (x T, ok bool, err error) {
	v, ok := f.values[key]
	if !ok {
		return x, false, nil
	}
	if x, err = get(v); err != nil {
		err = fmt.Errorf("gguf: %s: key %q %w", f.name, key, err)
	}
	return x, true, err
}
