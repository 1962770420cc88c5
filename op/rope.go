package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// RoPE takes heads out of features and rotates each by its token's position:
// x [B,N,T*Dim], positions [B,N] int32 -> [B,Count,N,Dim]. Features d and d+Dim/2 of
// a head form a pair (the half-split of GPT-NeoX and Llama, not the interleaved
// one), turned by position * theta^(-2d/Dim).
type RoPE struct {
	base
	heads Heads
	theta float64
}

// NewRoPE returns the rotation named by path, for heads of an even dimension.
func NewRoPE(path string, h Heads, theta float64) (*RoPE, error) {
	if err := checkHeads(h); err != nil {
		return nil, fmt.Errorf("op: RoPE %q: %w", path, err)
	}
	switch {
	case h.Dim%2 != 0:
		return nil, fmt.Errorf("op: RoPE %q: %w: head dimension %d, want an even number", path, ErrShape, h.Dim)
	case !(theta > 0):
		return nil, fmt.Errorf("op: RoPE %q: %w: theta %v, want a positive number", path, ErrValue, theta)
	}
	return &RoPE{newBase("RoPE", path, []hm.Type{float3, int2}, float4, h.First, h.Count, h.Dim, theta), h, theta}, nil
}

func (o *RoPE) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := splits(o, s[0], o.heads); err != nil {
		return nil, err
	}
	if s[1][0] != s[0][0] || s[1][1] != s[0][1] {
		return nil, fmt.Errorf("%s: %w: positions %v, want [%d %d] as the input %v", o, ErrShape, s[1], s[0][0], s[0][1], s[0])
	}
	return tensor.Shape{s[0][0], o.heads.Count, s[0][1], o.heads.Dim}, nil
}

func (o *RoPE) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
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
	o.team().RoPE(y, float32s(ts[0]), int32s(ts[1]), s[0], s[1], o.heads, o.theta)
	return o.finish(out)
}

var _ gorgonia.SDOp = (*RoPE)(nil)
