package exec

import "github.com/pulsecol/pulsecol/internal/kernel"

// Observation has the inputs and columns of one layer's attention in one step. Its slices
// belong to the computation: they are valid during the observer's call and must not be
// written to.
type Observation struct {
	Mode  Mode
	Batch int
	Heads int // of queries; query head h reads key head h/(Heads/KVHeads)

	KVHeads int
	Len     int // tokens of the sequence
	First   int // position of the first query
	Rows    int // queries: Len, or with a cache those that the step computes
	HeadDim int

	Q       []float32   // queries, rotated: [Batch, Heads, Rows, HeadDim]
	K       []float32   // keys, rotated: [Batch, KVHeads, Len, HeadDim]
	Valid   []float32   // padding mask [Batch, Len], 0 for padding; nil = no padding
	Scale   float64     // of q·k
	Columns *ColumnBits // the layer's column table, after a refresh the new one; nil while there is none

	BlockColumns *BlockColumns // of the active block; see State.BlockColumns
}

// Observe sets a function that is called in every step of the layer, in any mode, by the
// goroutine that runs the machine; nil removes it. The time of f is not part of
// LayerStats.Seconds. A panic of f is an error of the step.
func (s *State) Observe(f func(Observation)) { s.observer = f }

// Observed reports a step of attention on a to the observer, if there is one.
func (s *State) Observed(m Mode, a *kernel.Operands) {
	if s.observer == nil {
		return
	}
	o := Observation{
		Mode: m, Batch: a.Batch, Heads: a.Heads, KVHeads: a.KVHeads, Len: a.Len, First: a.First, Rows: a.Queries(), HeadDim: a.HeadDim,
		Q: a.Q, K: a.K, Valid: a.Valid, Scale: float64(a.Scale),
	}
	if s.BuiltFor(a.Batch, a.Heads, a.Len) {
		o.Columns = &ColumnBits{s.batch, s.heads, s.n, s.table.Group, s.table.Bits}
	}
	o.BlockColumns = s.BlockColumns()
	s.observer(o)
}
