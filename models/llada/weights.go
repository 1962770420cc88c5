package llada

import (
	"fmt"

	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
)

// loadWeights takes the tensors of a checkpoint by their names.
func loadWeights(l *checkpoint.Loader, c models.Config) *checkpoint.Weights {
	const root = "model.transformer."
	w := &checkpoint.Weights{
		Embed: l.Matrix(root+"wte.weight", c.Vocab, c.Hidden),
		Norm:  l.Norm(root+"ln_f", c.Hidden, c.Eps),
	}
	if c.TiedHead {
		w.Head = w.Embed
	} else {
		w.Head = l.Matrix(root+"ff_out.weight", c.Vocab, c.Hidden)
	}
	for i := range c.Layers {
		at := fmt.Sprintf("%sblocks.%d", root, i)
		linear := func(name string, outputs, inputs int) graph.Projection {
			return l.Projection(at+"."+name, outputs, inputs, false)
		}
		w.Blocks = append(w.Blocks, graph.Block{
			Path:  at,
			Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Theta: c.RopeTheta,
			AttentionNorm:   l.Norm(at+".attn_norm", c.Hidden, c.Eps),
			Q:               linear("q_proj", c.Heads*c.HeadDim, c.Hidden),
			K:               linear("k_proj", c.KVHeads*c.HeadDim, c.Hidden),
			V:               linear("v_proj", c.KVHeads*c.HeadDim, c.Hidden),
			Out:             linear("attn_out", c.Hidden, c.Hidden),
			FeedForwardNorm: l.Norm(at+".ff_norm", c.Hidden, c.Eps),
			Gate:            linear("ff_proj", c.FeedForward, c.Hidden),
			Up:              linear("up_proj", c.FeedForward, c.Hidden),
			Down:            linear("ff_out", c.Hidden, c.FeedForward),
		})
	}
	return w
}
