package exec

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Selection determines which keys each query group keeps.
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

// SelectionKind is the unit and the rule of a Selection.
type SelectionKind uint8

const (
	SelectColumns SelectionKind = iota // single keys with the highest scores (PulseCol)
	SelectBlocks                       // blocks of keys with the highest summed scores
	SelectSparseD                      // blocks of keys, prompt and generation ranked separately
	SelectStatic                       // by position alone
	SelectFixed                        // the columns that State.Give has set
)

func (k SelectionKind) String() string {
	switch k {
	case SelectColumns:
		return "columns"
	case SelectBlocks:
		return "blocks"
	case SelectSparseD:
		return "sparsed"
	case SelectStatic:
		return "static"
	case SelectFixed:
		return "fixed"
	}
	return fmt.Sprintf("SelectionKind(%d)", uint8(k))
}

// Unchanging reports whether the keys are the same in every step: there are no scores
// and no refreshes.
func (s Selection) Unchanging() bool { return s.Kind == SelectStatic || s.Kind == SelectFixed }

// Validate returns an error that wraps ErrValue for a field out of its range.
func (s Selection) Validate() error {
	switch {
	case s.Kind > SelectFixed:
		return fmt.Errorf("%w: selection %v is unknown", ErrValue, s.Kind)
	case !(s.Sparsity >= 0 && s.Sparsity < 1):
		return fmt.Errorf("%w: sparsity %v, want 0 <= sparsity < 1", ErrValue, s.Sparsity)
	case (s.Kind == SelectBlocks || s.Kind == SelectSparseD) && s.Block < 1:
		return fmt.Errorf("%w: block of %d keys, want at least 1", ErrValue, s.Block)
	case s.Generation < 0:
		return fmt.Errorf("%w: %d generated tokens, want at least 0", ErrValue, s.Generation)
	case !(s.ScoreScale >= 0) || math.IsInf(s.ScoreScale, 0):
		return fmt.Errorf("%w: score scale %v, want a finite number >= 0", ErrValue, s.ScoreScale)
	case s.Reach < 0:
		return fmt.Errorf("%w: reach %d, want at least 0", ErrValue, s.Reach)
	case !(s.SinkFraction >= 0 && s.SinkFraction <= 1):
		return fmt.Errorf("%w: sink fraction %v, want 0 <= fraction <= 1", ErrValue, s.SinkFraction)
	}
	return nil
}

// Params lists the fields for an operator's hash.
func (s Selection) Params() []any {
	return []any{s.Kind.String(), s.Sparsity, s.Block, s.Generation, s.ScoreScale, s.Reach, s.SinkFraction}
}

// Keep is max(1, floor((1-sparsity)*n)) in float64, as in the paper's top-k.
// (1-0.8)*200 is 39.99… in float64, so 39 keys stay; the reference outputs
// round the same way.
func (s Selection) Keep(n int) int {
	return max(1, int(math.Floor((1-s.Sparsity)*float64(n))))
}

// KeepDecimal is Keep for the sparsity as it was written: of 200 keys at 0.8 it is 40. A
// cache of keys and values takes it.
func (s Selection) KeepDecimal(n int) int {
	return max(1, int(math.Floor((1-s.Sparsity)*float64(n)+1e-9)))
}

// Quota is how many of n blocks one of SparseD's two passes picks:
// max(1, floor(n*ratio)+1) with ratio = 1-sparsity, at most n. The published code
// is given the ratio itself; the small term undoes the rounding of 1-sparsity.
func (s Selection) Quota(n int) int {
	return min(n, max(1, int(math.Floor((1-s.Sparsity)*float64(n)+1e-9))+1))
}

// GenerationBlock is SparseD's first key block that lies fully inside the
// generated tokens, or the last block of all.
func (s Selection) GenerationBlock(n int) int {
	blocks := kernel.Groups(n, s.Block)
	return min(max(0, (n-s.Generation+s.Block-1)/s.Block), blocks-1)
}

// ScoreWidth is the length of one group's row of scores: a score for each key,
// and for SparseD a second one for each key of the generation part, from a
// softmax over that part alone.
func (s Selection) ScoreWidth(n int) int {
	if s.Kind == SelectSparseD {
		return n + n - s.GenerationBlock(n)*s.Block
	}
	return n
}

// Sinks is the number of keys that a static pattern always keeps.
func (s Selection) Sinks(n int) int { return int(math.Ceil(s.SinkFraction*float64(n) - 1e-9)) }

// fillStatic sets, for the groups of rows queries from position first on, the bits of
// every key that at least one query of its group keeps; the kernel then masks keys for
// each query.
func (s Selection) fillStatic(words []uint32, first, rows, n, group int) {
	w, sinks := kernel.Words(n), s.Sinks(n)
	group = min(group, rows)
	clear(words)
	for u := range kernel.Groups(rows, group) {
		row := words[u*w : (u+1)*w]
		first, last := first+u*group, first+min((u+1)*group, rows)-1
		for j := range n {
			if j < sinks || (j >= first-s.Reach && j <= last+s.Reach) {
				columns.Set(row, j)
			}
		}
	}
}

// staticDensity is the share of query-key pairs that a static pattern keeps.
func (s Selection) staticDensity(n int) float64 {
	sinks, kept := s.Sinks(n), 0
	for i := range n {
		first, last := max(0, i-s.Reach), min(n-1, i+s.Reach)
		kept += last - first + 1
		kept += min(sinks, first) + max(0, sinks-last-1) // the sinks left and right of the window
	}
	return float64(kept) / (float64(n) * float64(n))
}
