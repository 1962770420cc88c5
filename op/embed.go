package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Embed looks tokens up in an embedding table: ids [B,N] int32 -> [B,N,Cols].
// An id outside [0, Rows) is an error of the run.
type Embed struct {
	base
	table Weight
}

// NewEmbed returns the embedding named by path. Behind the ids it takes inputs of the
// given types and does nothing with them; see graph.Embed.
func NewEmbed(path string, table Weight, ahead ...gorgonia.TensorType) *Embed {
	in := []hm.Type{int2}
	for _, t := range ahead {
		in = append(in, t)
	}
	return &Embed{newBase("Embed", path, in, float3, table.Rows, table.Cols), table}
}

func (o *Embed) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], s[0][1], o.table.Cols}, nil
}

func (o *Embed) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	ids, s := int32s(ts[0]), ts[0].Shape()
	for i, id := range ids {
		if id < 0 || int(id) >= o.table.Rows {
			return nil, fmt.Errorf("%s: %w: token id %d at row %d, position %d is outside the vocabulary [0, %d)", o, ErrValue, id, i/s[1], i%s[1], o.table.Rows)
		}
	}
	out, y, err := o.result(s[0], s[1], o.table.Cols)
	if err != nil {
		return nil, err
	}
	o.team().Embed(y, ids, &o.table)
	return o.finish(out)
}

func (o *Embed) mergesWith(other gorgonia.Op) bool {
	e, ok := other.(*Embed)
	return ok && sameWeight(&o.table, &e.table)
}

var _ gorgonia.SDOp = (*Embed)(nil)
