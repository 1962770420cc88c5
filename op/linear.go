package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Projection is a linear map of the features of each token, x Wᵀ + bias. The weight
// [out, in] belongs to the operator and stays in its storage type; products are of
// the weight's precision and accumulate in float32.
type Projection struct {
	Weight Weight
	Bias   []float32 // [Weight.Rows], or nil for none
}

func (p *Projection) spec() kernel.Projection {
	return kernel.Projection{Weight: kernel.Matrix(p.Weight), Bias: p.Bias}
}

type linear struct {
	base
	spec exec.Linear
	out  int // features
}

// NewLinear returns the linear layer named by path: the outputs of one or several
// projections of the same features, one after the other, x [B,N,in] -> [B,N,sum of out].
// It is differentiable in x; its weights are constants (see NewTrainedLinear).
//
// No projection, weights with different numbers of columns or a bias of another length
// than its weight's rows are an ErrShape, an unknown precision is an ErrValue.
func NewLinear(path string, parts ...Projection) (gorgonia.Op, error) {
	return newLinear("Linear", path, parts, float3)
}

// NewAddLinear is NewLinear with the residual connection that follows it:
// x [B,N,in], residual [B,N,sum of out] -> residual + Linear of x.
// It is differentiable in both.
func NewAddLinear(path string, parts ...Projection) (gorgonia.Op, error) {
	return newLinear("AddLinear", path, parts, float3, float3)
}

func newLinear(kind, path string, parts []Projection, in ...hm.Type) (gorgonia.Op, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("op: %s %q: %w: no projection", kind, path, ErrShape)
	}
	o := &linear{spec: exec.Linear{Residual: len(in) == 2}}
	var params []any
	for i := range parts {
		p := &parts[i]
		if err := checkProjection(p, parts[0].Weight.Cols); err != nil {
			return nil, fmt.Errorf("op: %s %q: projection %d: %w", kind, path, i, err)
		}
		params = append(params, projectionParams(p)...)
		o.spec.Parts = append(o.spec.Parts, p.spec())
		o.out += p.Weight.Rows
	}
	o.base = newBase(kind, path, in, float3, params...)
	o.slopes = []slope{{compute: o.inputGrad}}
	if o.spec.Residual {
		o.slopes = append(o.slopes, slope{same: true})
	}
	return o, nil
}

// checkProjection checks a projection of in features.
func checkProjection(p *Projection, in int) error {
	w := &p.Weight
	switch {
	case p.Bias != nil && len(p.Bias) != w.Rows:
		return fmt.Errorf("%w: bias has %d elements, weight %d rows", ErrShape, len(p.Bias), w.Rows)
	case w.Cols != in:
		return fmt.Errorf("%w: weight [%d %d] takes %d features, the first takes %d", ErrShape, w.Rows, w.Cols, w.Cols, in)
	}
	return checkPrecision(w.Precision)
}

func checkPrecision(p Precision) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("%w: %v", ErrValue, err)
	}
	return nil
}

// projectionParams is a projection's part in its operator's identity.
func projectionParams(p *Projection) []any {
	return []any{p.Weight.Rows, p.Weight.Cols, p.Bias != nil, p.Weight.Precision.String()}
}

// checkFeatures checks that x [B,N,in] has the features that a weight takes.
func checkFeatures(o fmt.Stringer, x tensor.Shape, w *kernel.Matrix) error {
	if x[2] != w.Cols {
		return fmt.Errorf("%s: %w: input %v has %d features, weight [%d %d] takes %d", o, ErrShape, x, x[2], w.Rows, w.Cols, w.Cols)
	}
	return nil
}

func (o *linear) Spec() any { return o.spec }

func (o *linear) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkFeatures(o, s[0], &o.spec.Parts[0].Weight); err != nil {
		return nil, err
	}
	out := tensor.Shape{s[0][0], s[0][1], o.out}
	if o.spec.Residual && !sameShape(s[1], out) {
		return nil, fmt.Errorf("%s: %w: residual %v and result %v differ", o, ErrShape, s[1], out)
	}
	return out, nil
}

func (o *linear) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	s := ts[0].Shape()
	out, y, err := o.result(s[0], s[1], o.out)
	if err != nil {
		return nil, err
	}
	// The result is not in the residual's memory: products are summed on their own, so
	// that the sum rounds to the residual's size once.
	var residual []float32
	if o.spec.Residual {
		residual = float32s(ts[1])
	}
	o.team().Linears(y, float32s(ts[0]), residual, s[0]*s[1], o.spec.Parts)
	return o.finish(out)
}

// inputGrad is the gradient with respect to x, dy W summed over the projections. Products
// are float32, as in the gradients of attention.
func (o *linear) inputGrad(r *slopeRun) error {
	first := 0
	for i := range o.spec.Parts {
		w := &o.spec.Parts[i].Weight
		r.team.MatMul(kernel.MatMul{
			M: r.shape[0] * r.shape[1], N: w.Cols, K: w.Rows,
			A: r.dy[first:], LDA: o.out, W: w, C: r.dx, LDC: w.Cols, Scale: 1, Add: i > 0,
		})
		first += w.Rows
	}
	return nil
}

func (o *linear) MergesWith(other gorgonia.Op) bool {
	l, ok := other.(*linear)
	if !ok || len(o.spec.Parts) != len(l.spec.Parts) || o.spec.Residual != l.spec.Residual {
		return false
	}
	for i := range o.spec.Parts {
		if !sameProjection(&o.spec.Parts[i], &l.spec.Parts[i]) {
			return false
		}
	}
	return true
}

// sameProjection reports whether two operators would read the same numbers.
func sameProjection(a, b *kernel.Projection) bool {
	return sameWeight(&a.Weight, &b.Weight) && sameFloats(a.Bias, b.Bias)
}

var _ exec.Operator = (*linear)(nil)
