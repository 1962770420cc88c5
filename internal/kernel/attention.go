package kernel

import (
	"fmt"
	"math"
	"math/bits"
)

// Shape is the shape of one attention call: queries and outputs are
// [Batch, Heads, M, HeadDim], keys and values [Batch, KVHeads, Len, HeadDim].
// Query head h reads key/value head h / (Heads/KVHeads) (grouped-query attention).
type Shape struct {
	Batch, Heads, KVHeads, Len, HeadDim int

	Rows int // of queries, M, at most Len; 0 = Len
}

// Queries is M, the number of queries of a head.
func (s Shape) Queries() int {
	if s.Rows == 0 {
		return s.Len
	}
	return s.Rows
}

// Validate reports the first size that is not positive, a number of heads that
// is not a multiple of the number of key/value heads, or a tensor too large to
// address.
func (s Shape) Validate() error {
	for _, d := range []struct {
		name string
		size int
	}{{"batch", s.Batch}, {"heads", s.Heads}, {"kv heads", s.KVHeads}, {"length", s.Len}, {"head dim", s.HeadDim}} {
		if d.size <= 0 {
			return fmt.Errorf("kernel: attention: %s is %d, must be positive", d.name, d.size)
		}
	}
	if s.Rows < 0 || s.Rows > s.Len {
		return fmt.Errorf("kernel: attention: %d rows of queries, want 1 to %d as there are keys, or 0 for all", s.Rows, s.Len)
	}
	if s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("kernel: attention: %d heads are not a multiple of %d kv heads", s.Heads, s.KVHeads)
	}
	if s.Len > math.MaxInt32 {
		return fmt.Errorf("kernel: attention: length %d exceeds %d", s.Len, math.MaxInt32)
	}
	if !fits(4, s.Batch, s.Heads, s.Len, s.HeadDim) {
		return fmt.Errorf("kernel: attention: [%d %d %d %d] float32 elements overflow an int", s.Batch, s.Heads, s.Len, s.HeadDim)
	}
	return nil
}

// fits reports whether the product of non-negative sizes is representable as an int.
func fits(sizes ...int) bool {
	p := uint(1)
	for _, n := range sizes {
		hi, lo := bits.Mul(p, uint(n))
		if hi != 0 || lo > math.MaxInt {
			return false
		}
		p = lo
	}
	return true
}

// allQueries is the number of queries of all heads.
func (s Shape) allQueries() int { return s.Batch * s.Heads * s.Queries() }

// Groups is the number of query groups of n queries: ceil(n/group). The last
// group may be short; a group larger than n gives one.
func Groups(n, group int) int {
	if group >= n {
		return 1
	}
	return (n + group - 1) / group
}

// Words is the number of uint32 words of a bitmap over n keys: ceil(n/32). Key
// j is bit j%32 of word j/32.
func Words(n int) int { return (n + 31) / 32 }

// Operands are the inputs of attention.
//
// Padding: a padded key is never attended to. A padded query still attends to
// the valid keys; its output has no meaning. A batch row without any valid key
// gives zeros and a log-sum-exp of -Inf.
type Operands struct {
	Shape
	Q     []float32 // [B, H, M, D]
	K, V  []float32 // [B, KVHeads, N, D]
	Valid []float32 // [B, N], 0 marks a padding position; nil = no padding
	Scale float32   // a score is Scale * q.k
	First int       // position of the first query in the sequence; 0 unless there are fewer queries than keys

	Precision Precision // of q.k and the product with v

	// Dense, ColumnSparse and DenseScores compute the queries [From, To) of every head,
	// which count from First; the results of others do not change. 0, 0 = all.
	From, To int
}

