package pulsecol

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
)

// ColumnTable holds the keys that each query group keeps, for some batch rows and query
// heads of one attention layer.
type ColumnTable struct {
	Batch, Heads, Len int      // Batch or Heads is 1 where all share one row; Len is in tokens
	Group             int      // queries in a group; the last may be short
	Bits              []uint32 // [Batch, Heads, Groups, ceil(Len/32)]; key j is bit j%32 of word j/32
}

// Validate returns an error that wraps op.ErrShape or op.ErrValue unless attention can read
// t: sizes are at least 1, Bits has Batch*Heads*Groups*ceil(Len/32) words, bits from key Len
// on are zero, and some group keeps a key.
func (t *ColumnTable) Validate() error { return (*exec.ColumnBits)(t).Validate() }

// maxTableWords bounds the memory of a table: 256 GiB.
const maxTableWords = 1 << 36

// NewColumnTable returns the table of a sequence of n tokens in groups of group
// queries, for which keys lists the keys of each group, in any order. batch and heads
// may be 1 for all; see Fixed.
//
// The error wraps op.ErrShape for a size below 1 and for a table of more than 2^36 words. It
// wraps op.ErrValue for a key outside of the sequence and where keys is nil. The other conditions of Fixed are checked where it is used.
func NewColumnTable(batch, heads, n, group int, keys func(batch, head, group int) []int) (*ColumnTable, error) {
	for _, size := range []struct {
		name  string
		value int
	}{{"batch rows", batch}, {"heads", heads}, {"tokens", n}, {"queries in a group", group}} {
		if size.value < 1 {
			return nil, fmt.Errorf("pulsecol: NewColumnTable: %w: %d %s, want at least 1", op.ErrShape, size.value, size.name)
		}
	}
	t := &ColumnTable{Batch: batch, Heads: heads, Len: n, Group: group}
	switch words := float64(batch) * float64(heads) * float64(t.Groups()) * float64(t.words()); {
	case words > maxTableWords:
		return nil, fmt.Errorf("pulsecol: NewColumnTable: %w: %d batch rows, %d heads, %d groups and %d tokens make %.3g words, want at most %.3g",
			op.ErrShape, batch, heads, t.Groups(), n, words, float64(maxTableWords))
	case keys == nil:
		return nil, fmt.Errorf("pulsecol: NewColumnTable: %w: keys is nil", op.ErrValue)
	}
	for b := range batch {
		for h := range heads {
			for u := range t.Groups() {
				row := make([]uint32, t.words())
				for _, j := range keys(b, h, u) {
					if j < 0 || j >= n {
						return nil, fmt.Errorf("pulsecol: NewColumnTable: %w: key %d of batch row %d, head %d, group %d, want 0 to %d", op.ErrValue, j, b, h, u, n-1)
					}
					columns.Set(row, j)
				}
				t.Bits = append(t.Bits, row...)
			}
		}
	}
	return t, nil
}

// Groups is the number of query groups; it is 0 for a nil table and for one without sizes.
func (t *ColumnTable) Groups() int {
	if t == nil || t.Len < 1 || t.Group < 1 {
		return 0
	}
	return (t.Len-1)/t.Group + 1
}

// words is the number of words of a group's row.
func (t *ColumnTable) words() int { return (t.Len-1)/32 + 1 }

// Keys returns the keys that a query group keeps, ascending. It returns nil for a group that
// does not exist, and where t is nil or its Bits do not fit its sizes. A table for one batch row or head has the same keys for all. Tables of patterns
// fixed by position have one batch row and one head; in them a group keeps every key that at
// least one of its queries keeps.
func (t *ColumnTable) Keys(batch, head, group int) []int {
	if t == nil || !(*exec.ColumnBits)(t).Complete() {
		return nil
	}
	if t.Batch == 1 {
		batch = 0
	}
	if t.Heads == 1 {
		head = 0
	}
	return keysOf(t.Bits, [3]int{t.Batch, t.Heads, t.Groups()}, t.Len, [3]int{batch, head, group})
}

// keysOf returns the keys, of n, that the group at has in the bits of a table of so many
// batch rows, heads and groups; nil for a group that does not exist.
func keysOf(bits []uint32, sizes [3]int, n int, at [3]int) (keys []int) {
	row := 0
	for i, size := range sizes {
		if at[i] < 0 || at[i] >= size {
			return nil
		}
		row = row*size + at[i]
	}
	words := (n-1)/32 + 1
	for j := range columns.Keys(bits[row*words:][:words]) {
		if j < n {
			keys = append(keys, j)
		}
	}
	return keys
}

// Columns returns a copy of a layer's column table, or an error wrapping
// ErrStale if there is none.
func (c *Controller) Columns(layer int) (*ColumnTable, error) {
	if layer < 0 || layer >= len(c.layers) {
		return nil, fmt.Errorf("pulsecol: layer %d, want 0 to %d", layer, len(c.layers)-1)
	}
	bits, err := c.layers[layer].state.Columns()
	if err != nil {
		return nil, fmt.Errorf("pulsecol: %w", err)
	}
	return (*ColumnTable)(&bits), nil
}
