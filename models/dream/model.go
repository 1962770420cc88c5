// Package dream runs Dream checkpoints (Dream-v0-Base-7B, Dream-v0-Instruct-7B
// and models of their architecture) as Gorgonia graphs with PulseCol attention.
//
// [Open] reads a HuggingFace model directory, [Model.Generate] runs the
// published sampler on it. [Model.Build] adds the transformer alone to a graph.
package dream

import (
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/models/internal/session"
	"gorgonia.org/gorgonia"
)

// forward is Dream's transformer, which is Qwen2's with bidirectional attention, from
// token ids to logits:
//
//	x = embed_tokens[ids]
//	for every block:
//	    n = RMSNorm(x);  x += o_proj(Attention(RoPE(q_proj(n)), RoPE(k_proj(n)), v_proj(n)))
//	    n = RMSNorm(x);  x += down_proj(silu(gate_proj(n)) * up_proj(n))
//	logits = head(RMSNorm(x))
//
// The projections to queries, keys and values have biases, several heads of queries share
// one of keys and values, and positions start after the padding. Row i of the logits
// predicts token i+1, as in the autoregressive model that Dream was made from.
func forward(c models.Config, w *checkpoint.Weights, g *models.Graph, ctl *pulsecol.Controller) (*gorgonia.Node, error) {
	embed := w.Embed
	embed.Precision = ctl.PrecisionFor(c.HeadDim)
	x, err := graph.Embed("model.embed_tokens", g.IDs, embed, ctl.DeviceFor(c.HeadDim)) // [B,N,D]
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
	return graph.Logits("lm_head", x, g.Rows, w.Head) // [R,V]
}
