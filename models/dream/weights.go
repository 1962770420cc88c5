package dream

import (
	"fmt"

	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
)

// loadWeights takes the tensors of a checkpoint by their names.
func loadWeights(l *checkpoint.Loader, c models.Config) *checkpoint.Weights {
	w := &checkpoint.Weights{
		Embed: l.Matrix("model.embed_tokens.weight", c.Vocab, c.Hidden),
		Norm:  l.Norm("model.norm", c.Hidden, c.Eps),
	}
	if c.TiedHead {
		w.Head = w.Embed
	} else {
		w.Head = l.Matrix("lm_head.weight", c.Vocab, c.Hidden)
	}
	for i := range c.Layers {
		at := fmt.Sprintf("model.layers.%d", i)
		w.Blocks = append(w.Blocks, graph.Block{
			Path:  at,
			Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Theta: c.RopeTheta,
			AttentionNorm:   l.Norm(at+".input_layernorm", c.Hidden, c.Eps),
			Q:               l.Projection(at+".self_attn.q_proj", c.Heads*c.HeadDim, c.Hidden, c.QKVBias),
			K:               l.Projection(at+".self_attn.k_proj", c.KVHeads*c.HeadDim, c.Hidden, c.QKVBias),
			V:               l.Projection(at+".self_attn.v_proj", c.KVHeads*c.HeadDim, c.Hidden, c.QKVBias),
			Out:             l.Projection(at+".self_attn.o_proj", c.Hidden, c.Heads*c.HeadDim, false),
			FeedForwardNorm: l.Norm(at+".post_attention_layernorm", c.Hidden, c.Eps),
			Gate:            l.Projection(at+".mlp.gate_proj", c.FeedForward, c.Hidden, false),
			Up:              l.Projection(at+".mlp.up_proj", c.FeedForward, c.Hidden, false),
			Down:            l.Projection(at+".mlp.down_proj", c.Hidden, c.FeedForward, false),
		})
	}
	return w
}
