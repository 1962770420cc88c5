package exec

import (
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/tensor"
)

// Specs are the parameters of the operators of package op, defaults filled in.

// Attention has the parameters that the operators of an attention layer share.
type Attention struct {
	Group     int
	Selection Selection
	Scale     float64 // of q·k; 0 = 1/sqrt(head dimension)
	Masked    bool    // the last input is a padding mask
	Rows      bool    // ColumnSparseAttn's fifth input lists the rows whose results are read
	Precision kernel.Precision
	Cached    int      // tokens of the sequence whose keys and values the layer keeps; 0 = none
	State     *State   // nil = the operators are pure functions
	Handoff   *Handoff // of the three operators of one attention; nil without a State
}

// Keep is the number of n keys, or blocks of keys, that a group keeps.
func (a *Attention) Keep(n int) int {
	sel := a.State.Selected(a.Selection)
	if a.Cached > 0 {
		return sel.KeepDecimal(n)
	}
	return sel.Keep(n)
}

// Handoff is passed between the operators of one attention within a refresh: the output of
// full attention, which ScoreCollect computes and ColumnSparseAttn returns, in the memory
// that the plan has for the latter's result.
type Handoff struct {
	Attend Operator  // the ColumnSparseAttn
	Output []float32 // nil outside a refresh
}

type (
	// KVCache is the Spec of op.NewKVCache.
	KVCache struct {
		State *State
		Half  Half
		Len   int // tokens
	}

	// ScoreCollect is the Spec of op.NewScoreCollect.
	ScoreCollect struct{ Attention }

	// GroupTopK is the Spec of op.NewGroupTopK.
	GroupTopK struct {
		Attention
		Len int // tokens
	}

	// ColumnSparseAttn is the Spec of op.NewColumnSparseAttn.
	ColumnSparseAttn struct{ Attention }

	// DenseAttn is the Spec of op.NewDenseAttn.
	DenseAttn struct{ Attention }

	// Embed is the Spec of op.NewEmbed.
	Embed struct{ Table kernel.Matrix }

	// Linear is the Spec of op.NewLinear and op.NewAddLinear.
	Linear struct {
		Parts    []kernel.Projection
		Residual bool // a second input is added
	}

	// SwiGLU is the Spec of op.NewSwiGLU.
	SwiGLU struct{ Gate, Up kernel.Projection }

	// RMSNorm is the Spec of op.NewRMSNorm.
	RMSNorm struct {
		Weight []float32
		Eps    float32
	}

	// RoPE is the Spec of op.NewRoPE.
	RoPE struct {
		Heads kernel.Heads
		Theta float64
	}

	// SplitHeads is the Spec of op.NewSplitHeads.
	SplitHeads struct{ Heads kernel.Heads }

	// MergeHeads is the Spec of op.NewMergeHeads.
	MergeHeads struct{}

	// GatherRows is the Spec of op.NewGatherRows.
	GatherRows struct{}

	// LMHead is the Spec of op.NewLMHead.
	LMHead struct{ Weight kernel.Matrix } // [vocabulary, features]

	// Add is the Spec of op.NewAdd.
	Add struct{}
)

// TableBytes is the size of the column table that a result of shape s stands for.
func (g GroupTopK) TableBytes(s tensor.Shape) int64 {
	switch g.Selection.Kind {
	case SelectStatic: // one row for all batch rows and heads
		return 4 * int64(s[2]) * int64(s[3])
	case SelectFixed: // the user's
		return 0
	}
	return 4 * int64(s.TotalSize())
}
