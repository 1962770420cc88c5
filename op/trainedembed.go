package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type trainedEmbed struct{ base }

// NewTrainedEmbed is NewEmbed with the table as an input: ids [B,N] int32, table [V,D] ->
// [B,N,D]. It is differentiable in the table, whose gradient is of the table's size, and runs
// on the CPU only.
func NewTrainedEmbed(path string) gorgonia.Op {
	b := newBase("TrainedEmbed", path, []hm.Type{int2, float2}, float3)
	b.slopes = []slope{{}, {reads: []int{0}, compute: func(r *slopeRun) error {
		d := r.shape[1]
		clear(r.dx)
		for i, id := range int32s(r.in[0]) {
			addFloats(r.dx[int(id)*d:][:d], r.dy[i*d:])
		}
		return nil
	}}}
	return &trainedEmbed{b}
}

// Spec is nil: there is no implementation on a device.
func (o *trainedEmbed) Spec() any { return nil }

func (o *trainedEmbed) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], s[0][1], s[1][1]}, nil
}

func (o *trainedEmbed) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	ids, s, table := int32s(ts[0]), ts[0].Shape(), ts[1].Shape()
	if err := checkIDs(o, ids, s[1], table[0]); err != nil {
		return nil, err
	}
	d := table[1]
	out, y, err := o.result(s[0], s[1], d)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		copy(y[i*d:][:d], float32s(ts[1])[int(id)*d:])
	}
	return o.finish(out)
}

// checkIDs checks token ids [B,N] against the number of rows of a table.
func checkIDs(o fmt.Stringer, ids []int32, n, vocab int) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("%s: %w: token id %d at row %d, position %d is outside the vocabulary [0, %d)", o, ErrValue, id, i/n, i%n, vocab)
		}
	}
	return nil
}

var _ exec.Operator = (*trainedEmbed)(nil)