// check panics unless the slices have the lengths of the shape.
func (a *Operands) check(fn string) {
	if err := a.Validate(); err != nil {
		panic(fmt.Sprintf("%v (in %s)", err, fn))
	}
	checkLen(fn, "Q", len(a.Q), a.allQueries()*a.HeadDim)
	checkLen(fn, "K", len(a.K), a.Batch*a.KVHeads*a.Len*a.HeadDim)
	checkLen(fn, "V", len(a.V), a.Batch*a.KVHeads*a.Len*a.HeadDim)
	if a.Valid != nil {
		checkLen(fn, "Valid", len(a.Valid), a.Batch*a.Len)
	}
	if a.First < 0 || a.First > a.Len-a.Queries() {
		panic(fmt.Sprintf("kernel: %s: %d queries from position %d on, must be within [0, %d)", fn, a.Queries(), a.First, a.Len))
	}
	if from, to := a.queryRange(); from < 0 || from >= to || to > a.Queries() {
		panic(fmt.Sprintf("kernel: %s: queries [%d, %d), must be some within [0, %d)", fn, from, to, a.Queries()))
	}
}

// queryRange is the range of queries to compute.
func (a *Operands) queryRange() (from, to int) {
	if a.From == 0 && a.To == 0 {
		return 0, a.Queries()
	}
	return a.From, a.To
}

func checkLen(fn, name string, got, want int) {
	if got != want {
		panic(fmt.Sprintf("kernel: %s: len(%s) is %d, want %d", fn, name, got, want))
	}
}

// checkOptional is checkLen for a slice that may be nil.
func checkOptional(fn, name string, s []float32, want int) {
	if s != nil {
		checkLen(fn, name, len(s), want)
	}
}

// valid is the padding mask of one batch row, nil if there is none.
func (a *Operands) valid(batch int) []float32 {
	if a.Valid == nil {
		return nil
	}
	return a.Valid[batch*a.Len:][:a.Len]
}

// takesPart reports whether a query of a batch row is no padding.
func (a *Operands) takesPart(batch, query int) bool {
	return a.Valid == nil || a.Valid[batch*a.Len+a.First+query] != 0
}

// head returns the queries [M, D], keys and values [N, D] of one query head.
// index counts (batch, head) pairs.
func (a *Operands) head(index int) (q, k, v []float32) {
	rows, size := a.Queries()*a.HeadDim, a.Len*a.HeadDim
	kv := a.kvHead(index)
	return a.Q[index*rows:][:rows], a.K[kv*size:][:size], a.V[kv*size:][:size]
}

// kvHead maps a (batch, head) pair to the (batch, kv head) pair it reads.
func (a *Operands) kvHead(index int) int {
	return index / (a.Heads / a.KVHeads)
}

// Table holds the keys that each query group reads.
type Table struct {
	Bits  []uint32 // [B or 1, H or 1, Groups(M, Group), Words(N)]
	Group int      // queries per group

	SharedBatch bool // one batch row of Bits serves all
	SharedHeads bool // one head of Bits serves all

	// Static patterns are exact per query, finer than a group's bitmap: with
	// Reach >= 0, query i reads key j only if its bit is set and
	// |i-j| <= Reach or j < Sinks. Reach < 0 means the bitmap alone.
	Reach, Sinks int
}

// check panics unless the table has the size of the shape.
func (t *Table) check(fn string, s Shape) {
	if t.Group <= 0 {
		panic(fmt.Sprintf("kernel: %s: table group is %d, must be positive", fn, t.Group))
	}
	rows := Groups(s.Queries(), t.Group)
	if !t.SharedBatch {
		rows *= s.Batch
	}
	if !t.SharedHeads {
		rows *= s.Heads
	}
	checkLen(fn, "Table.Bits", len(t.Bits), rows*Words(s.Len))
}

// row is the bitmap of one query group of one (batch, head) pair.
func (t *Table) row(s Shape, index, group int) []uint32 {
	batch, head := index/s.Heads, index%s.Heads
	row, heads := 0, s.Heads
	if t.SharedHeads {
		head, heads = 0, 1
	}
	if !t.SharedBatch {
		row = batch * heads
	}
	words := Words(s.Len)
	return t.Bits[((row+head)*Groups(s.Queries(), t.Group)+group)*words:][:words]
}
