package pulsecol

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/internal/exec"
)

// Pattern is the shape of the query-key pairs that sparse attention keeps. Only this
// package can implement it.
type Pattern interface {
	fmt.Stringer
	// selection returns what the operators need, for the config's sparsity and
	// group size, and the group size in force.
	selection(sparsity float64, group int) (exec.Selection, int)
}

// Columns is PulseCol's pattern: single keys. Each query group of each head
// keeps the max(1, ⌊(1-Sparsity)·N⌋) keys with the highest scores.
type Columns struct{}

// Blocks keeps whole blocks of consecutive keys: each query group keeps the
// max(1, ⌊(1-Sparsity)·B⌋) of the B blocks with the highest summed scores. With
// a periodic schedule this is the paper's ablation BS+PR.
type Blocks struct {
	Size int // keys in a block; 0 = 32
}

// SlidingWindow keeps the keys around each query: |i-j| <= Width/2. It is fixed
// by position: no scores, no refresh, the same in every step.
type SlidingWindow struct {
	Width int // 0 = 256
}

// Streaming is SlidingWindow plus the first keys of the sequence
// (StreamingLLM, bidirectional): |i-j| <= Width/2 or j < ⌈SinkFraction·N⌉, with N
// the length of prompt and generation together.
type Streaming struct {
	Width        int     // 0 = 256
	SinkFraction float64 // 0 = 0.1
}

// SparseD is the pattern of SparseD: for each query block, the key blocks with
// the most attention, those of the prompt and those of the generated part ranked
// separately. In each ranking max(1, ⌊(1-Sparsity)·B⌋+1) of B blocks are picked; picks
// of the first ranking that fall into the generated part are dropped. Use it with
// the Skip schedule. Padding masks, which the published code ignores, are
// respected.
type SparseD struct {
	BlockSize  int // queries and keys in a block; 0 = 128
	Generation int // tokens generated, at the end of the sequence

	// ScoreScale multiplies q·k where blocks are ranked; 0 = the attention's own
	// scale. The published code for LLaDA ranks with 1/sqrt(number of heads).
	ScoreScale float64
}

func (Columns) String() string         { return "columns" }
func (p Blocks) String() string        { return fmt.Sprintf("blocks of %d", orDefault(p.Size, 32)) }
func (p SlidingWindow) String() string { return fmt.Sprintf("window of %d", orDefault(p.Width, 256)) }

func (p Streaming) String() string {
	return fmt.Sprintf("window of %d and first %g", orDefault(p.Width, 256), orDefault(p.SinkFraction, 0.1))
}

func (p SparseD) String() string {
	return fmt.Sprintf("sparsed blocks of %d", orDefault(p.BlockSize, 128))
}

func (Columns) selection(sparsity float64, group int) (exec.Selection, int) {
	return exec.Selection{Kind: exec.SelectColumns, Sparsity: sparsity}, group
}

func (p Blocks) selection(sparsity float64, group int) (exec.Selection, int) {
	return exec.Selection{Kind: exec.SelectBlocks, Sparsity: sparsity, Block: orDefault(p.Size, 32)}, group
}

func (p SlidingWindow) selection(_ float64, group int) (exec.Selection, int) {
	return exec.Selection{Kind: exec.SelectStatic, Reach: orDefault(p.Width, 256) / 2}, group
}

func (p Streaming) selection(_ float64, group int) (exec.Selection, int) {
	return exec.Selection{Kind: exec.SelectStatic, Reach: orDefault(p.Width, 256) / 2, SinkFraction: orDefault(p.SinkFraction, 0.1)}, group
}

func (p SparseD) selection(sparsity float64, _ int) (exec.Selection, int) {
	block := orDefault(p.BlockSize, 128)
	return exec.Selection{Kind: exec.SelectSparseD, Sparsity: sparsity, Block: block, Generation: p.Generation, ScoreScale: p.ScoreScale}, block
}

func (p Blocks) validate() error { return nonNegative("Size", p.Size) }

func (p SlidingWindow) validate() error { return nonNegative("Width", p.Width) }

func (p Streaming) validate() error {
	if !(p.SinkFraction >= 0 && p.SinkFraction <= 1) {
		return fmt.Errorf("SinkFraction is %v, want 0 <= SinkFraction <= 1", p.SinkFraction)
	}
	return nonNegative("Width", p.Width)
}

func (p SparseD) validate() error {
	if !(p.ScoreScale >= 0) || math.IsInf(p.ScoreScale, 0) {
		return fmt.Errorf("ScoreScale is %v, want a finite number above 0 (or 0 for the attention's scale)", p.ScoreScale)
	}
	if err := nonNegative("Generation", p.Generation); err != nil {
		return err
	}
	return nonNegative("BlockSize", p.BlockSize)
}

func nonNegative(name string, v int) error {
	if v < 0 {
		return fmt.Errorf("%s is %d, want at least 1 (or 0 for the default)", name, v)
	}
	return nil
}

// orDefault returns v, or def if v is zero.
func orDefault[T int | float64](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}
