package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Logits is the language model head for rows that TakeRows has taken:
// x [1,R,D], rows [R] int32 -> [R,V]. Where entry r of rows is negative, row r of
// the result is not touched, holds anything, and costs nothing.
type Logits struct {
	base
	weight Weight // [V, D]
}

// NewLogits returns the head named by path.
func NewLogits(path string, weight Weight) *Logits {
	return &Logits{newBase("Logits", path, []hm.Type{float3, int1}, float2, weight.Rows, weight.Cols, weight.Precision.String()), weight}
}

func (o *Logits) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkFeatures(o, s[0], &o.weight); err != nil {
		return nil, err
	}
	if err := o.sameRows(s[0], s[1]); err != nil {
		return nil, err
	}
	return tensor.Shape{s[1][0], o.weight.Rows}, nil
}

// sameRows checks that there is an entry of rows for each row of x.
func (o *Logits) sameRows(x, rows tensor.Shape) error {
	if x[0] != 1 || x[1] != rows[0] {
		return fmt.Errorf("%s: %w: input %v, want [1 %d %d] for the %d rows taken", o, ErrShape, x, rows[0], o.weight.Cols, rows[0])
	}
	return nil
}

func (o *Logits) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	if err := o.sameRows(ts[0].Shape(), ts[1].Shape()); err != nil {
		return nil, err
	}
	x, rows, d, vocab := float32s(ts[0]), int32s(ts[1]), ts[0].Shape()[2], o.weight.Rows
	out, y, err := o.result(len(rows), vocab)
	if err != nil {
		return nil, err
	}
	// Runs of wanted rows go through one product each.
	for r := 0; r < len(rows); {
		if rows[r] < 0 {
			r++
			continue
		}
		first := r
		for r < len(rows) && rows[r] >= 0 {
			r++
		}
		o.team().Linear(y[first*vocab:r*vocab], x[first*d:r*d], r-first, &o.weight, nil)
	}
	return o.finish(out)
}

func (o *Logits) mergesWith(other gorgonia.Op) bool {
	l, ok := other.(*Logits)
	return ok && sameWeight(&o.weight, &l.weight)
}

var _ gorgonia.SDOp = (*Logits)(nil)
