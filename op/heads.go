package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Heads is the range of heads that an operator reads from the features of a token: Count
// heads of Dim features each, from head First on. Features may hold more heads before and
// after, such as the outputs of a Linear of queries, keys and values.
type Heads struct{ First, Count, Dim int }

// checkHeads returns an error unless First is at least 0 and the other sizes at least 1.
func checkHeads(h Heads) error {
	if h.First < 0 || h.Count <= 0 || h.Dim <= 0 {
		return fmt.Errorf("%w: %d heads of %d from head %d on, want positive numbers", ErrShape, h.Count, h.Dim, h.First)
	}
	return nil
}

// checkSplit checks that x [B,N,F] has the heads.
func checkSplit(o fmt.Stringer, x tensor.Shape, h kernel.Heads) error {
	if x[2]%h.Dim != 0 {
		return fmt.Errorf("%s: %w: input %v has %d features, want a multiple of %d", o, ErrShape, x, x[2], h.Dim)
	}
	if have := x[2] / h.Dim; have-h.First < h.Count {
		return fmt.Errorf("%s: %w: input %v has %d heads of %d, want %d from head %d on", o, ErrShape, x, have, h.Dim, h.Count, h.First)
	}
	return nil
}

type splitHeads struct {
	base
	heads kernel.Heads
}

// NewSplitHeads returns the layout change from BNHD to BHND, named by path, that values
// take before attention: heads of x [B,N,F] -> [B,Count,N,Dim]. It is differentiable.
// Invalid heads are an ErrShape.
func NewSplitHeads(path string, h Heads) (gorgonia.Op, error) {
	if err := checkHeads(h); err != nil {
		return nil, fmt.Errorf("op: SplitHeads %q: %w", path, err)
	}
	b := newBase("SplitHeads", path, []hm.Type{float3}, float4, h.First, h.Count, h.Dim)
	b.slopes = []slope{{compute: func(r *slopeRun) error {
		r.team.SplitHeadsGrad(r.dx, r.dy, r.shape[0], r.shape[1], kernel.Heads(h))
		return nil
	}}}
	return &splitHeads{b, kernel.Heads(h)}, nil
}

func (o *splitHeads) Spec() any { return exec.SplitHeads{Heads: o.heads} }

func (o *splitHeads) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkSplit(o, s[0], o.heads); err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], o.heads.Count, s[0][1], o.heads.Dim}, nil
}

func (o *splitHeads) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
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

type mergeHeads struct{ base }

// NewMergeHeads returns the layout change from BHND to BNHD, named by path, after
// attention: [B,H,N,D] -> [B,N,H*D]. It is differentiable.
func NewMergeHeads(path string) gorgonia.Op {
	b := newBase("MergeHeads", path, []hm.Type{float4}, float3)
	b.slopes = []slope{{compute: func(r *slopeRun) error {
		h := kernel.Heads{Count: r.shape[1], Dim: r.shape[3]}
		r.team.SplitHeads(r.dx, r.dy, r.shape[0], r.shape[2], h)
		return nil
	}}}
	return &mergeHeads{b}
}

func (o *mergeHeads) Spec() any { return exec.MergeHeads{} }

func (o *mergeHeads) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], s[0][2], s[0][1] * s[0][3]}, nil
}

func (o *mergeHeads) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
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
	_ exec.Operator = (*splitHeads)(nil)
	_ exec.Operator = (*mergeHeads)(nil)
)
