package pulsecol

import "fmt"

// BlockColumns holds the keys that the groups of a block's active rows keep, for the batch
// rows and query heads of one attention layer. A step with a Cache selects them for the
// steps that follow in the block, and the keys of the block are always among them. They are
// not part of the layer's ColumnTable, whose groups are counted from the first token.
type BlockColumns struct {
	Batch, Heads, Len int      // Len is in tokens
	First, Rows       int      // active rows: Rows of them from position First on
	Group             int      // queries in a group, counted from First; the last may be short
	Bits              []uint32 // [Batch, Heads, Groups, ceil(Len/32)]; key j is bit j%32 of word j/32
}

// Groups is the number of query groups; it is 0 for nil and without sizes.
func (b *BlockColumns) Groups() int {
	if b == nil || b.Rows < 1 || b.Group < 1 {
		return 0
	}
	return (b.Rows-1)/b.Group + 1
}

// Keys returns the keys that a query group keeps, ascending. It returns nil for a group that
// does not exist, and where b is nil or its Bits do not fit its sizes.
func (b *BlockColumns) Keys(batch, head, group int) []int {
	if b == nil || min(b.Batch, b.Heads, b.Len) < 1 || b.Groups() < 1 {
		return nil
	}
	have := len(b.Bits)
	for _, size := range []int{b.Batch, b.Heads, b.Groups(), (b.Len-1)/32 + 1} {
		if have%size != 0 {
			return nil
		}
		have /= size
	}
	if have != 1 {
		return nil
	}
	return keysOf(b.Bits, [3]int{b.Batch, b.Heads, b.Groups()}, b.Len, [3]int{batch, head, group})
}

// BlockColumns returns a copy of the columns that a layer has selected for the active block.
// The error wraps ErrStale if there are none, as before the first step of a block, without a
// Cache, and with patterns that are fixed by position.
func (c *Controller) BlockColumns(layer int) (*BlockColumns, error) {
	if layer < 0 || layer >= len(c.layers) {
		return nil, fmt.Errorf("pulsecol: layer %d, want 0 to %d", layer, len(c.layers)-1)
	}
	l := c.layers[layer]
	b, err := l.state.CopyBlockColumns()
	if err != nil {
		return nil, fmt.Errorf("pulsecol: %s: %w", l.path, err)
	}
	return (*BlockColumns)(b), nil
}
