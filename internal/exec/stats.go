package exec

// LayerStats counts what one attention layer did since its State was made. Where the
// table is on a device that fails to return its counts, Density and Churn are those of
// the latest refresh whose counts it returned.
type LayerStats struct {
	Refreshes int
	Density   float64        // share of query-key pairs the table keeps; 0 without a table
	Churn     float64        // share of kept pairs that the last refresh replaced; 0 at the first
	Bytes     int64          // held by the table
	Cache     int64          // held by keys, values and the columns of a block
	Seconds   [modes]float64 // in the layer's operators, by mode
}

// DeviceState is the state of a layer's operators on a GPU: the column table between steps,
// and within a step the data that one passes to the next.
type DeviceState interface {
	// Columns copies the column table to the host.
	Columns() (ColumnBits, error)
	// BlockBits copies the columns of a block, so many words, to the host, without the
	// block's own keys.
	BlockBits(words int) ([]uint32, error)
	// DensityAndChurn returns the counts of the latest CommitRefresh: the share of query-key
	// pairs that the column table keeps, and of these the share that the previous table did
	// not keep.
	DensityAndChurn() (density, churn float64, err error)
	// Drop drops the data of a failed step.
	Drop()
	// Free releases everything.
	Free() error
}

// Device returns the argument of the latest SetDevice, nil at first.
func (s *State) Device() DeviceState { return s.device }

// SetDevice gives the state a device's half of the layer, which holds a column table of
// the given size, or nil for none. The table is not built yet. The previous half must
// still be able to return its DensityAndChurn.
func (s *State) SetDevice(d DeviceState, bytes int64) {
	s.count()
	s.uncounted = false
	s.device, s.built = d, false
	s.stats.Bytes = bytes
}

// BeginRefresh starts a change of the column table and of a device's counts. Until
// CommitRefresh there is no table.
func (s *State) BeginRefresh() { s.built, s.uncounted = false, false }

// CommitRefresh records a new column table on a device, whose DensityAndChurn are those of
// this table from now on. replaced says that there was a table before.
func (s *State) CommitRefresh(replaced bool) {
	s.built = true
	s.stats.Refreshes++
	s.uncounted, s.replaced = true, replaced
}

// Stats returns the counts so far. After a refresh on a device it reads that device's.
func (s *State) Stats() LayerStats {
	s.count()
	s.stats.Cache = s.CacheBytes()
	return s.stats
}

// count completes the stats with the counts of the device.
func (s *State) count() {
	if !s.uncounted {
		return
	}
	density, churn, err := s.device.DensityAndChurn()
	if err != nil {
		return
	}
	if !s.replaced {
		churn = 0
	}
	s.stats.Density, s.stats.Churn = density, churn
	s.uncounted = false
}
