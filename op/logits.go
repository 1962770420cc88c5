package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Logits is the language model head at chosen rows only:
// x [B,N,D], rows [R] int32 -> [R,V]. Entry r of rows is b*N+i for token i of
// batch row b, or negative for none; row r of the result is then not touched,
// holds anything, and costs nothing. A sampler reads few rows of a long sequence,
// so this is exact and saves most of the head's time and memory.
type Logits struct {
	base
	weight Weight    // [V, D]
	wanted []float32 // the rows of x for one product; kept under a step
}

// NewLogits returns the head named by path.
func NewLogits(path string, weight Weight) *Logits {
	return &Logits{newBase("Logits", path, []hm.Type{float3, int1}, float2, weight.Rows, weight.Cols, weight.Precision.String()), weight, nil}
}

func (o *Logits) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkFeatures(o, s[0], &o.weight); err != nil {
		return nil, err
	}
	return tensor.Shape{s[1][0], o.weight.Rows}, nil
}

func (o *Logits) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.values(in)
	if err != nil {
		return nil, err
	}
	s, x, rows := ts[0].Shape(), float32s(ts[0]), int32s(ts[1])
	n, d, vocab := s[0]*s[1], s[2], o.weight.Rows
	for r, at := range rows {
		if int(at) >= n {
			return nil, fmt.Errorf("%s: %w: rows[%d] is %d, the input has %d rows", o, ErrValue, r, at, n)
		}
	}
	out, y := o.result(len(rows), vocab)
	// Runs of wanted rows go through one product each.
	wanted := o.wanted[:0]
	for r := 0; r < len(rows); {
		if rows[r] < 0 {
			r++
			continue
		}
		first := r
		wanted = wanted[:0]
		for ; r < len(rows) && rows[r] >= 0; r++ {
			wanted = append(wanted, x[int(rows[r])*d:(int(rows[r])+1)*d]...)
		}
		o.team().Linear(y[first*vocab:r*vocab], wanted, r-first, &o.weight, nil)
	}
	if o.step != nil {
		o.wanted = wanted
	}
	return o.finish(out, ts)
}

func (o *Logits) mergesWith(other gorgonia.Op) bool {
	l, ok := other.(*Logits)
	return ok && sameWeight(&o.weight, &l.weight)
}

var _ gorgonia.SDOp = (*Logits)(nil)
