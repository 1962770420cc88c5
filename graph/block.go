package graph

import (
	"errors"
	"fmt"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
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

var errNoBlock = errors.New("graph: the block is nil")

// Build adds the block to the graph of x [B,N,D]: the result has x's shape.
// positions [B,N] int32 are the tokens' positions, layer is the block's place in
// its controller, whose precision the projections take.
func (b *Block) Build(x, positions *gorgonia.Node, layer *pulsecol.Layer, opts ...pulsecol.AttentionOption) (*gorgonia.Node, error) {
	x, err := b.Attention(x, positions, nil, layer, opts...)
	if err != nil {
		return nil, err
	}
	return b.FeedForward(x, layer)
}

// Attention adds the first half of the block, h of x [B,N,D].
//
// With rows nil the result has x's shape. In a model's last block, rows [R] int32
// selects tokens as in GatherRows, and the result is [1,R,D]: all tokens are attended
// to, but attention's results are computed from the first selected token to the last
// alone (unless a refresh needs all), and the rest for the selected ones.
func (b *Block) Attention(x, positions, rows *gorgonia.Node, layer *pulsecol.Layer, opts ...pulsecol.AttentionOption) (*gorgonia.Node, error) {
	if b == nil {
		return nil, errNoBlock
	}
	own := b.in(layer)
	x, err := own.attention(x, positions, rows, layer, opts)
	if err != nil {
		return nil, fmt.Errorf("graph: %s: attention: %w", b.Path, err)
	}
	return x, nil
}

// FeedForward adds the second half of the block, y of h [B,N,D]. The result has h's
// shape.
func (b *Block) FeedForward(h *gorgonia.Node, layer *pulsecol.Layer) (*gorgonia.Node, error) {
	if b == nil {
		return nil, errNoBlock
	}
	own := b.in(layer)
	y, err := own.feedForward(h)
	if err != nil {
		return nil, fmt.Errorf("graph: %s: feed-forward: %w", b.Path, err)
	}
	return y, nil
}

// in returns the block with the precision of a layer.
func (b *Block) in(layer *pulsecol.Layer) Block {
	own := *b
	for _, p := range own.projections() {
		p.Weight.Precision = layer.Precision()
	}
	return own
}

func (b *Block) attention(x, positions, rows *gorgonia.Node, layer *pulsecol.Layer, opts []pulsecol.AttentionOption) (*gorgonia.Node, error) {
	n, err := RMSNorm(x, b.AttentionNorm)
	if err != nil {
		return nil, err
	}
	qkv, heads, err := b.queriesKeysValues(n)
	if err != nil {
		return nil, err
	}
	q, err := RoPE(b.Path+".q.rope", qkv[0], positions, heads[0], b.Theta) // [B,H,N,D]
	if err != nil {
		return nil, err
	}
	k, err := RoPE(b.Path+".k.rope", qkv[1], positions, heads[1], b.Theta) // [B,Hkv,N,D]
	if err != nil {
		return nil, err
	}
	v, err := SplitHeads(b.Path+".v.heads", qkv[2], heads[2]) // [B,Hkv,N,D]
	if err != nil {
		return nil, err
	}
	if rows != nil {
		opts = append(opts[:len(opts):len(opts)], pulsecol.WithRows(rows))
	}
	a, err := pulsecol.Attention(q, k, v, layer, opts...)
	if err != nil {
		return nil, err
	}
	if a, err = MergeHeads(b.Path+".attention.merge", a); err != nil { // [B,N,H*D]
		return nil, err
	}
	if rows != nil {
		if a, err = GatherRows(b.Path+".attention.rows", a, rows); err != nil { // [1,R,H*D]
			return nil, err
		}
		if x, err = GatherRows(b.Path+".rows", x, rows); err != nil { // [1,R,D]
			return nil, err
		}
	}
	return AddLinear(x, a, b.Out)
}

// queriesKeysValues adds the projections of n, and returns for each of them the features that
// its heads are in: those of all three [B,N,(H+2Hkv)*D], or its own [B,N,H*D] if one of them
// has Trained parameters.
func (b *Block) queriesKeysValues(n *gorgonia.Node) (x [3]*gorgonia.Node, heads [3]op.Heads, err error) {
	parts := [3]Projection{b.Q, b.K, b.V}
	trained := false
	first := 0
	for i, count := range []int{b.Heads, b.KVHeads, b.KVHeads} {
		p := &parts[i]
		// A projection that is too wide would shift the heads of the next one.
		if want := count * b.HeadDim; p.outputs() != want {
			return x, heads, fmt.Errorf("%s: %w: weight [%d %d], %d heads of %d need %d rows",
				p.Path, op.ErrShape, p.outputs(), p.Weight.Cols, count, b.HeadDim, want)
		}
		heads[i] = op.Heads{First: first, Count: count, Dim: b.HeadDim}
		first += count
		trained = trained || p.Trained.any()
	}
	if !trained {
		all, err := Linear(n, parts[:]...)
		return [3]*gorgonia.Node{all, all, all}, heads, err
	}
	for i, p := range parts {
		heads[i].First = 0
		if x[i], err = Linear(n, p); err != nil {
			return x, heads, err
		}
	}
	return x, heads, nil
}

func (b *Block) feedForward(x *gorgonia.Node) (*gorgonia.Node, error) {
	m, err := RMSNorm(x, b.FeedForwardNorm)
	if err != nil {
		return nil, err
	}
	h, err := SwiGLU(m, b.Gate, b.Up)
	if err != nil {
		return nil, err
	}
	return AddLinear(x, h, b.Down)
}
