package inspect

import (
	"sync"

	"github.com/pulsecol/pulsecol/internal/columns"
)

// Map is the attention of one head and the pairs that a table keeps, reduced to RowCells ×
// Cells cells of RowSide queries × Side keys; the last may be short.
type Map struct {
	First, Rows, RowSide, RowCells int // Rows queries from position First on
	Len, Side, Cells               int // keys

	Fidelity            // of the head
	Attention []float64 // [RowCells, Cells]: the highest probability in a cell
	Pairs     []Pairs   // [RowCells, Cells]
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
	a.checkTable(t)
	m := &Map{First: a.First, Rows: a.queries(), Len: a.Len}
	m.RowSide, m.RowCells = reduced(m.Rows, most)
	m.Side, m.Cells = reduced(m.Len, most)
	m.Attention, m.Pairs = make([]float64, m.RowCells*m.Cells), make([]Pairs, m.RowCells*m.Cells)
	each := make([]Fidelity, a.Len)
	var mu sync.Mutex // several queries share a row of cells
	a.eachRow(head, func(r *row) {
		kept := t.Of(head, r.query)
		each[r.query] = r.fidelity(kept, a.Valid)
		top := r.top.of(r.scores, r.kept)
		mu.Lock()
		defer mu.Unlock()
		for j, p := range r.p {
			if a.valid(j) {
				m.add((r.query-m.First)/m.RowSide*m.Cells+j/m.Side, p, columns.Has(kept, j), columns.Has(top, j))
			}
		}
	})
	m.Fidelity = a.mean(each)
	return m
}

// reduced returns the size of at most most cells of n positions, and their number.
func reduced(n, most int) (side, cells int) {
	side = (n + most - 1) / most
	return side, (n + side - 1) / side
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
