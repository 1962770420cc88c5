package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// SwiGLU is silu(gate of x) * up of x, element by element, for two projections and
// silu(x) = x / (1 + exp(-x)) (Shazeer, "GLU Variants Improve Transformer"):
// x [B,N,in] -> [B,N,out]. What the projections give takes no room of the graph.
type SwiGLU struct {
	base
	gate, up Projection
}

// NewSwiGLU returns the gated layer named by path. The weights of gate and up have
// one shape.
func NewSwiGLU(path string, gate, up Projection) (*SwiGLU, error) {
	for i, p := range []*Projection{&gate, &up} {
		if err := checkProjection(p, gate.Weight.Cols); err != nil {
			return nil, fmt.Errorf("op: SwiGLU %q: %s: %w", path, []string{"gate", "up"}[i], err)
		}
	}
	if gate.Weight.Rows != up.Weight.Rows {
		return nil, fmt.Errorf("op: SwiGLU %q: %w: gate has %d outputs, up %d", path, ErrShape, gate.Weight.Rows, up.Weight.Rows)
	}
	params := append(projectionParams(&gate), projectionParams(&up)...)
	return &SwiGLU{newBase("SwiGLU", path, []hm.Type{float3}, float3, params...), gate, up}, nil
}

func (o *SwiGLU) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkFeatures(o, s[0], &o.gate.Weight); err != nil {
		return nil, err
	}
	return tensor.Shape{s[0][0], s[0][1], o.gate.Weight.Rows}, nil
}

func (o *SwiGLU) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	s := ts[0].Shape()
	out, y, err := o.result(s[0], s[1], o.gate.Weight.Rows)
	if err != nil {
		return nil, err
	}
	o.team().SwiGLU(y, float32s(ts[0]), s[0]*s[1], o.gate, o.up)
	return o.finish(out)
}

func (o *SwiGLU) mergesWith(other gorgonia.Op) bool {
	g, ok := other.(*SwiGLU)
	return ok && sameProjection(&o.gate, &g.gate) && sameProjection(&o.up, &g.up)
}

var _ gorgonia.SDOp = (*SwiGLU)(nil)
