package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// attnGrad is the gradient of an attention operator with respect to one of q, k
// and v. Its inputs are those of the operator and then the gradient of the
// operator's output. An operator has one result, so there is one attnGrad for each of the
// three, and each computes the probabilities again.
type attnGrad struct {
	base
	p     exec.Attention
	wrt   int // 0 q, 1 k, 2 v
	table tableFunc
}

// tableFunc returns the keys that attention read in a step of the given mode;
// nil for all.
type tableFunc func(Mode, kernel.Shape, *tensor.Dense) (*kernel.Table, error)

// attentionGrads adds the gradients with respect to q, k and v to the graph.
// sparse says that the operator has column tables, which are its fourth input.
func attentionGrads(path string, p exec.Attention, table tableFunc, sparse bool, inputs gorgonia.Nodes, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	in := []hm.Type{float4, float4, float4}
	if sparse {
		in = append(in, bits4)
	}
	if p.Rows {
		in = append(in, int1)
	}
	in = append(withMask(&p, in...), float4)
	grads := make(gorgonia.Nodes, len(inputs))
	for wrt := range 3 {
		o := &attnGrad{newBase("AttnGrad", path, in, float4, append(hashed(&p), p.Rows, wrt, sparse)...), p, wrt, table}
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
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	last := len(ts) - 1
	a, err := operands(o, &o.p, ts[0], ts[1], ts[2], maskOf(o.p.Masked, ts[:last]))
	if err != nil {
		return nil, err
	}
	table, err := attended(o, &o.p, o.table, a.Shape, ts)
	if err != nil {
		return nil, err
	}
	dout, err := definedGrads(o, &o.p, float32s(ts[last]), ts, &a)
	if err != nil {
		return nil, err
	}
	out, g, err := o.result(ts[o.wrt].Shape()...)
	if err != nil {
		return nil, err
	}
	var dq, dk, dv []float32
	switch o.wrt {
	case 0:
		dq = g
	case 1:
		dk = g
	case 2:
		dv = g
	}
	o.team().AttentionGrad(dq, dk, dv, dout, &a, table)
	return o.finish(out)
}

// attended returns the keys that attention on the inputs read in this step; nil for
// all.
func attended(o fmt.Stringer, p *exec.Attention, table tableFunc, s kernel.Shape, in []*tensor.Dense) (*kernel.Table, error) {
	if table == nil {
		return nil, nil
	}
	mode := Reuse
	if st := p.State; st != nil {
		var ok bool
		if _, mode, ok = st.Step().Current(); !ok {
			return nil, fmt.Errorf("%s: %w", o, ErrNoMachine)
		}
		mode = st.ModeIn(mode)
	}
	return table(mode, s, in[3])
}

// definedGrads returns the gradients of attention's results: with rows zero for those that
// are undefined. in are the operator's inputs.
func definedGrads(o fmt.Stringer, p *exec.Attention, dout []float32, in []*tensor.Dense, a *kernel.Operands) ([]float32, error) {
	if !p.Rows {
		return dout, nil
	}
	from, to, err := selectedRange(o, int32s(in[4]), a.Batch, a.Len)
	if err != nil {
		return nil, err
	}
	defined, head := make([]float32, len(dout)), a.Len*a.HeadDim
	for at := 0; at < len(dout); at += head {
		copy(defined[at+from*a.HeadDim:at+to*a.HeadDim], dout[at+from*a.HeadDim:])
	}
	return defined, nil
}

// addGradients is DoDiff of the attention operator b: it adds the contribution of its
// output's gradient to the gradients of q, k and v, its first inputs.
func (b *base) addGradients(p *exec.Attention, table tableFunc, inputs gorgonia.Nodes, output *gorgonia.Node) (err error) {
	defer recovered(b, &err)
	dy, err := gradient(output)
	if err != nil {
		return fmt.Errorf("%s: %w", b, err)
	}
	if isZero(dy) {
		return nil
	}
	if dy.RequiresIterator() {
		dy = dy.Materialize().(*tensor.Dense)
	}
	ts, err := b.inputValues(inputs)
	if err != nil {
		return err
	}
	a, err := operands(b, p, ts[0], ts[1], ts[2], maskOf(p.Masked, ts))
	if err != nil {
		return err
	}
	if len(float32s(dy)) != len(a.Q) {
		return fmt.Errorf("%s: %w: the gradient of its output has shape %v, want %v", b, ErrValue, dy.Shape(), ts[0].Shape())
	}
	dout, err := definedGrads(b, p, float32s(dy), ts, &a)
	if err != nil {
		return err
	}
	keys, err := attended(b, p, table, a.Shape, ts)
	if err != nil {
		return err
	}
	grads := [3][]float32{make([]float32, len(a.Q)), make([]float32, len(a.K)), make([]float32, len(a.V))}
	b.team().AttentionGrad(grads[0], grads[1], grads[2], dout, &a, keys)
	for i, grad := range grads {
		if err := b.addTo(inputs, i, grad); err != nil {
			return err
		}
	}
	return nil
}

// Spec is nil: there is no implementation of the gradient on a device.
func (o *attnGrad) Spec() any { return nil }

func (o *attnGrad) Layer() *exec.State { return o.p.State }

func (o *attnGrad) MergesWith(other gorgonia.Op) bool {
	g, ok := other.(*attnGrad)
	return ok && g.p.State == o.p.State
}

var _ gorgonia.SDOp = (*attnGrad)(nil)

// firstThree says that an operator of so many inputs is differentiable in the first three.
func firstThree(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range min(3, inputs) {
		wrt[i] = true
	}
	return wrt
}
