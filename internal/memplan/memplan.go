// Package memplan places the buffers of a program whose order is known in one
// arena, so that buffers share memory when they are in use at different times.
package memplan

import (
	"cmp"
	"fmt"
	"slices"
)

// Alignment is that of every offset, in bytes: what CUDA's allocator guarantees.
const Alignment = 256

// Round returns the bytes of an arena that a buffer of the given size takes.
func Round(bytes int64) int64 {
	return max(Alignment, (bytes+Alignment-1)/Alignment*Alignment)
}

// Buffer is a range of an arena, reserved from one instant of a Timeline to another.
type Buffer struct {
	bytes       int64 // requested
	first, last int   // instants of use; last is open while it is negative
	offset      int64
	placed      bool
	optional    bool
}

// Bytes returns the size that was requested.
func (b *Buffer) Bytes() int64 { return b.bytes }

// Offset returns where the buffer begins in the arena. ok is false before Place, and for
// a spare buffer without a place.
func (b *Buffer) Offset() (offset int64, ok bool) { return b.offset, b.placed }

// Timeline collects the buffers of a program, instant by instant. The zero value is
// empty and at instant 0.
type Timeline struct {
	now     int
	buffers []*Buffer
}

// Tick starts the next instant. Buffers in use at different instants may share memory.
func (t *Timeline) Tick() { t.now++ }

// Alloc requests a buffer from the current instant on, until Free or the end.
func (t *Timeline) Alloc(bytes int64) *Buffer {
	if bytes < 0 {
		panic(fmt.Sprintf("memplan: a buffer of %d bytes", bytes))
	}
	b := &Buffer{bytes: bytes, first: t.now, last: -1}
	t.buffers = append(t.buffers, b)
	return b
}

// Spare is Alloc for a buffer of the current instant only, which gets memory only if the
// arena is large enough without it.
func (t *Timeline) Spare(bytes int64) *Buffer {
	b := t.Alloc(bytes)
	b.last, b.optional = t.now, true
	return b
}

// Free makes the current instant the last at which b is in use.
func (t *Timeline) Free(b *Buffer) { b.last = t.now }

// Place gives every buffer an offset and returns the size of the arena. Larger buffers
// are placed first, each at the lowest offset that is free all the time it is in use
// (greedy by size, Pisarchyk and Lee, arXiv 2001.03288, section 5.2).
func (t *Timeline) Place() (size int64) {
	order := slices.Clone(t.buffers)
	slices.SortStableFunc(order, func(a, b *Buffer) int {
		if a.optional != b.optional {
			if a.optional {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.first, b.first))
	})
	var placed []*Buffer // by offset
	for _, b := range order {
		if b.last < 0 {
			b.last = t.now
		}
		at := int64(0)
		for _, other := range placed {
			if other.first > b.last || other.last < b.first {
				continue
			}
			if other.offset >= at+Round(b.bytes) {
				break
			}
			at = max(at, other.offset+Round(other.bytes))
		}
		if b.optional && at+Round(b.bytes) > size {
			continue
		}
		b.offset, b.placed = at, true
		size = max(size, at+Round(b.bytes))
		i, _ := slices.BinarySearchFunc(placed, b, func(x, y *Buffer) int { return cmp.Compare(x.offset, y.offset) })
		placed = slices.Insert(placed, i, b)
	}
	return size
}
