package op

import (
	"fmt"
	"math"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/tensor"
)

// AttentionParams are what the operators of one attention layer share. The zero
// value of a field is its default.
type AttentionParams struct {
	Group     int       // queries that share one set of keys; 0 = 32
	Selection Selection // which keys they keep
	Scale     float64   // of q·k; 0 = 1/sqrt(head dimension)
	Masked    bool      // takes a padding mask as last input: [B,N] float32, 0 for padding
	Rows      bool      // ColumnSparseAttn takes rows [R] int32 behind the columns: the tokens that are wanted
	Precision Precision // of q·k and the product with v, not of their gradients
	State     *State    // of a controller's layer; nil = the operators are pure functions
}

// DefaultGroup is the group size with the best accuracy in the paper's sweep.
const DefaultGroup = 32

func (p *AttentionParams) validate(kind, path string) error {
	if p.Group == 0 {
		p.Group = DefaultGroup
	}
	err := p.Selection.validate()
	switch wrong := p.Precision.Validate(); {
	case err != nil:
	case wrong != nil:
		err = fmt.Errorf("%w: %v", ErrValue, wrong)
	case p.Group < 0:
		err = fmt.Errorf("%w: group of %d queries, want at least 1", ErrValue, p.Group)
	case !(p.Scale >= 0) || math.IsInf(p.Scale, 0):
		err = fmt.Errorf("%w: scale %v, want a finite number >= 0", ErrValue, p.Scale)
	case p.Selection.Kind == SelectSparseD && p.Group != p.Selection.Block:
		err = fmt.Errorf("%w: SparseD's group of %d queries must be its block of %d keys", ErrValue, p.Group, p.Selection.Block)
	case p.Selection.Kind == SelectStatic && p.State == nil:
		err = fmt.Errorf("%w: a static selection needs a State", ErrValue)
	case p.Selection.Kind == SelectFixed && (p.State == nil || p.State.given == nil):
		err = fmt.Errorf("%w: a fixed selection needs a State with columns that are given", ErrValue)
	default:
		return nil
	}
	return fmt.Errorf("op: %s %q: %w", kind, path, err)
}

// checkGiven returns an error if the columns that are given do not fit attention of the
// shape s.
func (p *AttentionParams) checkGiven(o fmt.Stringer, s kernel.Shape) error {
	if p.Selection.Kind != SelectFixed {
		return nil
	}
	if err := p.State.given.fits(s, p.Group, p.Masked); err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	return nil
}

func (p *AttentionParams) params() []any {
	return append(p.Selection.params(), p.Group, p.Scale, p.Masked, p.State != nil, p.Precision.String())
}

// masked appends the type of the padding mask to an operator's inputs.
func (p *AttentionParams) masked(in ...hm.Type) []hm.Type {
	if p.Masked {
		return append(in, float2)
	}
	return in
}

// attentionShape checks q [B,H,N,D], k and v [B,Hkv,N,D] and, if it is not nil,
// the padding mask [B,N].
func attentionShape(o fmt.Stringer, q, k, v, mask tensor.Shape) (kernel.Shape, error) {
	s := kernel.Shape{Batch: q[0], Heads: q[1], KVHeads: k[1], Len: q[2], HeadDim: q[3]}
	switch {
	case !sameShape(k, v):
		return s, fmt.Errorf("%s: %w: keys %v and values %v differ", o, ErrShape, k, v)
	case k[0] != q[0] || k[2] != q[2] || k[3] != q[3]:
		return s, fmt.Errorf("%s: %w: queries %v and keys %v may differ in their heads only", o, ErrShape, q, k)
	case q[1]%k[1] != 0:
		return s, fmt.Errorf("%s: %w: %d query heads are not a multiple of %d key heads", o, ErrShape, q[1], k[1])
	case mask != nil && !sameShape(mask, tensor.Shape{q[0], q[2]}):
		return s, fmt.Errorf("%s: %w: padding mask %v, want [%d %d]", o, ErrShape, mask, q[0], q[2])
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("%s: %w: %v", o, ErrShape, err)
	}
	return s, nil
}

// operands returns the kernel's view of q, k, v and the padding mask, if any.
func operands(o fmt.Stringer, p *AttentionParams, q, k, v, mask *tensor.Dense) (kernel.Operands, error) {
	var ms tensor.Shape
	if mask != nil {
		ms = mask.Shape()
	}
	s, err := attentionShape(o, q.Shape(), k.Shape(), v.Shape(), ms)
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
	return a, nil
}

// maskOf returns the last of an operator's inputs if it is the padding mask.
func maskOf[T any](masked bool, in []T) (mask T) {
	if masked {
		mask = in[len(in)-1]
	}
	return mask
}
