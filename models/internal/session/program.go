package session

import (
	"context"
	"fmt"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// program is a model's graph of one shape, compiled, with the values of its inputs.
type program struct {
	shape   models.Shape
	graph   *models.Graph
	expr    *gorgonia.ExprGraph
	machine *pulsecol.Machine

	ids, positions, rows []int32
	mask                 []float32                    // nil without padding
	gpu                  bool                         // it runs on a GPU
	deferred             func(rows int) lmhead.Logits // the logits of the latest step; nil on the CPU
	views                lmhead.Host
	loaded               bool // the weights are on the GPU
}

// newProgram builds and compiles the graph for a shape, with its intermediate values in ws.
func newProgram(build Builder, s models.Shape, ctl *pulsecol.Controller, ws *op.Workspace) (_ *program, err error) {
	expr := gorgonia.NewGraph()
	g, err := build(expr, s, ctl)
	if err != nil {
		return nil, err
	}
	_, gpu := g.Logits.Op().(exec.DeviceOp)
	p := &program{
		shape: s, graph: g, expr: expr, gpu: gpu, deferred: lmhead.Defer(g.Logits.Op()),
		ids: make([]int32, s.Batch*s.Len), positions: make([]int32, s.Batch*s.Len), rows: make([]int32, s.Rows),
	}
	inputs := map[*gorgonia.Node]any{g.IDs: p.ids, g.Positions: p.positions, g.Rows: p.rows}
	if g.Mask != nil {
		p.mask = make([]float32, s.Batch*s.Tokens())
		inputs[g.Mask] = p.mask
	}
	for node, backing := range inputs {
		if err := gorgonia.Let(node, tensor.New(tensor.WithShape(node.Shape()...), tensor.WithBacking(backing))); err != nil {
			return nil, err
		}
	}
	if err := ws.Plan(expr, ctl.Modes(), g.Logits); err != nil {
		return nil, err
	}
	if p.machine, err = pulsecol.NewMachine(expr, ctl); err != nil {
		ws.Forget(expr)
		return nil, err
	}
	return p, nil
}

// load copies the weights to the GPU, if the program runs there. Its own copy is what
// steps read from then on.
func (p *program) load(ctx context.Context, report func(done, total int64)) error {
	if p.loaded {
		return nil
	}
	if err := p.machine.Load(ctx, report); err != nil {
		return checkpoint.WeightsError(err)
	}
	p.loaded = true
	return nil
}

// step runs one denoising step on the rows from position first on of sequences of token
// ids, which have positions and a padding mask, and returns the logits of the selected rows.
func (p *program) step(ctx context.Context, in *inputs, ids [][]int32, first int, selected []sampler.Row) (lmhead.Logits, error) {
	m := p.shape.Len
	for b, row := range ids {
		copy(p.ids[b*m:][:m], row[first:])
		copy(p.positions[b*m:][:m], in.positions[b*in.len+first:])
	}
	copy(p.mask, in.mask)
	for r := range p.rows {
		p.rows[r] = -1
	}
	for r, row := range selected {
		if row.Pos < first || row.Pos >= first+m {
			return nil, fmt.Errorf("%w: logits of position %d, the step computes %d to %d", models.ErrRequest, row.Pos, first, first+m-1)
		}
		p.rows[r] = int32(row.Batch*m + row.Pos - first)
	}
	if err := p.machine.RunAllContext(ctx); err != nil {
		return nil, checkpoint.WeightsError(err)
	}
	p.machine.Reset()
	if p.deferred != nil {
		return p.deferred(len(selected)), nil
	}
	logits, vocab := p.values(), p.graph.Vocab
	p.views = p.views[:0]
	for r := range selected {
		p.views = append(p.views, logits[r*vocab:(r+1)*vocab])
	}
	return p.views, nil
}

// values returns the logits of the last step on the CPU. The plan keeps them in a buffer
// of their own until the next one, so they need not be copied out.
func (p *program) values() []float32 { return p.graph.Logits.Value().Data().([]float32) }

// inputs are what the steps of a generation have in common.
type inputs struct {
	len       int       // tokens of a sequence
	positions []int32   // [batch, len]
	mask      []float32 // [batch, len], 0 for padding; nil without
}

// newInputs returns the inputs of sequences of n tokens, of which the first padding are
// padding; nil is none. Positions count the padding, as LLaDA's do; with positionsSkip they
// count from the first real token, as Dream's do.
func newInputs(batch, n int, padding []int, positionsSkip bool) *inputs {
	in := &inputs{len: n, positions: make([]int32, batch*n)}
	for i := range in.positions {
		in.positions[i] = int32(i % n)
	}
	if padding == nil {
		return in
	}
	in.mask = make([]float32, batch*n)
	for b, pad := range padding {
		for i := range n {
			if i >= pad {
				in.mask[b*n+i] = 1
			}
			if positionsSkip {
				in.positions[b*n+i] = int32(i - pad)
				if i < pad {
					in.positions[b*n+i] = 1 // as the reference fills it; never read
				}
			}
		}
	}
	return in
}
