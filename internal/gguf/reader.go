package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// reader reads the parts of a header in order and never beyond its end.
type reader struct {
	data []byte
	at   int
}

// take returns the next n bytes, which hold what.
func (r *reader) take(n uint64, what string) ([]byte, error) {
	if left := len(r.data) - r.at; n > uint64(left) {
		return nil, fmt.Errorf("%s takes %d bytes at offset %d, where only %d follow: file cut short?", what, n, r.at, left)
	}
	part := r.data[r.at:][:n:n]
	r.at += int(n)
	return part, nil
}

func (r *reader) uint32(what string) (uint32, error) {
	b, err := r.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (r *reader) uint64(what string) (uint64, error) {
	b, err := r.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// bytes reads a string: its length and then so many bytes.
func (r *reader) bytes(what string) ([]byte, error) {
	n, err := r.uint64("the length of " + what)
	if err != nil {
		return nil, err
	}
	return r.take(n, what)
}

// short reads a string of at most so many bytes.
func (r *reader) short(what string, limit int) (string, error) {
	b, err := r.bytes(what)
	if err != nil {
		return "", err
	}
	if len(b) == 0 || len(b) > limit {
		return "", fmt.Errorf("%s has %d bytes, want 1 to %d", what, len(b), limit)
	}
	return string(b), nil
}

// count reads a number of things of which a file may have so many.
func (r *reader) count(what string, limit int) (int, error) {
	n, err := r.uint64("the number of " + what)
	if err != nil {
		return 0, err
	}
	if n > uint64(limit) {
		return 0, fmt.Errorf("the number of %s is %d, want at most %d", what, n, limit)
	}
	return int(n), nil
}

// value moves past a value of a type, after a check that it is whole. depth is how many
// arrays it is in.
func (r *reader) value(t valueType, depth int) error {
	switch {
	case t == typeString:
		_, err := r.bytes("a string")
		return err
	case t == typeBool:
		b, err := r.take(1, "a bool")
		if err == nil && b[0] > 1 {
			err = fmt.Errorf("the bool at offset %d is %d, want 0 or 1", r.at-1, b[0])
		}
		return err
	case t == typeArray:
		return r.array(depth)
	case t.size() > 0:
		_, err := r.take(uint64(t.size()), "a value of type "+t.String())
		return err
	}
	return errType(t)
}

func errType(t valueType) error {
	return fmt.Errorf("value type %d is none of 0 to %d", uint32(t), len(valueTypes)-1)
}

func (r *reader) array(depth int) error {
	if depth >= maxDepth {
		return fmt.Errorf("arrays are nested deeper than %d", maxDepth)
	}
	element, err := r.uint32("the element type of an array")
	if err != nil {
		return err
	}
	count, err := r.uint64("the length of an array")
	if err != nil {
		return err
	}
	t := valueType(element)
	if uint64(t) >= uint64(len(valueTypes)) {
		return errType(t)
	}
	if size := t.size(); size > 0 && t != typeBool {
		total, err := product(count, uint64(size))
		if err != nil {
			return fmt.Errorf("an array of %d elements of type %v: %w", count, t, err)
		}
		_, err = r.take(total, fmt.Sprintf("an array of %d elements of type %v", count, t))
		return err
	}
	// Every element takes a byte at least, so the file ends a loop that is too long.
	for i := range count {
		if err := r.value(t, depth+1); err != nil {
			return fmt.Errorf("element %d of an array of %d: %w", i, count, err)
		}
	}
	return nil
}

// product is a*b, which must be an int64.
func product(a, b uint64) (uint64, error) {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 || lo > math.MaxInt64 {
		return 0, fmt.Errorf("%d times %d is above %d", a, b, int64(math.MaxInt64))
	}
	return lo, nil
}
