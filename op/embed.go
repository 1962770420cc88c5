package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type embed struct {
	base
	table kernel.Matrix
}

// NewEmbed returns the embedding named by path, which looks tokens up in a table [V,D]:
// ids [B,N] int32 -> [B,N,D]. An id outside [0, V) is an ErrValue of the run. The table
// is a constant (see NewTrainedEmbed), so that there is nothing to differentiate.
func NewEmbed(path string, table Weight) gorgonia.Op {
	return newEmbed(path, kernel.Matrix(table), nil)
}

func newEmbed(path string, table kernel.Matrix, preload []gorgonia.TensorType) *embed {
	in := []hm.Type{int2}
	for _, t := range preload {
		in = append(in, t)
	}
	b := newBase("Embed", path, in, float3, table.Rows, table.Cols)
	b.slopes = make([]slope, len(in))
	return &embed{b, table}
}

func (o *embed) Preload(types []gorgonia.TensorType) gorgonia.Op {
	return newEmbed(o.path, o.table, types)
}

func (o *embed) Spec() any { return exec.Embed{Table: o.table} }

func (o *embed) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkPrecision(o.table.Precision); err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	return tensor.Shape{s[0][0], s[0][1], o.table.Cols}, nil
}

func (o *embed) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	ids, s := int32s(ts[0]), ts[0].Shape()
	if err := checkIDs(o, ids, s[1], o.table.Rows); err != nil {
		return nil, err
	}
	out, y, err := o.result(s[0], s[1], o.table.Cols)
	if err != nil {
		return nil, err
	}
	o.team().Embed(y, ids, &o.table)
	return o.finish(out)
}

func (o *embed) MergesWith(other gorgonia.Op) bool {
	e, ok := other.(*embed)
	return ok && sameWeight(&o.table, &e.table)
}

var (
	_ exec.Operator  = (*embed)(nil)
	_ exec.Preloader = (*embed)(nil)
)
