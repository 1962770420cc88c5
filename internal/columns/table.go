// Package columns holds the bitmap of columns that attention, its statistics and its
// inspection share: the keys that each group of queries keeps.
package columns

import (
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Table holds the keys that each group of consecutive queries keeps, for some heads.
type Table struct {
	Heads int      // of all batch rows; 1 if they share one table
	Len   int      // tokens
	Group int      // queries in a group, counted from First; the last may be short
	Bits  []uint32 // [Heads, Groups, Words]; key j is bit j%32 of word j/32

	First   int // position of the first query
	Queries int // from First on; 0 is all tokens
}

// Check returns an error unless the sizes are at least 1 and Bits has the number of words
// that they require.
func (t *Table) Check() error {
	outside := t.First < 0 || t.Queries < 0 || t.First+t.count() > t.Len
	if t.Heads < 1 || t.Len < 1 || t.Group < 1 || outside || len(t.Bits) != t.Heads*t.Groups()*t.Words() {
		return fmt.Errorf("columns: a table of %d words is not of %d heads, %d tokens and groups of %d", len(t.Bits), t.Heads, t.Len, t.Group)
	}
	return nil
}

// Groups is the number of groups of a head.
func (t *Table) Groups() int { return kernel.Groups(t.count(), t.Group) }

// count is the number of queries.
func (t *Table) count() int {
	if t.Queries == 0 {
		return t.Len
	}
	return t.Queries
}

// Words is the number of words of a row.
func (t *Table) Words() int { return kernel.Words(t.Len) }

// Row is the keys of a group. With one head in the table, head is ignored.
func (t *Table) Row(head, group int) []uint32 {
	if t.Heads == 1 {
		head = 0
	}
	w := t.Words()
	return t.Bits[(head*t.Groups()+group)*w:][:w]
}

// Of is the keys of the query at a position, one of the table's.
func (t *Table) Of(head, position int) []uint32 { return t.Row(head, (position-t.First)/t.Group) }

// Rows yields the rows of all heads, with their index head*Groups + group.
func (t *Table) Rows() iter.Seq2[int, []uint32] {
	return func(yield func(int, []uint32) bool) {
		i := 0
		for row := range slices.Chunk(t.Bits, t.Words()) {
			if !yield(i, row) {
				return
			}
			i++
		}
	}
}

// queries is the number of queries of row i.
func (t *Table) queries(i int) int {
	first := i % t.Groups() * t.Group
	return min(t.Group, t.count()-first)
}

// Pairs is the number of pairs of a query and a key that it keeps.
func (t *Table) Pairs() (pairs int) {
	for i, row := range t.Rows() {
		pairs += t.queries(i) * Count(row)
	}
	return pairs
}

// NewPairs is the number of pairs of t that old, a table of the same shape, does not
// have.
func (t *Table) NewPairs(old *Table) (pairs int) {
	for i, row := range t.Rows() {
		before, kept := old.Bits[i*len(row):], 0
		for w, word := range row {
			kept += bits.OnesCount32(word &^ before[w])
		}
		pairs += t.queries(i) * kept
	}
	return pairs
}

// Density is the share of query-key pairs that t keeps, padding included.
func (t *Table) Density() float64 {
	return float64(t.Pairs()) / (float64(t.Heads) * float64(t.count()) * float64(t.Len))
}

// Churn is the share of the pairs of t that old does not have, 0 of a table without
// pairs.
func (t *Table) Churn(old *Table) float64 {
	pairs := t.Pairs()
	if pairs == 0 {
		return 0
	}
	return float64(t.NewPairs(old)) / float64(pairs)
}

// Union is the number of different keys of a block of groups divided by the mean number of
// keys of its groups, as the mean over blocks and heads. See Block. It is 1 if the groups of
// a block keep the same keys, and the number of groups if no two share a key.
//
// Blocks without any key do not count, nor does a last block with fewer groups, whose
// maximum is lower. Union is NaN if no block counts or blocks have one group.
func (t *Table) Union() float64 {
	block := Block(t.Group)
	if block == 1 {
		return math.NaN()
	}
	sum, blocks := 0.0, 0.0
	union := make([]uint32, t.Words())
	for head := range t.Heads {
		for first := 0; first+block <= t.Groups(); first += block {
			clear(union)
			kept := 0
			for u := range block {
				row := t.Row(head, first+u)
				for i, word := range row {
					union[i] |= word
				}
				kept += Count(row)
			}
			if kept == 0 {
				continue
			}
			sum += float64(Count(union)*block) / float64(kept)
			blocks++
		}
	}
	return sum / blocks
}

// Block is the number of neighbouring groups in a block of 128 queries, whose keys a GPU
// kernel fetches together; at least one. Blocks are counted from the first group.
func Block(group int) int { return max(1, 128/group) }

// Has reports whether a row keeps key j.
func Has(row []uint32, j int) bool { return row[j/32]>>(j%32)&1 != 0 }

// Set makes a row keep key j.
func Set(row []uint32, j int) { row[j/32] |= 1 << (j % 32) }

// Clear makes a row drop key j.
func Clear(row []uint32, j int) { row[j/32] &^= 1 << (j % 32) }

// Count is the number of keys of a row.
func Count(row []uint32) (keys int) {
	for _, word := range row {
		keys += bits.OnesCount32(word)
	}
	return keys
}

// Keys yields the keys of a row, ascending.
func Keys(row []uint32) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range row {
			for ; word != 0; word &= word - 1 {
				if !yield(32*i + bits.TrailingZeros32(word)) {
					return
				}
			}
		}
	}
}
