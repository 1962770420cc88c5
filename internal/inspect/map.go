package inspect

import (
	"sync"

	"github.com/pulsecol/pulsecol/internal/columns"
)

// Map is the attention of one head and the pairs that a table keeps, reduced to Cells ×
// Cells cells of Side × Side query-key pairs; the last may be short.
type Map struct {
	Len, Side, Cells int
	Fidelity                   // of the head
	Attention        []float64 // [Cells, Cells]: the highest probability in a cell
	Pairs            []Pairs   // [Cells, Cells]
}

// Pairs counts the query-key pairs of a cell, without padding and the queries that
// do not count.
type Pairs struct {
	All  int
	Kept int // by the table
	Hit  int // of them, those with one of the query's k highest probabilities (k as in Recall)
	Miss int // those with one of these probabilities that are not kept
}

// NewMap maps a head to at most most × most cells.
func NewMap(a *Attention, head int, t *columns.Table, most int) *Map {
	a.check()
	checkTable(t, a.Heads, a.Len)
	side := (a.Len + most - 1) / most
	cells := (a.Len + side - 1) / side
	m := &Map{
		Len: a.Len, Side: side, Cells: cells,
		Attention: make([]float64, cells*cells), Pairs: make([]Pairs, cells*cells),
	}
	each := make([]Fidelity, a.Len)
	var mu sync.Mutex // several queries share a row of cells
	a.eachRow(head, func(r *row) {
		kept := t.Row(head, r.query/t.Group)
		each[r.query] = r.fidelity(kept, a.Valid)
		top := r.top.of(r.scores, r.kept)
		mu.Lock()
		defer mu.Unlock()
		for j, p := range r.p {
			if a.valid(j) {
				m.add(r.query/side*cells+j/side, p, columns.Has(kept, j), columns.Has(top, j))
			}
		}
	})
	m.Fidelity = a.mean(each)
	return m
}

func (m *Map) add(cell int, p float64, kept, top bool) {
	m.Attention[cell] = max(m.Attention[cell], p)
	c := &m.Pairs[cell]
	c.All++
	if kept {
		c.Kept++
	}
	if kept && top {
		c.Hit++
	}
	if top && !kept {
		c.Miss++
	}
}
