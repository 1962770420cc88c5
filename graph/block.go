package graph

import (
	"fmt"

	"github.com/pulsecol/pulsecol"
	"gorgonia.org/gorgonia"
)

// Block is a pre-norm transformer block with bidirectional attention under a
// PulseCol controller and a SwiGLU feed-forward network:
//
//	h = x + Out(Attention(RoPE(Q(n)), RoPE(K(n)), V(n)))   with n = AttentionNorm(x)
//	y = h + Down(silu(Gate(m)) * Up(m))                      with m = FeedForwardNorm(h)
type Block struct {
	Path string // of the block; names the operators without a weight

	Heads, KVHeads, HeadDim int // Heads a multiple of KVHeads
	Theta                   float64

	AttentionNorm   Norm
	Q, K, V, Out    Projection
	FeedForwardNorm Norm
	Gate, Up, Down  Projection
}

// Build adds the block to the graph of x [B,N,D]: the result has x's shape.
// positions [B,N] int32 are the tokens' positions, layer is the block's place in
// its controller, whose precision the projections take.
func (b *Block) Build(x, positions *gorgonia.Node, layer *pulsecol.Layer, opts ...pulsecol.AttentionOption) (*gorgonia.Node, error) {
	own := *b
	for _, p := range []*Projection{&own.Q, &own.K, &own.V, &own.Out, &own.Gate, &own.Up, &own.Down} {
		p.Weight.Precision = layer.Precision()
	}
	return own.build(x, positions, layer, opts)
}

func (b *Block) build(x, positions *gorgonia.Node, layer *pulsecol.Layer, opts []pulsecol.AttentionOption) (*gorgonia.Node, error) {
	h, err := b.attention(x, positions, layer, opts)
	if err != nil {
		return nil, fmt.Errorf("graph: %s: attention: %w", b.Path, err)
	}
	if x, err = Add(b.Path+".attention.residual", x, h); err != nil {
		return nil, fmt.Errorf("graph: %s: %w", b.Path, err)
	}
	if h, err = b.feedForward(x); err != nil {
		return nil, fmt.Errorf("graph: %s: feed-forward: %w", b.Path, err)
	}
	if x, err = Add(b.Path+".feedforward.residual", x, h); err != nil {
		return nil, fmt.Errorf("graph: %s: %w", b.Path, err)
	}
	return x, nil
}

func (b *Block) attention(x, positions *gorgonia.Node, layer *pulsecol.Layer, opts []pulsecol.AttentionOption) (*gorgonia.Node, error) {
	n, err := RMSNorm(x, b.AttentionNorm)
	if err != nil {
		return nil, err
	}
	q, err := Linear(n, b.Q)
	if err != nil {
		return nil, err
	}
	if q, err = RoPE(b.Path+".q.rope", q, positions, b.Heads, b.HeadDim, b.Theta); err != nil { // [B,H,N,D]
		return nil, err
	}
	k, err := Linear(n, b.K)
	if err != nil {
		return nil, err
	}
	if k, err = RoPE(b.Path+".k.rope", k, positions, b.KVHeads, b.HeadDim, b.Theta); err != nil { // [B,Hkv,N,D]
		return nil, err
	}
	v, err := Linear(n, b.V)
	if err != nil {
		return nil, err
	}
	if v, err = SplitHeads(b.Path+".v.heads", v, b.KVHeads, b.HeadDim); err != nil { // [B,Hkv,N,D]
		return nil, err
	}
	a, err := pulsecol.Attention(q, k, v, layer, opts...)
	if err != nil {
		return nil, err
	}
	if a, err = MergeHeads(b.Path+".attention.merge", a); err != nil { // [B,N,H*D]
		return nil, err
	}
	return Linear(a, b.Out)
}

func (b *Block) feedForward(x *gorgonia.Node) (*gorgonia.Node, error) {
	m, err := RMSNorm(x, b.FeedForwardNorm)
	if err != nil {
		return nil, err
	}
	gate, err := Linear(m, b.Gate)
	if err != nil {
		return nil, err
	}
	up, err := Linear(m, b.Up)
	if err != nil {
		return nil, err
	}
	h, err := SwiGLU(b.Path+".swiglu", gate, up)
	if err != nil {
		return nil, err
	}
	return Linear(h, b.Down)
}
