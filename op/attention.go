package op

import (
	"fmt"
	"math"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/tensor"
)

// AttentionParams are what the operators of one attention layer share. The zero
// value of a field is its default.
type AttentionParams struct {
	Group     int       // queries that share one set of keys; 0 = DefaultGroup
	Selection Selection // which keys they keep
	Scale     float64   // of q·k; 0 = 1/sqrt(head dimension)
	Masked    bool      // the last input is a padding mask [B,N] float32, 0 for padding
	Rows      bool      // ColumnSparseAttn's fifth input is rows [R] int32, as GatherRows takes them
	Precision Precision // of q·k and the product with v, not of their gradients

	// Cached is the number of tokens of a sequence of which q has some: k and v are those of
	// NewKVCache. It needs a controller's layer. 0 = q, k and v have the same tokens.
	Cached int

	state   *exec.State   // of a controller's layer; nil = the operators are pure functions
	handoff *exec.Handoff // of one attention of the layer
}

// DefaultGroup is the group size with the best accuracy in the paper's sweep.
const DefaultGroup = 32

// In returns p for one attention of a controller's layer, whose operators follow its steps
// and share s. Package pulsecol calls it.
func (p AttentionParams) In(s *exec.State) AttentionParams {
	p.state, p.handoff = s, new(exec.Handoff)
	return p
}

// spec returns p with its defaults filled in, or what is wrong with it.
func (p AttentionParams) spec(kind, path string) (exec.Attention, error) {
	a := exec.Attention{
		Group: p.Group, Selection: exec.Selection(p.Selection), Scale: p.Scale,
		Masked: p.Masked, Rows: p.Rows, Precision: p.Precision, Cached: p.Cached, State: p.state, Handoff: p.handoff,
	}
	if a.Group == 0 {
		a.Group = DefaultGroup
	}
	err := a.Selection.Validate()
	switch wrong := a.Precision.Validate(); {
	case err != nil:
	case wrong != nil:
		err = fmt.Errorf("%w: %v", ErrValue, wrong)
	case a.Group < 0:
		err = fmt.Errorf("%w: group of %d queries, want at least 1", ErrValue, a.Group)
	case !(a.Scale >= 0) || math.IsInf(a.Scale, 0):
		err = fmt.Errorf("%w: scale %v, want a finite number >= 0", ErrValue, a.Scale)
	case a.Cached < 0:
		err = fmt.Errorf("%w: Cached is %d tokens, want at least 0", ErrValue, a.Cached)
	case a.Cached > 0 && a.State == nil:
		err = fmt.Errorf("%w: cached keys and values need a controller", ErrValue)
	case a.Cached > 0 && (a.Selection.Kind == SelectSparseD || a.Selection.Kind == SelectFixed):
		err = fmt.Errorf("%w: a selection %v has no columns for the rows of a block, want columns, blocks or static", ErrValue, a.Selection.Kind)
	case a.Selection.Kind == SelectSparseD && a.Group != a.Selection.Block:
		err = fmt.Errorf("%w: SparseD's group of %d queries must be its block of %d keys", ErrValue, a.Group, a.Selection.Block)
	case a.Selection.Kind == SelectStatic && a.State == nil:
		err = fmt.Errorf("%w: a static selection needs a controller", ErrValue)
	case a.Selection.Kind == SelectFixed && (a.State == nil || a.State.Given() == nil):
		err = fmt.Errorf("%w: a fixed selection needs a controller with columns that are given", ErrValue)
	default:
		return a, nil
	}
	return a, fmt.Errorf("op: %s %q: %w", kind, path, err)
}

// checkGiven returns an error if the user's columns do not fit attention of the shape s.
func checkGiven(o fmt.Stringer, p *exec.Attention, s kernel.Shape) error {
	if p.Selection.Kind != SelectFixed {
		return nil
	}
	if err := p.State.Given().Fits(s, p.Group, p.Masked); err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	return nil
}

// hashed lists the fields of p that an operator's hash covers.
func hashed(p *exec.Attention) []any {
	return append(p.Selection.Params(), p.Group, p.Scale, p.Masked, p.State != nil, p.Precision.String(), p.Cached)
}

// withMask appends the type of the padding mask to an operator's inputs.
func withMask(p *exec.Attention, in ...hm.Type) []hm.Type {
	if p.Masked {
		return append(in, float2)
	}
	return in
}

// attentionShape checks q [B,H,M,D], k and v [B,Hkv,N,D] and, if it is not nil, the
// padding mask [B,N]. M is N unless keys are cached, of which there are p.Cached.
func attentionShape(o fmt.Stringer, p *exec.Attention, q, k, v, mask tensor.Shape) (kernel.Shape, error) {
	s := kernel.Shape{Batch: q[0], Heads: q[1], KVHeads: k[1], Len: q[2], HeadDim: q[3]}
	if p.Cached > 0 {
		s.Len, s.Rows = p.Cached, q[2]
	}
	switch {
	case !sameShape(k, v):
		return s, fmt.Errorf("%s: %w: keys %v and values %v differ", o, ErrShape, k, v)
	case p.Cached > 0 && k[2] != p.Cached:
		return s, fmt.Errorf("%s: %w: keys %v, want %d tokens as are cached", o, ErrShape, k, p.Cached)
	case p.Cached > 0 && q[2] > p.Cached:
		return s, fmt.Errorf("%s: %w: queries %v of a sequence of %d tokens", o, ErrShape, q, p.Cached)
	case k[0] != q[0] || p.Cached == 0 && k[2] != q[2] || k[3] != q[3]:
		return s, fmt.Errorf("%s: %w: queries %v and keys %v may differ in their heads only", o, ErrShape, q, k)
	case q[1]%k[1] != 0:
		return s, fmt.Errorf("%s: %w: %d query heads are not a multiple of %d key heads", o, ErrShape, q[1], k[1])
	case mask != nil && !sameShape(mask, tensor.Shape{q[0], s.Len}):
		return s, fmt.Errorf("%s: %w: padding mask %v, want [%d %d]", o, ErrShape, mask, q[0], s.Len)
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("%s: %w: %v", o, ErrShape, err)
	}
	return s, nil
}

// operands returns the kernel's view of q, k, v and the padding mask, if any.
func operands(o fmt.Stringer, p *exec.Attention, q, k, v, mask *tensor.Dense) (kernel.Operands, error) {
	var ms tensor.Shape
	if mask != nil {
		ms = mask.Shape()
	}
	s, err := attentionShape(o, p, q.Shape(), k.Shape(), v.Shape(), ms)
	if err != nil {
		return kernel.Operands{}, err
	}
	scale := p.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(s.HeadDim))
	}
	a := kernel.Operands{Shape: s, Q: float32s(q), K: float32s(k), V: float32s(v), Scale: float32(scale), Precision: p.Precision}
	if mask != nil {
		a.Valid = float32s(mask)
	}
	if p.Cached > 0 {
		a.First = p.State.Step().Pass().First
	}
	return a, nil
}

// maskOf returns the last of an operator's inputs if it is the padding mask.
func maskOf[T any](masked bool, in []T) (mask T) {
	if masked {
		mask = in[len(in)-1]
	}
	return mask
}
