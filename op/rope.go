package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type rope struct {
	base
	spec exec.RoPE
}

// NewRoPE returns the rotary position embedding named by path (Su et al., arXiv
// 2104.09864), which takes heads from features and rotates each by its token's position:
//
//	x [B,N,F], positions [B,N] int32 -> [B,Count,N,Dim]
//
// Features d and d+Dim/2 of a head form a pair (the half-split of GPT-NeoX and Llama, not
// the interleaved one), turned by position * theta^(-2d/Dim). It is
// differentiable in x.
//
// Invalid heads, and heads of an odd dimension, are an ErrShape; a theta that is not positive
// is an ErrValue.
func NewRoPE(path string, h Heads, theta float64) (gorgonia.Op, error) {
	if err := checkHeads(h); err != nil {
		return nil, fmt.Errorf("op: RoPE %q: %w", path, err)
	}
	switch {
	case h.Dim%2 != 0:
		return nil, fmt.Errorf("op: RoPE %q: %w: head dimension %d, want an even number", path, ErrShape, h.Dim)
	case !(theta > 0):
		return nil, fmt.Errorf("op: RoPE %q: %w: theta %v, want a positive number", path, ErrValue, theta)
	}
	b := newBase("RoPE", path, []hm.Type{float3, int2}, float4, h.First, h.Count, h.Dim, theta)
	b.slopes = []slope{{reads: []int{1}, compute: func(r *slopeRun) error {
		r.team.RoPEGrad(r.dx, r.dy, int32s(r.in[1]), r.shape[0], r.shape[1], kernel.Heads(h), theta)
		return nil
	}}, {}}
	return &rope{b, exec.RoPE{Heads: kernel.Heads(h), Theta: theta}}, nil
}

func (o *rope) Spec() any { return o.spec }

func (o *rope) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	h := o.spec.Heads
	if err := checkSplit(o, s[0], h); err != nil {
		return nil, err
	}
	if s[1][0] != s[0][0] || s[1][1] != s[0][1] {
		return nil, fmt.Errorf("%s: %w: positions %v, want [%d %d] as the input %v", o, ErrShape, s[1], s[0][0], s[0][1], s[0])
	}
	return tensor.Shape{s[0][0], h.Count, s[0][1], h.Dim}, nil
}

func (o *rope) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	s, h := ts[0].Shape(), o.spec.Heads
	out, y, err := o.result(s[0], h.Count, s[1], h.Dim)
	if err != nil {
		return nil, err
	}
	o.team().RoPE(y, float32s(ts[0]), int32s(ts[1]), s[0], s[1], h, o.spec.Theta)
	return o.finish(out)
}

var _ exec.Operator = (*rope)(nil)
