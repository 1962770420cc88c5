package inspect

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Table says which keys each group of consecutive queries keeps.
type Table struct {
	Heads int      // that have a choice of their own; 1 = one for all
	Group int      // queries in a group; the last may be short
	Bits  []uint32 // [Heads, Groups(Len, Group), Words(Len)]; key j is bit j%32 of word j/32
}

func (t *Table) check(heads, n int) {
	if t.Heads != 1 && t.Heads != heads || t.Group < 1 || len(t.Bits) != t.Heads*kernel.Groups(n, t.Group)*kernel.Words(n) {
		panic(fmt.Sprintf("inspect: a table of %d words, %d heads and groups of %d is not of %d heads and %d tokens", len(t.Bits), t.Heads, t.Group, heads, n))
	}
}

// row is the keys that a query keeps.
func (t *Table) row(head, query, n int) []uint32 {
	if t.Heads == 1 {
		head = 0
	}
	w := kernel.Words(n)
	return t.Bits[(head*kernel.Groups(n, t.Group)+query/t.Group)*w:][:w]
}

// pairs counts, over n queries, the pairs of a query and a word's keys that count
// says.
func (t *Table) pairs(n int, count func(word int) uint32) (sum float64) {
	w, groups := kernel.Words(n), kernel.Groups(n, t.Group)
	for i := range t.Bits {
		u := i / w % groups
		queries := min(n, (u+1)*t.Group) - u*t.Group
		sum += float64(queries * bits.OnesCount32(count(i)))
	}
	return sum
}

// Density is the share of query-key pairs that the table keeps, padding included,
// for sequences of n tokens.
func (t *Table) Density(n int) float64 {
	return t.pairs(n, func(i int) uint32 { return t.Bits[i] }) / (float64(t.Heads) * float64(n) * float64(n))
}

// Churn is the share of the pairs of t that old, a table of the same shape, does
// not have.
func (t *Table) Churn(old *Table, n int) float64 {
	kept := t.pairs(n, func(i int) uint32 { return t.Bits[i] })
	if kept == 0 {
		return 0
	}
	return t.pairs(n, func(i int) uint32 { return t.Bits[i] &^ old.Bits[i] }) / kept
}

// Union is how many different keys neighbouring groups keep: those of a block, over
// the mean number that one of its groups keeps; mean over blocks and heads, for
// sequences of n tokens. A block is as many groups as fit into 128 queries: see
// columns.Block. Union is 1 if they keep the same keys, and the number of groups in a
// block if no two share any.
//
// Blocks without any key do not count, nor does a last one with fewer groups, which
// cannot reach as much. Without a block that counts, or with one group in each, there
// is nothing to tell, and Union is NaN.
func (t *Table) Union(n int) float64 {
	block := columns.Block(t.Group)
	if block == 1 {
		return math.NaN()
	}
	w, groups := kernel.Words(n), kernel.Groups(n, t.Group)
	sum, blocks := 0.0, 0.0
	union := make([]uint32, w)
	for head := range t.Heads {
		for first := 0; first+block <= groups; first += block {
			clear(union)
			kept := 0
			for i, word := range t.Bits[(head*groups+first)*w:][:block*w] {
				union[i%w] |= word
				kept += bits.OnesCount32(word)
			}
			if kept == 0 {
				continue
			}
			different := 0
			for _, word := range union {
				different += bits.OnesCount32(word)
			}
			sum += float64(different*block) / float64(kept)
			blocks++
		}
	}
	return sum / blocks
}

// Fidelity is how much of full attention a choice of keys catches, as means over
// queries.
type Fidelity struct {
	// Recall is the paper's oracle top-k recall: of the k keys with a query's
	// highest probabilities, the share that is kept, where k is the number of keys
	// that are kept for the query. Of equal probabilities the smaller index counts.
	Recall float64
	// Mass is the sum of the probabilities of the kept keys.
	Mass float64
}

// Measure returns the fidelity of each table for each head: [tables][Heads]. A
// query that keeps no key counts as 0; padding queries do not count, and padding
// keys are never kept. Without any valid token everything is 0. NaN in q or k
// makes Mass NaN.
func Measure(a *Attention, tables []*Table) [][]Fidelity {
	a.check()
	result := make([][]Fidelity, len(tables))
	for i, t := range tables {
		t.check(a.Heads, a.Len)
		result[i] = make([]Fidelity, a.Heads)
	}
	each := make([]Fidelity, len(tables)*a.Len) // of the queries of a head
	for head := range a.Heads {
		a.eachRow(head, func(r *row) {
			for i, t := range tables {
				each[i*a.Len+r.query] = r.fidelity(t.row(head, r.query, a.Len), a.Valid)
			}
		})
		for i := range tables {
			result[i][head] = a.mean(each[i*a.Len:][:a.Len])
		}
	}
	return result
}

// mean is the mean over the queries that count, added up in their order.
func (a *Attention) mean(each []Fidelity) (f Fidelity) {
	queries := 0.0
	for i, e := range each {
		if a.counts(i) {
			queries++
			f.Recall += e.Recall
			f.Mass += e.Mass
		}
	}
	return Fidelity{f.Recall / max(1, queries), f.Mass / max(1, queries)}
}

// fidelity is that of one query, for the keys that it keeps. It sets r.kept.
func (r *row) fidelity(kept []uint32, valid []float32) (f Fidelity) {
	r.kept = 0
	for i, word := range kept {
		for ; word != 0; word &= word - 1 {
			if j := 32*i + bits.TrailingZeros32(word); valid == nil || valid[j] != 0 {
				r.kept++
				f.Mass += r.p[j]
			}
		}
	}
	if r.kept == 0 {
		return Fidelity{}
	}
	hits := 0
	for i, word := range r.top.of(r.scores, r.kept) {
		hits += bits.OnesCount32(word & kept[i])
	}
	f.Recall = float64(hits) / float64(r.kept)
	return f
}
