package pulsecol

import (
	"fmt"

	"github.com/pulsecol/pulsecol/op"
)

// ColumnTable says which keys each query group of a layer attends to.
type ColumnTable struct{ op.ColumnBits }

// Groups is the number of query groups.
func (t *ColumnTable) Groups() int { return (t.Len + t.Group - 1) / t.Group }

// Keys returns the keys that a query group keeps, ascending; nil for a group that
// there is not. Patterns fixed by position have one table for all batch rows and
// heads, and a group keeps what at least one of its queries sees.
func (t *ColumnTable) Keys(batch, head, group int) []int {
	if t.Batch == 1 {
		batch = 0
	}
	if t.Heads == 1 {
		head = 0
	}
	if batch < 0 || batch >= t.Batch || head < 0 || head >= t.Heads || group < 0 || group >= t.Groups() {
		return nil
	}
	words := (t.Len + 31) / 32
	row := t.Bits[((batch*t.Heads+head)*t.Groups()+group)*words:][:words]
	var keys []int
	for j := range t.Len {
		if row[j/32]>>(j%32)&1 != 0 {
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
	return &ColumnTable{bits}, nil
}
