package op

import (
	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// SwiGLU is silu(gate) * up, element by element: two [B,N,F] -> [B,N,F], with
// silu(x) = x / (1 + exp(-x)).
type SwiGLU struct{ base }

// NewSwiGLU returns the activation named by path.
func NewSwiGLU(path string) *SwiGLU {
	return &SwiGLU{newBase("SwiGLU", path, []hm.Type{float3, float3}, float3)}
}

func (o *SwiGLU) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	return o.elementwise(ds)
}

func (o *SwiGLU) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.values(in)
	if err != nil {
		return nil, err
	}
	out, y := o.resultOver(ts)
	o.team().SwiGLU(y, float32s(ts[0]), float32s(ts[1]))
	return o.finish(out, ts)
}

var _ gorgonia.SDOp = (*SwiGLU)(nil)
