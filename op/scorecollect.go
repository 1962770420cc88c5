package op

import (
	"time"

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
// padding keys score 0 and padding queries do not count. SparseD's selection
// widens a row by the scores over the generation part alone.
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
	return &ScoreCollect{b, p, p.State}, nil
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
	return o.shape(sh), nil
}

func (o *ScoreCollect) shape(s kernel.Shape) tensor.Shape {
	return tensor.Shape{s.Batch, s.Heads, kernel.Groups(s.Len, o.p.Group), o.p.Selection.scoreWidth(s.Len)}
}

func (o *ScoreCollect) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.values(in)
	if err != nil {
		return nil, err
	}
	a, err := operands(o, o.p.Scale, ts[0], ts[1], ts[2], maskOf(o.p.Masked, ts))
	if err != nil {
		return nil, err
	}
	var out *tensor.Dense
	if st := o.state; st != nil {
		mode, err := st.begin(o, &st.scored, nil)
		if err != nil {
			return nil, err
		}
		defer st.clock(mode, time.Now())
		if mode != Refresh || o.p.Selection.Kind == SelectStatic {
			o.done(ts)
			return placeholder(), nil
		}
		out, _ = st.sparse.result(ts[0].Shape()...)
	}
	scores, s := o.result(o.shape(a.Shape)...)
	o.collect(s, out, a)
	if o.state != nil {
		o.state.out = out
	}
	o.done(ts)
	return scores, nil
}

// collect fills scores and, if out is not nil, the output of full attention.
func (o *ScoreCollect) collect(scores []float32, out *tensor.Dense, a *kernel.Operands) {
	var y []float32
	if out != nil {
		y = float32s(out)
	}
	sel := o.p.Selection
	ranked := *a
	if sel.ScoreScale != 0 {
		ranked.Scale = float32(sel.ScoreScale)
	}
	n, width := a.Len, sel.scoreWidth(a.Len)
	switch {
	case y != nil && width == n && ranked.Scale == a.Scale:
		kernel.DenseScores(y, scores, a, o.p.Group)
		return
	case y != nil:
		kernel.Dense(y, nil, a)
	}
	if width == n {
		kernel.Scores(scores, &ranked, o.p.Group, 0)
		return
	}
	// SparseD: two softmaxes, side by side in each row.
	rows := a.Batch * a.Heads * kernel.Groups(n, o.p.Group)
	all := make([]float32, rows*n)
	kernel.Scores(all, &ranked, o.p.Group, 0)
	part := make([]float32, rows*(width-n))
	kernel.Scores(part, &ranked, o.p.Group, n-(width-n))
	for r := range rows {
		copy(scores[r*width:], all[r*n:(r+1)*n])
		copy(scores[r*width+n:], part[r*(width-n):(r+1)*(width-n)])
	}
}

func (o *ScoreCollect) mergesWith(other gorgonia.Op) bool {
	s, ok := other.(*ScoreCollect)
	return ok && s.state == o.state
}

var _ gorgonia.SDOp = (*ScoreCollect)(nil)
