package op

import (
	"slices"
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ScoreCollect is the first operator of PulseCol: how much attention each query
// group pays to each key under full attention,
//
//	scores[b,h,u,j] = mean over queries i of group u of softmax(scale * q kᵀ)[i,j]
//
// for q [B,H,N,D], k and v [B,Hkv,N,D]: scores [B,H,U,N]. With a padding mask,
// padding keys score 0 and padding queries do not count: in a group of padding all
// keys score 0. SparseD's selection widens a row by the scores over the generation
// part alone.
//
// With a State it works in refresh steps only, and leaves the output of full
// attention, which it computes in the same visit, to ColumnSparseAttn; in other
// steps its result is a placeholder of one element.
type ScoreCollect struct {
	base
	p     AttentionParams
	state *State
}

// NewScoreCollect returns the operator named by path.
func NewScoreCollect(path string, p AttentionParams) (*ScoreCollect, error) {
	const kind = "ScoreCollect"
	if err := p.validate(kind, path); err != nil {
		return nil, err
	}
	b := newBase(kind, path, p.masked(float4, float4, float4), float4, p.params()...)
	o := &ScoreCollect{b, p, p.State}
	if p.State != nil {
		o.bind(p.State.step)
	}
	return o, nil
}

func (o *ScoreCollect) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	sh, err := attentionShape(o, s[0], s[1], s[2], maskOf(o.p.Masked, s))
	if err != nil {
		return nil, err
	}
	if err := o.p.checkGiven(o, sh); err != nil {
		return nil, err
	}
	return tensor.Shape{sh.Batch, sh.Heads, kernel.Groups(sh.Len, o.p.Group), o.p.Selection.scoreWidth(sh.Len)}, nil
}

func (o *ScoreCollect) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	a, err := operands(o, &o.p, ts[0], ts[1], ts[2], maskOf(o.p.Masked, ts))
	if err != nil {
		return nil, err
	}
	var out tensor.Tensor
	var y []float32
	if st := o.state; st != nil {
		mode, err := st.begin(o, &st.scored, nil)
		if err != nil {
			return nil, err
		}
		defer st.clock(mode, time.Now())
		if mode != Refresh || o.p.Selection.Unchanging() {
			return o.finish(st.noScores)
		}
		if out, y, err = o.output(ts[0].Shape()); err != nil {
			return nil, err
		}
	}
	scores, s, err := o.result(a.Batch, a.Heads, kernel.Groups(a.Len, o.p.Group), o.p.Selection.scoreWidth(a.Len))
	if err != nil {
		return nil, err
	}
	o.collect(s, y, &a)
	if o.state != nil {
		o.state.out = out
	}
	return o.finish(scores)
}

// PlanMemory asks for the scores in a refresh and, if ColumnSparseAttn's result is planned,
// for that: it is made here and handed over.
func (o *ScoreCollect) PlanMemory(r *exec.Run) error {
	if st := o.state; st != nil {
		if r.Mode != Refresh || o.p.Selection.Unchanging() {
			return nil
		}
		if st.sparse.placement.PlannedResult() {
			if err := r.Handoff(st, 4*int64(r.Inputs()[0].Shape().TotalSize()), exec.Activations); err != nil {
				return err
			}
		}
	}
	if !r.Planned() {
		return nil
	}
	return r.ResultOf(exec.Scores, resultBytes(r))
}

// output returns the tensor for the output of full attention, of the queries' shape.
func (o *ScoreCollect) output(shape tensor.Shape) (tensor.Tensor, []float32, error) {
	attend := o.state.sparse
	if !attend.placement.PlannedResult() {
		y := make([]float32, shape.TotalSize())
		return wrap(y, slices.Clone(shape)...), y, nil
	}
	slot, err := o.cursor.Next(exec.KindHandoff, 4*int64(shape.TotalSize()))
	if err != nil {
		return nil, nil, err
	}
	y := o.ws.at(o.placement.Plan(), slot, shape.TotalSize())
	if attend.placement.KeptResult() { // which this is copied to
		return &held{wrap(y, slices.Clone(shape)...)}, y, nil
	}
	return attend.tensor(y, shape), y, nil
}

// collect fills scores and, if y is not nil, the output of full attention.
func (o *ScoreCollect) collect(scores, y []float32, a *kernel.Operands) {
	sel := o.p.Selection
	ranked := *a
	if sel.ScoreScale != 0 {
		ranked.Scale = float32(sel.ScoreScale)
	}
	n, width := a.Len, sel.scoreWidth(a.Len)
	switch {
	case y != nil && width == n && ranked.Scale == a.Scale:
		o.team().DenseScores(y, scores, a, o.p.Group)
		return
	case y != nil:
		o.team().Dense(y, nil, a)
	}
	if width == n {
		o.team().Scores(scores, n, &ranked, o.p.Group, 0)
		return
	}
	// SparseD: two softmaxes, side by side in each row.
	gen := width - n
	o.team().Scores(scores[:len(scores)-gen], width, &ranked, o.p.Group, 0)
	o.team().Scores(scores[n:], width, &ranked, o.p.Group, n-gen)
}

func (o *ScoreCollect) mergesWith(other gorgonia.Op) bool {
	s, ok := other.(*ScoreCollect)
	return ok && s.state == o.state
}

var _ gorgonia.SDOp = (*ScoreCollect)(nil)
