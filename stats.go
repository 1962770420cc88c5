package pulsecol

// Stats counts steps since Start, and work per layer since the controller was made.
type Stats struct {
	Steps        int   // done
	Dense        int   // of them
	Refreshes    int   // of them
	Reuses       int   // of them
	RefreshSteps []int // 1-based

	// Steps with a cache, by kind; 0 without one.
	Prefills, Commits, BlockSteps int

	Layers []LayerStats
}

// LayerStats counts what one attention layer did since its controller was made. Where the
// table is on a GPU that fails to return its counts, Density and Churn are those of the
// latest refresh whose counts it returned.
type LayerStats struct {
	Refreshes int
	Density   float64            // share of query-key pairs the column table keeps; 0 without a table
	Churn     float64            // share of kept pairs that the last refresh replaced; 0 at the first
	Bytes     int64              // held by the column table
	Cache     int64              // held by keys, values and the columns of a block
	Seconds   [Reuse + 1]float64 // in the layer's operators, by Mode
}

// Stats returns the counts so far.
func (c *Controller) Stats() Stats {
	s := Stats{
		Steps: c.done, Dense: c.modes[Dense], Refreshes: c.modes[Refresh], Reuses: c.modes[Reuse],
		RefreshSteps: append([]int(nil), c.refreshSteps...),
		Prefills:     c.passes[Prefill], Commits: c.passes[Commit], BlockSteps: c.passes[BlockStep],
	}
	for _, l := range c.layers {
		s.Layers = append(s.Layers, LayerStats(l.state.Stats()))
	}
	return s
}
