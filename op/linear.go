package op

import (
	"fmt"
	"slices"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Projection is a linear map of the features of each token, x Wᵀ + bias. The weight
// [out, in] belongs to the operator and stays in its storage type; products are of
// the weight's precision and accumulate in float32. The bias has one element for
// each row of the weight, or is nil.
type Projection = kernel.Projection

// Linear is one or several projections of the same features, whose outputs stand
// side by side: x [B,N,in] -> [B,N,sum of out]. One from NewAddLinear adds them to a
// second input of the result's shape.
type Linear struct {
	base
	parts    []Projection
	in, out  int // features
	residual bool
}

// NewLinear returns the linear layer named by path. All weights have as many
// columns.
func NewLinear(path string, parts ...Projection) (*Linear, error) {
	return newLinear("Linear", path, parts, float3)
}

// NewAddLinear returns the linear layer named by path with the residual connection
// behind it: x [B,N,in], residual [B,N,sum of out] -> residual + Linear of x.
func NewAddLinear(path string, parts ...Projection) (*Linear, error) {
	return newLinear("AddLinear", path, parts, float3, float3)
}

func newLinear(kind, path string, parts []Projection, in ...hm.Type) (*Linear, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("op: %s %q: %w: no projection", kind, path, ErrShape)
	}
	o := &Linear{parts: slices.Clone(parts), in: parts[0].Weight.Cols, residual: len(in) == 2}
	var params []any
	for i := range parts {
		p := &parts[i]
		if err := checkProjection(p, o.in); err != nil {
			return nil, fmt.Errorf("op: %s %q: projection %d: %w", kind, path, i, err)
		}
		params = append(params, projectionParams(p)...)
		o.out += p.Weight.Rows
	}
	o.base = newBase(kind, path, in, float3, params...)
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
	if err := w.Precision.Validate(); err != nil {
		return fmt.Errorf("%w: %v", ErrValue, err)
	}
	return nil
}

// projectionParams is a projection's part in its operator's identity.
func projectionParams(p *Projection) []any {
	return []any{p.Weight.Rows, p.Weight.Cols, p.Bias != nil, p.Weight.Precision.String()}
}

// checkFeatures checks that x [B,N,in] has the features that a weight takes.
func checkFeatures(o fmt.Stringer, x tensor.Shape, w *Weight) error {
	if x[2] != w.Cols {
		return fmt.Errorf("%s: %w: input %v has %d features, weight [%d %d] takes %d", o, ErrShape, x, x[2], w.Rows, w.Cols, w.Cols)
	}
	return nil
}

func (o *Linear) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if err := checkFeatures(o, s[0], &o.parts[0].Weight); err != nil {
		return nil, err
	}
	out := tensor.Shape{s[0][0], s[0][1], o.out}
	if o.residual && !sameShape(s[1], out) {
		return nil, fmt.Errorf("%s: %w: residual %v and result %v differ", o, ErrShape, s[1], out)
	}
	return out, nil
}

func (o *Linear) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
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
	// Not in the residual's memory: products are summed on their own, so that the sum
	// rounds to the residual's size once.
	var residual []float32
	if o.residual {
		residual = float32s(ts[1])
	}
	o.team().Linears(y, float32s(ts[0]), residual, s[0]*s[1], o.parts)
	return o.finish(out)
}

func (o *Linear) mergesWith(other gorgonia.Op) bool {
	l, ok := other.(*Linear)
	if !ok || len(o.parts) != len(l.parts) || o.residual != l.residual {
		return false
	}
	for i := range o.parts {
		if !sameProjection(&o.parts[i], &l.parts[i]) {
			return false
		}
	}
	return true
}

// sameProjection reports whether two operators would read the same numbers.
func sameProjection(a, b *Projection) bool {
	return sameWeight(&a.Weight, &b.Weight) && sameFloats(a.Bias, b.Bias)
}

var _ gorgonia.SDOp = (*Linear)(nil)
