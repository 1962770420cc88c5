package session

import (
	"context"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// NewGraph adds the input nodes of a model to g.
func NewGraph(g *gorgonia.ExprGraph, s models.Shape, vocab int, ctl *pulsecol.Controller) (*models.Graph, error) {
	if g == nil || ctl == nil {
		return nil, fmt.Errorf("%w: the graph or the controller is nil", models.ErrRequest)
	}
	// Rows are int32, as the number of a token is over all sequences.
	if s.Batch < 1 || s.Len < 1 || s.Rows < 1 || s.Batch > math.MaxInt32/s.Len || s.Rows > s.Batch*s.Len {
		return nil, fmt.Errorf("%w: a graph of %d sequences of %d tokens with %d rows of logits", models.ErrRequest, s.Batch, s.Len, s.Rows)
	}
	out := &models.Graph{Shape: s, Vocab: vocab}
	out.IDs = gorgonia.NewMatrix(g, tensor.Int32, gorgonia.WithShape(s.Batch, s.Len), gorgonia.WithName("ids"))
	out.Positions = gorgonia.NewMatrix(g, tensor.Int32, gorgonia.WithShape(s.Batch, s.Len), gorgonia.WithName("positions"))
	out.Rows = gorgonia.NewVector(g, tensor.Int32, gorgonia.WithShape(s.Rows), gorgonia.WithName("rows"))
	if s.Padded {
		out.Mask = gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(s.Batch, s.Len), gorgonia.WithName("padding_mask"))
	}
	return out, nil
}

// AttentionOptions returns the attention options of the graph's blocks.
func AttentionOptions(g *models.Graph) []pulsecol.AttentionOption {
	if g.Mask == nil {
		return nil
	}
	return []pulsecol.AttentionOption{pulsecol.WithPaddingMask(g.Mask)}
}

// A Builder adds a model to a Gorgonia graph under a controller.
type Builder func(g *gorgonia.ExprGraph, s models.Shape, ctl *pulsecol.Controller) (*models.Graph, error)

// Session is a model ready to run: a graph, the machine that steps it, and the
// memory of both.
type Session struct {
	graph   *models.Graph
	expr    *gorgonia.ExprGraph
	machine *pulsecol.Machine
	ctl     *pulsecol.Controller

	ids, positions, rows []int32 // the values of the inputs
	mask                 []float32
	onGPU                func(rows int) lmhead.Logits // the logits of the latest step; nil on the CPU
	views                lmhead.Host
	intact               func() error // reports weights that have changed; nil if they cannot
}

// NewSession builds the graph for a shape and compiles it. Positions count from
// 0; see SetPadding for padded batches.
func NewSession(build Builder, s models.Shape, cfg pulsecol.Config) (_ *Session, err error) {
	ctl, err := pulsecol.NewController(cfg)
	if err != nil {
		return nil, err
	}
	expr := gorgonia.NewGraph()
	g, err := build(expr, s, ctl)
	if err != nil {
		return nil, err
	}
	onGPU := lmhead.Defer(g.Logits.Op())
	if err := op.NewWorkspace().Plan(expr, ctl.Modes(), g.Logits); err != nil {
		return nil, err
	}
	m, err := pulsecol.NewMachine(expr, ctl)
	if err != nil {
		return nil, err
	}
	n := s.Batch * s.Len
	sess := &Session{
		graph: g, expr: expr, machine: m, ctl: ctl,
		ids: make([]int32, n), positions: make([]int32, n), rows: make([]int32, s.Rows), onGPU: onGPU,
	}
	for i := range sess.positions {
		sess.positions[i] = int32(i % s.Len)
	}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	for node, backing := range map[*gorgonia.Node]any{g.IDs: sess.ids, g.Positions: sess.positions, g.Rows: sess.rows} {
		if err := gorgonia.Let(node, tensor.New(tensor.WithShape(node.Shape()...), tensor.WithBacking(backing))); err != nil {
			return nil, err
		}
	}
	if g.Mask != nil {
		sess.mask = make([]float32, n)
		if err := gorgonia.Let(g.Mask, tensor.New(tensor.WithShape(s.Batch, s.Len), tensor.WithBacking(sess.mask))); err != nil {
			return nil, err
		}
	}
	return sess, nil
}

// SetPadding sets how many tokens on the left of each sequence are padding. Positions
// count the padding, as LLaDA's do; with positionsSkip they count from the first real
// token, as Dream's do.
func (s *Session) SetPadding(padding []int, positionsSkip bool) {
	n := s.graph.Len
	for b, pad := range padding {
		for i := range n {
			s.mask[b*n+i] = 1
			if i < pad {
				s.mask[b*n+i] = 0
			}
			if positionsSkip {
				s.positions[b*n+i] = int32(i - pad)
				if i < pad {
					s.positions[b*n+i] = 1 // as in the reference; never read
				}
			}
		}
	}
}

// load copies the weights to the GPU, if the session runs there. Later steps read that
// copy.
func (s *Session) load(ctx context.Context, report func(done, total int64)) error {
	if err := s.machine.Load(ctx, report); err != nil {
		return checkpoint.WeightsError(err)
	}
	return s.checkIntact()
}

// checkIntact reports weights that have changed.
func (s *Session) checkIntact() error {
	if s.intact == nil {
		return nil
	}
	return s.intact()
}

// Forward runs one denoising step; it is a sampler.Forward.
func (s *Session) Forward(ctx context.Context, p sampler.Pass) (lmhead.Logits, error) {
	n, ids, rows := s.graph.Len, p.IDs, p.Rows
	if len(ids) != s.graph.Batch || len(ids[0]) != n || len(rows) > len(s.rows) {
		return nil, fmt.Errorf("%w: %d sequences of %d tokens and %d rows of logits, the graph has %d, %d and %d",
			models.ErrRequest, len(ids), len(ids[0]), len(rows), s.graph.Batch, n, len(s.rows))
	}
	for b, row := range ids {
		copy(s.ids[b*n:], row)
	}
	for r := range s.rows {
		s.rows[r] = -1
	}
	for r, row := range rows {
		s.rows[r] = int32(row.Batch*n + row.Pos)
	}
	if err := s.machine.RunAllContext(ctx); err != nil {
		return nil, checkpoint.WeightsError(err)
	}
	s.machine.Reset()
	if s.onGPU != nil {
		return s.onGPU(len(rows)), nil
	}
	if err := s.checkIntact(); err != nil {
		return nil, err
	}
	logits := s.values()
	s.views = s.views[:0]
	for r := range rows {
		s.views = append(s.views, logits[r*s.graph.Vocab:(r+1)*s.graph.Vocab])
	}
	return s.views, nil
}

// values returns the logits of the last step on the CPU. Plan keeps them in a buffer
// of their own until the next one, so they need not be copied out.
func (s *Session) values() []float32 { return s.graph.Logits.Value().Data().([]float32) }

// Close frees the session's memory.
func (s *Session) Close() error {
	err := s.machine.Close()
	if cerr := s.ctl.Close(); err == nil {
		err = cerr
	}
	return err
}
