package pulsecol

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
)

// Fixed attends to columns that the user gives, for instance from Columns of another
// controller. It computes no scores, never refreshes and is the same in every step. Like
// patterns fixed by position it ignores Sparsity and the Schedule; the schedule Adaptive is
// an error, because there is nothing to refresh.
//
// Each query of a group sees exactly the keys that its group keeps in the table of its
// layer, less those that are padding. A query that is left without a key gets zeros.
//
// Tables are not copied. They must not change while a controller uses them.
type Fixed struct {
	// Tables are those of the attention layers, by the index of Controller.Layer, or one
	// for all layers. An entry may be nil where there is no attention.
	//
	// A table is [batch rows, heads of queries, groups] of keys. With one batch row or
	// one head it serves all of them; otherwise their numbers are the layer's. All tables
	// have the same group size, and Config.GroupSize is 0 or equal to it. Len is the number
	// of tokens of the layer's sequence. Every group keeps a key, except under a padding
	// mask: refreshes keep none for some groups of padding.
	Tables []*ColumnTable
}

func (Fixed) String() string { return "fixed columns" }

func (p Fixed) selection(_ float64, _ int) (exec.Selection, int) {
	return exec.Selection{Kind: exec.SelectFixed}, p.group()
}

// group is the size of the tables' groups, 0 without a table.
func (p Fixed) group() int {
	for _, t := range p.Tables {
		if t != nil {
			return t.Group
		}
	}
	return 0
}

// table returns the table of a layer, nil if there is none.
func (p Fixed) table(layer int) *ColumnTable {
	switch {
	case len(p.Tables) == 1:
		return p.Tables[0]
	case layer < len(p.Tables):
		return p.Tables[layer]
	}
	return nil
}

func (p Fixed) validate() error {
	valid := map[*ColumnTable]bool{nil: true}
	for i, t := range p.Tables {
		if valid[t] { // one may serve several layers
			continue
		}
		if err := t.Validate(); err != nil {
			return fmt.Errorf("Tables[%d]: %w", i, err)
		}
		if t.Group != p.group() {
			return fmt.Errorf("Tables[%d] has groups of %d queries, want %d as the tables before", i, t.Group, p.group())
		}
		valid[t] = true
	}
	if len(valid) == 1 {
		return fmt.Errorf("%d Tables and none that is not nil, want one for all layers or one for each", len(p.Tables))
	}
	return nil
}
