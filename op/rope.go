package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// RoPE splits features into heads and rotates each by its token's position:
// x [B,N,H*D], positions [B,N] int32 -> [B,H,N,D]. Features d and d+D/2 of a
// head form a pair (the half-split of GPT-NeoX and Llama, not the interleaved
// one), turned by position * theta^(-2d/D).
type RoPE struct {
	base
	heads, dim int
	theta      float64
}

// NewRoPE returns the rotation named by path, for heads of an even dimension dim.
func NewRoPE(path string, heads, dim int, theta float64) (*RoPE, error) {
	switch {
	case heads <= 0:
		return nil, fmt.Errorf("op: RoPE %q: %w: %d heads, want at least 1", path, ErrShape, heads)
	case dim <= 0 || dim%2 != 0:
		return nil, fmt.Errorf("op: RoPE %q: %w: head dimension %d, want a positive even number", path, ErrShape, dim)
	case !(theta > 0):
		return nil, fmt.Errorf("op: RoPE %q: %w: theta %v, want a positive number", path, ErrValue, theta)
	}
	return &RoPE{newBase("RoPE", path, []hm.Type{float3, int2}, float4, heads, dim, theta), heads, dim, theta}, nil
}

func (o *RoPE) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkHeads(o, s[0], o.heads, o.dim); err != nil {
		return nil, err
	}
	if s[1][0] != s[0][0] || s[1][1] != s[0][1] {
		return nil, fmt.Errorf("%s: %w: positions %v, want [%d %d] as the input %v", o, ErrShape, s[1], s[0][0], s[0][1], s[0])
	}
	return tensor.Shape{s[0][0], o.heads, s[0][1], o.dim}, nil
}

func (o *RoPE) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.values(in)
	if err != nil {
		return nil, err
	}
	s := ts[0].Shape()
	out, y := o.result(s[0], o.heads, s[1], o.dim)
	o.team().RoPE(y, float32s(ts[0]), int32s(ts[1]), s[0], s[1], o.heads, o.dim, o.theta)
	return o.finish(out, ts)
}

// checkHeads checks that x [B,N,F] splits into heads of dim features.
func checkHeads(o fmt.Stringer, x tensor.Shape, heads, dim int) error {
	if x[2] != heads*dim {
		return fmt.Errorf("%s: %w: input %v has %d features, %d heads of %d need %d", o, ErrShape, x, x[2], heads, dim, heads*dim)
	}
	return nil
}

var _ gorgonia.SDOp = (*RoPE)(nil)
