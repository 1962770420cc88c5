package pulsecol

import "github.com/pulsecol/pulsecol/internal/exec"

// Observer looks into a generation while it runs. Observe is called once by every
// attention layer in every step, in the order the layers run. The machine waits
// for it; a panic in it is an error of the step, which may then be run again.
// Machines with one observer that run at the same time call it at the same time.
type Observer interface {
	Observe(Observation)
}

// Observation is what one attention layer works on in one denoising step. Its slices are
// those of the computation itself: they are valid during the call, and must not be written
// to.
type Observation struct {
	Layer       int // as in Controller.Layer
	Step, Total int // the step in progress, from 1, and how many the generation has
	Mode        Mode

	Batch   int
	Heads   int // of queries; query head h reads key head h/(Heads/KVHeads)
	KVHeads int
	Len     int // tokens of the sequence
	HeadDim int

	Q       []float32    // queries, rotated: [Batch, Heads, Len, HeadDim]
	K       []float32    // keys, rotated: [Batch, KVHeads, Len, HeadDim]
	Valid   []float32    // padding mask [Batch, Len], 0 for padding; nil = no padding
	Scale   float64      // of q·k
	Columns *ColumnTable // of the layer, after a refresh the new one; nil while there is none
}

// observe has the config's observer called by layer i, if there is one.
func (c *Controller) observe(i int, s *exec.State) {
	if c.cfg.Observer == nil {
		return
	}
	s.Observe(func(o exec.Observation) {
		c.cfg.Observer.Observe(Observation{
			Layer: i, Step: c.done + 1, Total: c.total, Mode: o.Mode,
			Batch: o.Batch, Heads: o.Heads, KVHeads: o.KVHeads, Len: o.Len, HeadDim: o.HeadDim,
			Q: o.Q, K: o.K, Valid: o.Valid, Scale: o.Scale, Columns: (*ColumnTable)(o.Columns),
		})
	})
}
