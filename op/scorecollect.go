package op

import (
	"time"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type scoreCollect struct {
	base
	p exec.Attention
}

// NewScoreCollect returns the first operator of PulseCol, named by path: the attention that
// each query group pays to each key under full attention,
//
//	scores[b,h,u,j] = mean over queries i of group u of softmax(scale * q kᵀ)[i,j]
//
// for q [B,H,N,D], k and v [B,Hkv,N,D]: scores [B,H,U,N]. With a padding mask,
// padding keys score 0 and padding queries do not count: in a group of padding all
// keys score 0. SparseD's selection widens a row by the scores over the generation
// part alone.
//
// In a controller's layer it works in refresh steps only, and computes the output of full
// attention in the same pass, which ColumnSparseAttn returns; in other steps its result is
// a placeholder of one element. Over cached keys it also collects the scores of a block's
// rows in the first step of the block. It has no gradient. Parameters out of range are an
// ErrValue.
func NewScoreCollect(path string, p AttentionParams) (gorgonia.Op, error) {
	const kind = "ScoreCollect"
	a, err := p.spec(kind, path)
	if err != nil {
		return nil, err
	}
	o := &scoreCollect{newBase(kind, path, withMask(&a, float4, float4, float4), float4, hashed(&a)...), a}
	if a.State != nil {
		o.Bind(a.State.Step())
	}
	return o, nil
}

func (o *scoreCollect) Spec() any { return exec.ScoreCollect{Attention: o.p} }

func (o *scoreCollect) Layer() *exec.State { return o.p.State }

func (o *scoreCollect) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	sh, err := attentionShape(o, &o.p, s[0], s[1], s[2], maskOf(o.p.Masked, s))
	if err != nil {
		return nil, err
	}
	if err := checkGiven(o, &o.p, sh); err != nil {
		return nil, err
	}
	return tensor.Shape{sh.Batch, sh.Heads, kernel.Groups(sh.Queries(), o.p.Group), o.p.Selection.ScoreWidth(sh.Len)}, nil
}

func (o *scoreCollect) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	a, err := operands(o, &o.p, ts[0], ts[1], ts[2], maskOf(o.p.Masked, ts))
	if err != nil {
		return nil, err
	}
	var y []float32
	st := o.p.State
	if st != nil {
		mode, err := st.Begin(o, exec.CollectScores)
		if err != nil {
			return nil, err
		}
		defer st.AddTime(mode, time.Now())
		o.p.Handoff.Output = nil
		if st.Step().Pass().Select {
			o.collectBlock(&a)
		}
		if mode != Refresh || o.p.Selection.Unchanging() {
			return o.finish(st.NoScores)
		}
		if y, err = o.output(len(a.Q)); err != nil {
			return nil, err
		}
	}
	scores, s, err := o.result(a.Batch, a.Heads, kernel.Groups(a.Len, o.p.Group), o.p.Selection.ScoreWidth(a.Len))
	if err != nil {
		return nil, err
	}
	o.collect(s, y, &a)
	if st != nil {
		o.p.Handoff.Output = y
	}
	return o.finish(scores)
}

// PlanMemory asks for the scores in a refresh and, if ColumnSparseAttn's result is planned,
// for that: it is computed here and handed over.
func (o *scoreCollect) PlanMemory(r *exec.Run) error {
	if st := o.p.State; st != nil {
		if r.Mode != Refresh || o.p.Selection.Unchanging() {
			return nil
		}
		if o.p.Handoff.Attend.Placement().PlannedResult() {
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

// output returns memory for the output of full attention.
func (o *scoreCollect) output(elements int) ([]float32, error) {
	if !o.p.Handoff.Attend.Placement().PlannedResult() {
		return make([]float32, elements), nil
	}
	return o.takeMemory(exec.KindHandoff, elements)
}

// collect fills scores and, if y is not nil, the output of full attention.
func (o *scoreCollect) collect(scores, y []float32, a *kernel.Operands) {
	sel := o.p.Selection
	ranked := *a
	if sel.ScoreScale != 0 {
		ranked.Scale = float32(sel.ScoreScale)
	}
	n, width := a.Len, sel.ScoreWidth(a.Len)
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
	// SparseD: each row holds the results of two softmaxes.
	gen := width - n
	o.team().Scores(scores[:len(scores)-gen], width, &ranked, o.p.Group, 0)
	o.team().Scores(scores[n:], width, &ranked, o.p.Group, n-gen)
}

// collectBlock collects the scores of the active rows of the step's block, for GroupTopK.
func (o *scoreCollect) collectBlock(a *kernel.Operands) {
	pass, block := o.p.State.Step().Pass(), *a
	block.From, block.To = pass.From-pass.First, pass.To-pass.First
	o.team().Scores(o.p.State.MakeBlockScores(a.Batch, a.Heads, o.p.Group), a.Len, &block, o.p.Group, 0)
}

func (o *scoreCollect) MergesWith(other gorgonia.Op) bool {
	s, ok := other.(*scoreCollect)
	return ok && s.p.State == o.p.State
}

var _ exec.Operator = (*scoreCollect)(nil)
