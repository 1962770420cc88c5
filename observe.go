package pulsecol

import "github.com/pulsecol/pulsecol/internal/exec"

// Observer inspects a generation while it runs. Every attention layer calls Observe once
// in every step, in the order in which the layers run, and the machine waits for it. A panic
// in Observe is an error of the step, which may then be run again. Machines that share an
// observer and run at the same time call it concurrently.
type Observer interface {
	Observe(Observation)
}

// Observation has the inputs and columns of one attention layer in one denoising step. Its
// slices belong to the computation: they are valid during the call and must not be written
// to.
type Observation struct {
	Layer       int // as in Controller.Layer
	Step, Total int // the step in progress, from 1, and how many the generation has, 0 if it is endless
	Mode        Mode
	Kind        PassKind

	Batch   int
	Heads   int // of queries; query head h reads key head h/(Heads/KVHeads)
	KVHeads int
	Len     int // tokens of the sequence
	First   int // position of the first query
	Rows    int // queries: Len, or with a Cache those that the step computes
	HeadDim int

	Q       []float32    // queries, rotated: [Batch, Heads, Rows, HeadDim]
	K       []float32    // keys, rotated: [Batch, KVHeads, Len, HeadDim]
	Valid   []float32    // padding mask [Batch, Len], 0 for padding; nil = no padding
	Scale   float64      // of q·k
	Columns *ColumnTable // of the layer, after a refresh the new one; nil while there is none

	Block        Block         // that is active, with a Cache
	BlockColumns *BlockColumns // of its active rows, from the step that selects them on; nil before, and without a Cache
}

// observe makes layer i call the config's observer, if there is one.
func (c *Controller) observe(i int, s *exec.State) {
	if c.cfg.Observer == nil {
		return
	}
	s.Observe(func(o exec.Observation) {
		c.cfg.Observer.Observe(Observation{
			Layer: i, Step: c.done + 1, Total: max(0, c.total), Mode: o.Mode, Kind: c.step.Pass().Kind,
			Batch: o.Batch, Heads: o.Heads, KVHeads: o.KVHeads, Len: o.Len, First: o.First, Rows: o.Rows, HeadDim: o.HeadDim,
			Q: o.Q, K: o.K, Valid: o.Valid, Scale: o.Scale, Columns: (*ColumnTable)(o.Columns),
			Block: c.block, BlockColumns: (*BlockColumns)(o.BlockColumns),
		})
	})
}
