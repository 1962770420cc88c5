package pulsecol

import "github.com/pulsecol/pulsecol/op"

// Observer looks into a generation while it runs. Observe is called once by every
// attention layer in every step, in the order the layers run. The machine waits
// for it; a panic in it is an error of the step, which may then be run again.
// Machines with one observer that run side by side call it side by side.
type Observer interface {
	Observe(Observation)
}

// Observation is what one attention layer works on in one denoising step. Slices
// and columns are live: valid during the call, and not to be written to.
type Observation struct {
	Layer       int // as in Controller.Layer
	Step, Total int // the step in progress, from 1, and how many the generation has
	op.Observation
}

// Table returns the layer's column table, in a refresh the new one; nil while
// there is none. It is live as the rest of the observation is; Controller.Columns
// copies.
func (o *Observation) Table() *ColumnTable {
	if o.Columns == nil {
		return nil
	}
	return &ColumnTable{*o.Columns}
}

// observe has the config's observer called by layer i, if there is one.
func (c *Controller) observe(i int, s *op.State) {
	if c.cfg.Observer != nil {
		s.Observe(func(o op.Observation) {
			c.cfg.Observer.Observe(Observation{Layer: i, Step: c.done + 1, Total: c.total, Observation: o})
		})
	}
}
