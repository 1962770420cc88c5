package dream

import (
	"fmt"

	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/op"
)

// weights are the tensors of a checkpoint, in their storage type.
type weights struct {
	embed  op.Weight // model.embed_tokens
	blocks []graph.Block
	norm   graph.Norm // model.norm
	head   op.Weight  // lm_head, or embed if tied
	bytes  int64
}

func loadWeights(f *checkpoint.Files, c Config) (*weights, error) {
	l := f.Loader()
	w := &weights{
		embed: l.Matrix("model.embed_tokens.weight", c.Vocab, c.Hidden),
		norm:  l.Norm("model.norm", c.Hidden, c.Eps),
	}
	if c.TiedHead {
		w.head = w.embed
	} else {
		w.head = l.Matrix("lm_head.weight", c.Vocab, c.Hidden)
	}
	for i := range c.Layers {
		at := fmt.Sprintf("model.layers.%d", i)
		w.blocks = append(w.blocks, graph.Block{
			Path:  at,
			Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Theta: c.RopeTheta,
			AttentionNorm:   l.Norm(at+".input_layernorm", c.Hidden, c.Eps),
			Q:               l.Projection(at+".self_attn.q_proj", c.Heads*c.HeadDim, c.Hidden, true),
			K:               l.Projection(at+".self_attn.k_proj", c.KVHeads*c.HeadDim, c.Hidden, true),
			V:               l.Projection(at+".self_attn.v_proj", c.KVHeads*c.HeadDim, c.Hidden, true),
			Out:             l.Projection(at+".self_attn.o_proj", c.Hidden, c.Heads*c.HeadDim, false),
			FeedForwardNorm: l.Norm(at+".post_attention_layernorm", c.Hidden, c.Eps),
			Gate:            l.Projection(at+".mlp.gate_proj", c.FeedForward, c.Hidden, false),
			Up:              l.Projection(at+".mlp.up_proj", c.FeedForward, c.Hidden, false),
			Down:            l.Projection(at+".mlp.down_proj", c.Hidden, c.FeedForward, false),
		})
	}
	var err error
	w.bytes, err = l.Done()
	return w, err
}
