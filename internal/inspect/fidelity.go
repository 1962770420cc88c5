package inspect

import (
	"fmt"
	"math/bits"

	"github.com/pulsecol/pulsecol/internal/columns"
)

// checkTable panics unless a table has one or all heads, the tokens, and the queries of a.
func (a *Attention) checkTable(t *columns.Table) {
	if err := t.Check(); err != nil || t.Heads != 1 && t.Heads != a.Heads || t.Len != a.Len {
		panic(fmt.Sprintf("inspect: a table of %d heads and %d tokens is not of %d heads and %d tokens (%v)", t.Heads, t.Len, a.Heads, a.Len, err))
	}
	if whole := t.Queries == 0 && t.First == 0; !whole && (t.First != a.First || t.Queries != a.queries()) {
		panic(fmt.Sprintf("inspect: a table of %d queries from position %d on is not of %d from %d on", t.Queries, t.First, a.queries(), a.First))
	}
}

// Fidelity measures how well a selection of keys approximates full attention, as means over
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
// query that keeps no key counts as 0. Padding queries do not count, and padding keys are
// not kept. Without any valid token the result is 0. NaN in q or k makes Mass NaN.
func Measure(a *Attention, tables []*columns.Table) [][]Fidelity {
	a.check()
	result := make([][]Fidelity, len(tables))
	for i, t := range tables {
		a.checkTable(t)
		result[i] = make([]Fidelity, a.Heads)
	}
	each := make([]Fidelity, len(tables)*a.Len) // of the queries of a head
	for head := range a.Heads {
		a.eachRow(head, func(r *row) {
			for i, t := range tables {
				each[i*a.Len+r.query] = r.fidelity(t.Of(head, r.query), a.Valid)
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
	for j := range columns.Keys(kept) {
		if valid == nil || valid[j] != 0 {
			r.kept++
			f.Mass += r.p[j]
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
