package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Heads says which heads of the features of a token: Count heads of Dim features
// each, from head First on. Features may hold more heads on both sides, as where the
// projections of queries, keys and values stand side by side.
type Heads = kernel.Heads

// checkHeads checks that there can be such heads.
func checkHeads(h Heads) error {
	if h.First < 0 || h.Count <= 0 || h.Dim <= 0 {
		return fmt.Errorf("%w: %d heads of %d from head %d on, want positive numbers", ErrShape, h.Count, h.Dim, h.First)
	}
	return nil
}

// splits checks that x [B,N,F] has the heads.
func splits(o fmt.Stringer, x tensor.Shape, h Heads) error {
	if x[2]%h.Dim != 0 {
		return fmt.Errorf("%s: %w: input %v has %d features, want a multiple of %d", o, ErrShape, x, x[2], h.Dim)
	}
	if have := x[2] / h.Dim; have-h.First < h.Count {
		return fmt.Errorf("%s: %w: input %v has %d heads of %d, want %d from head %d on", o, ErrShape, x, have, h.Dim, h.Count, h.First)
	}
	return nil
}

// SplitHeads is the layout change in front of attention for values, which are
// not rotated: heads of [B,N,T*Dim] -> [B,Count,N,Dim].
type SplitHeads struct {
	base
	heads Heads
}

// NewSplitHeads returns the layout change named by path.
func NewSplitHeads(path string, h Heads) (*SplitHeads, error) {
	if err := checkHeads(h); err != nil {
		return nil, fmt.Errorf("op: SplitHeads %q: %w", path, err)
	}
	return &SplitHeads{newBase("SplitHeads", path, []hm.Type{float3}, float4, h.First, h.Count, h.Dim), h}, nil
}

func (o *SplitHeads) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := splits(o, s[0], o.heads); err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], o.heads.Count, s[0][1], o.heads.Dim}, nil
}

func (o *SplitHeads) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	s := ts[0].Shape()
	out, y, err := o.result(s[0], o.heads.Count, s[1], o.heads.Dim)
	if err != nil {
		return nil, err
	}
	o.team().SplitHeads(y, float32s(ts[0]), s[0], s[1], o.heads)
	return o.finish(out)
}

// MergeHeads is the layout change behind attention: [B,H,N,D] -> [B,N,H*D].
type MergeHeads struct{ base }

// NewMergeHeads returns the layout change named by path.
func NewMergeHeads(path string) *MergeHeads {
	return &MergeHeads{newBase("MergeHeads", path, []hm.Type{float4}, float3)}
}

func (o *MergeHeads) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], s[0][2], s[0][1] * s[0][3]}, nil
}

func (o *MergeHeads) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	s := ts[0].Shape()
	out, y, err := o.result(s[0], s[2], s[1]*s[3])
	if err != nil {
		return nil, err
	}
	o.team().MergeHeads(y, float32s(ts[0]), s[0], s[2], s[1], s[3])
	return o.finish(out)
}

var (
	_ gorgonia.SDOp = (*SplitHeads)(nil)
	_ gorgonia.SDOp = (*MergeHeads)(nil)
)
