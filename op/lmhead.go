package op

import (
	"fmt"
	"iter"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type lmHead struct {
	base
	weight kernel.Matrix
}

// NewLMHead returns the language model head named by path, with a weight [V,D], for the
// rows of GatherRows: x [1,R,D], rows [R] int32 -> logits [R,V]. Where entry r of rows is
// negative, row r of the result is undefined, and the CPU does not compute it. It is
// differentiable in x.
func NewLMHead(path string, weight Weight) gorgonia.Op {
	b := newBase("LMHead", path, []hm.Type{float3, int1}, float2, weight.Rows, weight.Cols, weight.Precision.String())
	o := &lmHead{b, kernel.Matrix(weight)}
	o.slopes = []slope{{reads: []int{1}, compute: o.inputGrad}, {}}
	return o
}

// inputGrad is the gradient with respect to x, zero for rows that are not selected.
func (o *lmHead) inputGrad(r *slopeRun) error {
	d, vocab := r.shape[2], o.weight.Rows
	clear(r.dx)
	for first, end := range selectedRuns(int32s(r.in[1])) {
		r.team.MatMul(kernel.MatMul{
			M: end - first, N: d, K: vocab,
			A: r.dy[first*vocab:], LDA: vocab, W: &o.weight, C: r.dx[first*d:], LDC: d, Scale: 1,
		})
	}
	return nil
}

// selectedRuns are the runs [first, end) of entries of rows that are not negative. Each is one
// product.
func selectedRuns(rows []int32) iter.Seq2[int, int] {
	return func(yield func(first, end int) bool) {
		for r := 0; r < len(rows); {
			if rows[r] < 0 {
				r++
				continue
			}
			first := r
			for r < len(rows) && rows[r] >= 0 {
				r++
			}
			if !yield(first, r) {
				return
			}
		}
	}
}

func (o *lmHead) Spec() any { return exec.LMHead{Weight: o.weight} }

func (o *lmHead) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkFeatures(o, s[0], &o.weight); err != nil {
		return nil, err
	}
	if err := checkPrecision(o.weight.Precision); err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	if err := checkSelected(o, s[0], s[1]); err != nil {
		return nil, err
	}
	return tensor.Shape{s[1][0], o.weight.Rows}, nil
}

// checkSelected checks that there is an entry of rows for each row of x.
func checkSelected(o fmt.Stringer, x, rows tensor.Shape) error {
	if x[0] != 1 || x[1] != rows[0] {
		return fmt.Errorf("%s: %w: input %v, want [1 %d %d] for the %d selected rows", o, ErrShape, x, rows[0], x[2], rows[0])
	}
	return nil
}

func (o *lmHead) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	if err := checkSelected(o, ts[0].Shape(), ts[1].Shape()); err != nil {
		return nil, err
	}
	x, rows, d, vocab := float32s(ts[0]), int32s(ts[1]), ts[0].Shape()[2], o.weight.Rows
	out, y, err := o.result(len(rows), vocab)
	if err != nil {
		return nil, err
	}
	for first, end := range selectedRuns(rows) {
		o.team().Linear(y[first*vocab:end*vocab], x[first*d:end*d], end-first, &o.weight, nil)
	}
	return o.finish(out)
}

func (o *lmHead) MergesWith(other gorgonia.Op) bool {
	l, ok := other.(*lmHead)
	return ok && sameWeight(&o.weight, &l.weight)
}

var _ exec.Operator = (*lmHead)(nil)
