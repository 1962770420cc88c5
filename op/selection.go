package op

import "github.com/pulsecol/pulsecol/internal/exec"

// Selection determines which keys each query group keeps. The zero value keeps all.
type Selection struct {
	Kind SelectionKind

	// Sparsity is the share of keys dropped, in [0, 1). Unused by SelectStatic and
	// SelectFixed.
	Sparsity float64

	// Block is the number of consecutive keys that are kept or dropped together
	// (SelectBlocks, SelectSparseD).
	Block int

	// Generation is the number of tokens being generated, at the end of the
	// sequence; SparseD ranks their keys separately from the prompt's.
	Generation int

	// ScoreScale multiplies q·k where scores are collected; 0 means the attention's own
	// scale. In SparseD's published code for LLaDA the two differ.
	ScoreScale float64

	// Reach and SinkFraction define SelectStatic: query i keeps key j if
	// |i-j| <= Reach or j < ceil(SinkFraction*N).
	Reach        int
	SinkFraction float64
}

// SelectionKind is the unit and the rule of a Selection: SelectColumns, SelectBlocks,
// SelectSparseD, SelectStatic or SelectFixed.
type SelectionKind = exec.SelectionKind

// The kinds of selections.
const (
	SelectColumns = exec.SelectColumns // single keys with the highest scores (PulseCol)
	SelectBlocks  = exec.SelectBlocks  // blocks of keys with the highest summed scores
	SelectSparseD = exec.SelectSparseD // blocks of keys, prompt and generation ranked separately
	SelectStatic  = exec.SelectStatic  // by position alone; under a controller only
	SelectFixed   = exec.SelectFixed   // columns that the user gives; under a controller only
)
