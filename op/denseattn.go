package op

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// DenseAttn is full bidirectional attention, y = softmax(scale * q kᵀ) v, for
// q [B,H,N,D], k and v [B,Hkv,N,D]: y [B,H,N,D]. Query head h reads key head
// h/(H/Hkv). Nothing of size N×N is stored. With a padding mask [B,N] as fourth
// input no query sees a padding key. It is differentiable in q, k and v.
type DenseAttn struct {
	base
	p AttentionParams
}

// NewDenseAttn returns the operator named by path. scale multiplies q·k; 0 means
// 1/sqrt(head dimension). masked says that there is a padding mask. Products are
// float32.
func NewDenseAttn(path string, scale float64, masked bool) (*DenseAttn, error) {
	const kind = "DenseAttn"
	p := AttentionParams{Scale: scale, Masked: masked}
	if err := p.validate(kind, path); err != nil {
		return nil, err
	}
	return &DenseAttn{newBase(kind, path, p.masked(float4, float4, float4), float4, scale, masked), p}, nil
}

func (o *DenseAttn) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if _, err := attentionShape(o, s[0], s[1], s[2], maskOf(o.p.Masked, s)); err != nil {
		return nil, err
	}
	return s[0].Clone(), nil
}

func (o *DenseAttn) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
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
func (o *DenseAttn) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range min(3, inputs) {
		wrt[i] = true
	}
	return wrt
}

func (o *DenseAttn) SymDiff(inputs gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	return attentionGrads(o.path, o.p, nil, false, inputs, grad)
}

// DoDiff is SymDiff for Lisp machines.
func (o *DenseAttn) DoDiff(_ gorgonia.ExecutionContext, inputs gorgonia.Nodes, y *gorgonia.Node) error {
	return o.addGradients(&o.p, nil, inputs, y)
}

var (
	_ gorgonia.SDOp = (*DenseAttn)(nil)
	_ gorgonia.ADOp = (*DenseAttn)(nil)
)
