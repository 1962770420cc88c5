// Package inspect measures the share of full attention that falls on a selection of keys,
// and draws both.
//
// It works on the queries and keys of one layer in one step, a head and a block of queries
// at a time: at most a few megabytes of the attention probabilities [N, N] of a head are in
// memory at once. Products q·k are float32, as in the model;
// probabilities and all sums are float64. Results are the same for any number of
// threads.
//
// Lengths of slices are a contract, as in package kernel: a violation panics.
package inspect

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/workgroup"
)

// Attention is the queries and keys of one layer, of one sequence. Query head h
// reads key head h/(Heads/KVHeads).
type Attention struct {
	Heads, KVHeads, Len, HeadDim int

	First int // position of the first query
	Rows  int // queries; 0 is Len

	Q     []float32 // [Heads, Rows, HeadDim]
	K     []float32 // [KVHeads, Len, HeadDim]
	Valid []float32 // [Len], 0 marks padding; nil = none
	Scale float64   // of q·k; above 0

	From int // position from which on queries count
}

func (a *Attention) check() {
	s := kernel.Shape{Batch: 1, Heads: a.Heads, KVHeads: a.KVHeads, Len: a.Len, HeadDim: a.HeadDim}
	if err := s.Validate(); err != nil {
		panic(err.Error())
	}
	if a.First < 0 || a.Rows < 0 || a.First+a.queries() > a.Len {
		panic(fmt.Sprintf("inspect: %d queries from position %d on, of %d tokens", a.Rows, a.First, a.Len))
	}
	if len(a.Q) != a.Heads*a.queries()*a.HeadDim || len(a.K) != a.KVHeads*a.Len*a.HeadDim || a.Valid != nil && len(a.Valid) != a.Len {
		panic(fmt.Sprintf("inspect: %d queries, %d keys and a mask of %d are not of %d and %d heads, %d tokens, head dim %d",
			len(a.Q), len(a.K), len(a.Valid), a.Heads, a.KVHeads, a.Len, a.HeadDim))
	}
	if a.From < 0 || a.From > a.Len {
		panic(fmt.Sprintf("inspect: queries from %d of %d", a.From, a.Len))
	}
}

// queries is their number.
func (a *Attention) queries() int {
	if a.Rows == 0 {
		return a.Len
	}
	return a.Rows
}

// valid reports whether token j is not padding.
func (a *Attention) valid(j int) bool { return a.Valid == nil || a.Valid[j] != 0 }

// counts reports whether there is a query at position i that is measured.
func (a *Attention) counts(i int) bool {
	return i >= max(a.From, a.First) && i < a.First+a.queries() && a.valid(i)
}

// row is the attention of one query.
type row struct {
	query  int       // its position
	scores []float32 // q·k of every key; -Inf for padding
	p      []float64 // its probabilities
	top    topSets
	kept   int // keys that the latest table keeps
}

// blockScores is the number of products q·k in memory at once, 4 MiB.
const blockScores = 1 << 20

// eachRow calls visit for every query of a head that counts, from several goroutines. The
// row is valid until visit returns.
func (a *Attention) eachRow(head int, visit func(*row)) {
	n, dim, rows := a.Len, a.HeadDim, a.queries()
	keys := a.keys(head)
	block := max(1, min(n, blockScores/n))
	scores := make([]float32, block*n)
	workers := make([]row, runtime.GOMAXPROCS(0))
	var team kernel.Team
	for first := max(a.From, a.First); first < a.First+rows; first += block {
		count := min(block, a.First+rows-first)
		team.Linear(scores[:count*n], a.Q[(head*rows+first-a.First)*dim:][:count*dim], count, keys, nil)
		var next atomic.Int64
		var wg workgroup.Group
		for w := range workers {
			wg.Go(func() {
				r := &workers[w]
				for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
					if !a.counts(first + i) {
						continue
					}
					r.query, r.scores = first+i, scores[i*n:][:n]
					a.softmax(r)
					visit(r)
				}
			})
		}
		wg.Wait()
	}
}

// keys returns the keys of a head as the weights of a linear layer, whose outputs are the
// products with a query.
func (a *Attention) keys(head int) *kernel.Matrix {
	size := a.Len * a.HeadDim
	kv := head / (a.Heads / a.KVHeads)
	data := make([]byte, 0, 4*size)
	for _, x := range a.K[kv*size:][:size] {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return &kernel.Matrix{Rows: a.Len, Cols: a.HeadDim, DType: kernel.F32, Data: data}
}

// softmax fills r.p. If all keys are padding it is all zeros.
func (a *Attention) softmax(r *row) {
	r.top.reset()
	if r.p == nil {
		r.p = make([]float64, a.Len)
	}
	largest := math.Inf(-1)
	for j, s := range r.scores {
		if !a.valid(j) {
			r.scores[j] = float32(math.Inf(-1))
			continue
		}
		largest = max(largest, a.Scale*float64(s)) // NaN if one of them is
	}
	sum := 0.0
	for j, s := range r.scores {
		r.p[j] = 0
		if a.valid(j) {
			r.p[j] = math.Exp(a.Scale*float64(s) - largest)
			sum += r.p[j]
		}
	}
	if sum == 0 {
		return
	}
	for j := range r.p {
		r.p[j] /= sum
	}
}

// topSets are the sets of a query's k keys with the highest probabilities, for the values
// of k in use.
type topSets struct {
	k    []int
	bits [][]uint32
}

func (t *topSets) reset() { t.k = t.k[:0] }

// of returns the bits of the k highest of scores, smaller index first among
// equals.
func (t *topSets) of(scores []float32, k int) []uint32 {
	for i, have := range t.k {
		if have == k {
			return t.bits[i]
		}
	}
	at := len(t.k)
	if t.k = append(t.k, k); at == len(t.bits) {
		t.bits = append(t.bits, make([]uint32, kernel.Words(len(scores))))
	}
	kernel.TopK(t.bits[at], scores, k)
	return t.bits[at]
}
