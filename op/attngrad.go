package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// attnGrad is the gradient of an attention operator with respect to one of q, k
// and v. Its inputs are those of the operator and then the gradient of the
// operator's output. An operator has one result, so there is one attnGrad for
// each of the three, and each goes through the probabilities again.
type attnGrad struct {
	base
	p     AttentionParams
	wrt   int // 0 q, 1 k, 2 v
	table tableFunc
}

// tableFunc returns the keys that attention read in a step of the given mode;
// nil for all.
type tableFunc func(Mode, kernel.Shape, *tensor.Dense) (*kernel.Table, error)

// attentionGrads adds the gradients with respect to q, k and v to the graph.
// sparse says that the operator has column tables, which are its fourth input.
func attentionGrads(path string, p AttentionParams, table tableFunc, sparse bool, inputs gorgonia.Nodes, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	in := []hm.Type{float4, float4, float4}
	if sparse {
		in = append(in, bits4)
	}
	in = append(p.masked(in...), float4)
	grads := make(gorgonia.Nodes, len(inputs))
	for wrt := range 3 {
		o := &attnGrad{newBase("AttnGrad", path, in, float4, append(p.params(), wrt, sparse)...), p, wrt, table}
		n, err := Apply(o, append(append(gorgonia.Nodes{}, inputs...), grad)...)
		if err != nil {
			return nil, err
		}
		grads[wrt] = n
	}
	return grads, nil
}

func (o *attnGrad) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	return s[o.wrt].Clone(), nil
}

func (o *attnGrad) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.values(in)
	if err != nil {
		return nil, err
	}
	last := len(ts) - 1
	a, err := operands(o, &o.p, ts[0], ts[1], ts[2], maskOf(o.p.Masked, ts[:last]))
	if err != nil {
		return nil, err
	}
	var table *kernel.Table
	if o.table != nil {
		mode := Reuse
		if st := o.p.State; st != nil {
			var ok bool
			if _, mode, ok = st.step.current(); !ok {
				return nil, fmt.Errorf("%s: %w", o, ErrNoMachine)
			}
		}
		if table, err = o.table(mode, a.Shape, ts[3]); err != nil {
			return nil, err
		}
	}
	out, g := o.result(ts[o.wrt].Shape()...)
	var dq, dk, dv []float32
	switch o.wrt {
	case 0:
		dq = g
	case 1:
		dk = g
	case 2:
		dv = g
	}
	o.team().AttentionGrad(dq, dk, dv, float32s(ts[last]), &a, table)
	return o.finish(out, ts)
}

func (o *attnGrad) mergesWith(other gorgonia.Op) bool {
	g, ok := other.(*attnGrad)
	return ok && g.p.State == o.p.State
}

var _ gorgonia.SDOp = (*attnGrad)(nil)
