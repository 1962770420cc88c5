package op

import (
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type denseAttn struct {
	base
	p exec.Attention
}

// NewDenseAttn returns full bidirectional attention, named by path:
//
//	y = softmax(scale * q kᵀ) v
//
// for q [B,H,N,D], k and v [B,Hkv,N,D]: y [B,H,N,D]. Query head h reads key head
// h/(H/Hkv). Nothing of size N×N is stored. With masked set the fourth input is a padding
// mask [B,N], 0 for padding, and no query sees a padding key. A scale of 0 means
// 1/sqrt(D). Products are float32. It is differentiable in q, k and v.
//
// A scale that is negative or not finite is an ErrValue.
func NewDenseAttn(path string, scale float64, masked bool) (gorgonia.Op, error) {
	const kind = "DenseAttn"
	p, err := AttentionParams{Scale: scale, Masked: masked}.spec(kind, path)
	if err != nil {
		return nil, err
	}
	return &denseAttn{newBase(kind, path, withMask(&p, float4, float4, float4), float4, scale, masked), p}, nil
}

func (o *denseAttn) Spec() any { return exec.DenseAttn{Attention: o.p} }

func (o *denseAttn) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if _, err := attentionShape(o, &o.p, s[0], s[1], s[2], maskOf(o.p.Masked, s)); err != nil {
		return nil, err
	}
	return s[0].Clone(), nil
}

func (o *denseAttn) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	a, err := operands(o, &o.p, ts[0], ts[1], ts[2], maskOf(o.p.Masked, ts))
	if err != nil {
		return nil, err
	}
	out, y, err := o.result(ts[0].Shape()...)
	if err != nil {
		return nil, err
	}
	o.team().Dense(y, nil, &a)
	return o.finish(out)
}

// DiffWRT: q, k and v; the padding mask is held fixed.
func (o *denseAttn) DiffWRT(inputs int) []bool { return firstThree(inputs) }

func (o *denseAttn) SymDiff(inputs gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	return attentionGrads(o.path, o.p, nil, false, inputs, grad)
}

// DoDiff is SymDiff for Lisp machines.
func (o *denseAttn) DoDiff(_ gorgonia.ExecutionContext, inputs gorgonia.Nodes, y *gorgonia.Node) error {
	return o.addGradients(&o.p, nil, inputs, y)
}

var (
	_ exec.Operator = (*denseAttn)(nil)
	_ gorgonia.ADOp = (*denseAttn)(nil)
)
