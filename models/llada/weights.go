package llada

import (
	"fmt"

	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/op"
)

// weights are the tensors of a checkpoint, in their storage type.
type weights struct {
	embed  op.Weight // model.transformer.wte
	blocks []graph.Block
	norm   graph.Norm // model.transformer.ln_f
	head   op.Weight  // model.transformer.ff_out, or embed if tied
	bytes  int64
}

func loadWeights(f *checkpoint.Files, c Config) (*weights, error) {
	const root = "model.transformer."
	l := f.Loader()
	w := &weights{
		embed: l.Matrix(root+"wte.weight", c.Vocab, c.Hidden),
		norm:  l.Norm(root+"ln_f", c.Hidden, c.Eps),
	}
	if c.TiedHead {
		w.head = w.embed
	} else {
		w.head = l.Matrix(root+"ff_out.weight", c.Vocab, c.Hidden)
	}
	for i := range c.Layers {
		at := fmt.Sprintf("%sblocks.%d", root, i)
		linear := func(name string, outputs, inputs int) graph.Projection {
			return l.Projection(at+"."+name, outputs, inputs, false)
		}
		w.blocks = append(w.blocks, graph.Block{
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
	var err error
	w.bytes, err = l.Done()
	return w, err
}
