package exec

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// ColumnBits is a column table: the keys that each query group keeps.
type ColumnBits struct {
	Batch, Heads, Len int      // 1 and 1 if one row serves all (static patterns)
	Group             int      // queries in a group; the last may be short
	Bits              []uint32 // [Batch, Heads, ceil(Len/Group), ceil(Len/32)]; key j is bit j%32 of word j/32
}

// Validate returns an error that wraps ErrShape or ErrValue unless attention can use c:
// sizes are at least 1, Bits has Batch*Heads*Groups*ceil(Len/32) words, bits from key Len on
// are zero, and some group keeps a key.
func (c *ColumnBits) Validate() error {
	if c == nil {
		return fmt.Errorf("%w: the column table is nil", ErrShape)
	}
	for _, size := range []struct {
		name  string
		value int
	}{{"Batch", c.Batch}, {"Heads", c.Heads}, {"Len", c.Len}, {"Group", c.Group}} {
		if size.value < 1 {
			return fmt.Errorf("%w: %s is %d, want at least 1", ErrShape, size.name, size.value)
		}
	}
	if !c.Complete() {
		return fmt.Errorf("%w: %d words of Bits, want %d·%d·ceil(%d/%d)·ceil(%d/32)", ErrShape, len(c.Bits), c.Batch, c.Heads, c.Len, c.Group, c.Len)
	}
	w, kept := kernel.Words(c.Len), false
	for i, row := range c.columns().Rows() {
		if beyond := c.Len % 32; beyond != 0 && row[w-1]>>beyond != 0 {
			return fmt.Errorf("%w: %s keeps keys beyond the last of %d", ErrValue, c.place(i), c.Len)
		}
		kept = kept || columns.Count(row) > 0
	}
	if !kept {
		return fmt.Errorf("%w: no group keeps a key", ErrValue)
	}
	return nil
}

// columns is c as the bitmap of all its heads.
func (c *ColumnBits) columns() *columns.Table {
	return &columns.Table{Heads: c.Batch * c.Heads, Len: c.Len, Group: c.Group, Bits: c.Bits}
}

// place names the group of a row.
func (c *ColumnBits) place(row int) string {
	u := kernel.Groups(c.Len, c.Group)
	return fmt.Sprintf("batch row %d, head %d, group %d", row/(u*c.Heads), row/u%c.Heads, row%u)
}

// Complete reports whether the sizes are at least 1 and Bits has the number of words that
// they require.
func (c *ColumnBits) Complete() bool {
	if min(c.Batch, c.Heads, c.Len, c.Group) < 1 {
		return false
	}
	have := len(c.Bits)
	for _, size := range []int{c.Batch, c.Heads, kernel.Groups(c.Len, c.Group), (c.Len-1)/32 + 1} {
		if have%size != 0 {
			return false
		}
		have /= size
	}
	return have == 1
}

// Fits returns an error unless attention of the shape s in groups of group queries can use
// c. Without a padding mask every group has to keep a key. With one a group of padding may
// keep none; these groups depend on the mask of a step.
func (c *ColumnBits) Fits(s kernel.Shape, group int, masked bool) error {
	switch {
	case c.Len != s.Len:
		return fmt.Errorf("%w: columns given for %d tokens, want %d", ErrShape, c.Len, s.Len)
	case c.Batch != 1 && c.Batch != s.Batch:
		return fmt.Errorf("%w: columns given for %d batch rows, want 1 or %d", ErrShape, c.Batch, s.Batch)
	case c.Heads != 1 && c.Heads != s.Heads:
		return fmt.Errorf("%w: columns given for %d heads, want 1 or %d", ErrShape, c.Heads, s.Heads)
	case c.Group != group:
		return fmt.Errorf("%w: columns given for groups of %d queries, want %d", ErrShape, c.Group, group)
	case masked:
		return nil
	}
	for i, row := range c.columns().Rows() {
		if columns.Count(row) == 0 {
			return fmt.Errorf("%w: columns given without a key for %s, and there is no padding mask", ErrValue, c.place(i))
		}
	}
	return nil
}

// table is c as kernels take it.
func (c *ColumnBits) table() kernel.Table {
	return kernel.Table{Bits: c.Bits, Group: c.Group, SharedBatch: c.Batch == 1, SharedHeads: c.Heads == 1, Reach: -1}
}
