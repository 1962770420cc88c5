package session

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A Builder adds a model to a Gorgonia graph under a controller.
type Builder func(g *gorgonia.ExprGraph, s models.Shape, ctl *pulsecol.Controller) (*models.Graph, error)

// NewGraph adds the input nodes of a model to g.
func NewGraph(g *gorgonia.ExprGraph, s models.Shape, vocab int, ctl *pulsecol.Controller) (*models.Graph, error) {
	if g == nil || ctl == nil {
		return nil, fmt.Errorf("%w: the graph or the controller is nil", models.ErrRequest)
	}
	// Rows are int32, as the number of a token is over all sequences.
	if s.Batch < 1 || s.Len < 1 || s.Rows < 1 || s.Batch > math.MaxInt32/s.Len || s.Rows > s.Batch*s.Len {
		return nil, fmt.Errorf("%w: a graph of %d sequences of %d tokens with %d rows of logits", models.ErrRequest, s.Batch, s.Len, s.Rows)
	}
	if s.Cached != 0 && s.Cached < s.Len {
		return nil, fmt.Errorf("%w: a graph of %d rows of %d cached tokens", models.ErrRequest, s.Len, s.Cached)
	}
	out := &models.Graph{Shape: s, Vocab: vocab}
	out.IDs = gorgonia.NewMatrix(g, tensor.Int32, gorgonia.WithShape(s.Batch, s.Len), gorgonia.WithName("ids"))
	out.Positions = gorgonia.NewMatrix(g, tensor.Int32, gorgonia.WithShape(s.Batch, s.Len), gorgonia.WithName("positions"))
	out.Rows = gorgonia.NewVector(g, tensor.Int32, gorgonia.WithShape(s.Rows), gorgonia.WithName("rows"))
	if s.Padded {
		out.Mask = gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(s.Batch, s.Tokens()), gorgonia.WithName("padding_mask"))
	}
	return out, nil
}

// AttentionOptions returns the attention options of the graph's blocks.
func AttentionOptions(g *models.Graph) (opts []pulsecol.AttentionOption) {
	if g.Mask != nil {
		opts = append(opts, pulsecol.WithPaddingMask(g.Mask))
	}
	if g.Cached > 0 {
		opts = append(opts, pulsecol.WithCache(g.Cached))
	}
	return opts
}
