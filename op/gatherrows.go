package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type gatherRows struct{ base }

// NewGatherRows returns the selection of tokens from a batch, named by path:
// x [B,N,D], rows [R] int32 -> [1,R,D]. Entry r of rows is b*N+i for token i of
// batch row b, or negative for none, which gives zeros. An entry from B*N on is an
// ErrValue of the run.
//
// A sampler reads few rows of a long sequence. What a model computes token by token after
// its last attention it may compute for these alone, with the same results. It is
// differentiable in x.
func NewGatherRows(path string) gorgonia.Op {
	b := newBase("GatherRows", path, []hm.Type{float3, int1}, float3)
	b.slopes = []slope{{compute: scatterRows, reads: []int{1}}, {}}
	return &gatherRows{b}
}

// scatterRows adds the rows of dy to those of x that they come from.
func scatterRows(r *slopeRun) error {
	d := r.shape[2]
	clear(r.dx)
	for i, at := range int32s(r.in[1]) {
		if at < 0 {
			continue
		}
		addFloats(r.dx[int(at)*d:][:d], r.dy[i*d:])
	}
	return nil
}

// addFloats adds to each element of dst that of src.
func addFloats(dst, src []float32) {
	for i := range dst {
		dst[i] += src[i]
	}
}

func (o *gatherRows) Spec() any { return exec.GatherRows{} }

func (o *gatherRows) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	return tensor.Shape{1, s[1][0], s[0][2]}, nil
}

func (o *gatherRows) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	s, x, rows := ts[0].Shape(), float32s(ts[0]), int32s(ts[1])
	n, d := s[0]*s[1], s[2]
	for r, at := range rows {
		if int(at) >= n {
			return nil, fmt.Errorf("%s: %w: rows[%d] is %d, the input has %d rows", o, ErrValue, r, at, n)
		}
	}
	out, y, err := o.result(1, len(rows), d)
	if err != nil {
		return nil, err
	}
	for r, at := range rows {
		to := y[r*d : (r+1)*d]
		if at < 0 {
			clear(to)
			continue
		}
		copy(to, x[int(at)*d:])
	}
	return o.finish(out)
}

var _ exec.Operator = (*gatherRows)(nil)
