package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// SplitHeads is the layout change in front of attention for values, which are
// not rotated: [B,N,H*D] -> [B,H,N,D].
type SplitHeads struct {
	base
	heads, dim int
}

// NewSplitHeads returns the layout change named by path.
func NewSplitHeads(path string, heads, dim int) (*SplitHeads, error) {
	if heads <= 0 || dim <= 0 {
		return nil, fmt.Errorf("op: SplitHeads %q: %w: %d heads of %d, want positive numbers", path, ErrShape, heads, dim)
	}
	return &SplitHeads{newBase("SplitHeads", path, []hm.Type{float3}, float4, heads, dim), heads, dim}, nil
}

func (o *SplitHeads) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkHeads(o, s[0], o.heads, o.dim); err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], o.heads, s[0][1], o.dim}, nil
}

func (o *SplitHeads) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.values(in)
	if err != nil {
		return nil, err
	}
	s := ts[0].Shape()
	out, y := o.result(s[0], o.heads, s[1], o.dim)
	o.team().SplitHeads(y, float32s(ts[0]), s[0], s[1], o.heads, o.dim)
	return o.finish(out, ts)
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
	ts, err := o.values(in)
	if err != nil {
		return nil, err
	}
	s := ts[0].Shape()
	out, y := o.result(s[0], s[2], s[1]*s[3])
	o.team().MergeHeads(y, float32s(ts[0]), s[0], s[2], s[1], s[3])
	return o.finish(out, ts)
}

var (
	_ gorgonia.SDOp = (*SplitHeads)(nil)
	_ gorgonia.SDOp = (*MergeHeads)(nil)
)
