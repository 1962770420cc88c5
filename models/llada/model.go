// Package llada runs LLaDA checkpoints (LLaDA-8B-Base, LLaDA-8B-Instruct,
// LLaDA-1.5 and models of their architecture) as Gorgonia graphs with PulseCol
// attention.
//
// [Open] reads a HuggingFace model directory, [Model.Generate] runs the
// published sampler on it. [Model.Build] adds the transformer alone to a graph.
package llada

import (
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/models/internal/session"
	"gorgonia.org/gorgonia"
)

// forward is LLaDA's transformer, from token ids to logits:
//
//	x = wte[ids]
//	for every block:
//	    n = RMSNorm(x);  x += attn_out(Attention(RoPE(q_proj(n)), RoPE(k_proj(n)), v_proj(n)))
//	    n = RMSNorm(x);  x += ff_out(silu(ff_proj(n)) * up_proj(n))
//	logits = head(RMSNorm(x))
//
// Attention is bidirectional, no projection has a bias, and positions count padding. Row
// i of the logits predicts token i.
func forward(c models.Config, w *checkpoint.Weights, g *models.Graph, ctl *pulsecol.Controller) (*gorgonia.Node, error) {
	embed := w.Embed
	embed.Precision = ctl.PrecisionFor(c.HeadDim)
	x, err := graph.Embed("model.transformer.wte", g.IDs, embed, ctl.DeviceFor(c.HeadDim)) // [B,N,D]
	if err != nil {
		return nil, err
	}
	for i, block := range w.Blocks {
		var rows *gorgonia.Node // nil selects all
		if i == len(w.Blocks)-1 {
			rows = g.Rows // after the last attention only selected rows have a reader: [1,R,D]
		}
		if x, err = block.Attention(x, g.Positions, rows, ctl.Layer(i), session.AttentionOptions(g)...); err != nil {
			return nil, err
		}
		if x, err = block.FeedForward(x, ctl.Layer(i)); err != nil {
			return nil, err
		}
	}
	if x, err = graph.RMSNorm(x, w.Norm); err != nil {
		return nil, err
	}
	return graph.Logits("model.transformer.ff_out", x, g.Rows, w.Head) // [R,V]
}
