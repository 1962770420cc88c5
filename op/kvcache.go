package op

import (
	"fmt"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type kvCache struct {
	base
	spec exec.KVCache
}

// CacheHalf is one of the two tensors of a cache.
type CacheHalf = exec.Half

// The halves of a cache.
const (
	CachedKeys   = exec.Keys
	CachedValues = exec.Values
)

// NewKVCache returns the keys or the values of a sequence of p.Cached tokens, named by
// path, of which a step computes M:
//
//	x [B,Hkv,M,D] -> [B,Hkv,p.Cached,D]
//
// The layer of a controller keeps them from step to step. The rows of x take the places of
// those that the step computes (pulsecol.Controller.Pass); the others are those of earlier
// steps. It has no gradient.
//
// Parameters without a controller's layer are an ErrValue.
func NewKVCache(path string, half CacheHalf, p AttentionParams) (gorgonia.Op, error) {
	const kind = "KVCache"
	a, err := p.spec(kind, path)
	if err != nil {
		return nil, err
	}
	if a.Cached == 0 {
		return nil, fmt.Errorf("op: %s %q: %w: Cached is 0, want the number of tokens", kind, path, ErrValue)
	}
	o := &kvCache{newBase(kind, path, []hm.Type{float4}, float4, half.String(), a.Cached), exec.KVCache{State: a.State, Half: half, Len: a.Cached}}
	o.Bind(a.State.Step())
	return o, nil
}

func (o *kvCache) Spec() any { return o.spec }

func (o *kvCache) Layer() *exec.State { return o.spec.State }

func (o *kvCache) InferShape(ds ...gorgonia.DimSizer) (tensor.Shape, error) {
	s, err := o.shapes(ds)
	if err != nil {
		return nil, err
	}
	if s[0][2] > o.spec.Len {
		return nil, fmt.Errorf("%s: %w: %d rows of a sequence of %d tokens", o, ErrShape, s[0][2], o.spec.Len)
	}
	return tensor.Shape{s[0][0], s[0][1], o.spec.Len, s[0][3]}, nil
}

func (o *kvCache) Do(in ...gorgonia.Value) (v gorgonia.Value, err error) {
	defer recovered(o, &err)
	ts, err := o.start(in)
	if err != nil {
		return nil, err
	}
	s, st := ts[0].Shape(), o.spec.State
	if _, _, ok := st.Step().Current(); !ok {
		return nil, fmt.Errorf("%s: %w", o, ErrNoMachine)
	}
	if pass := st.Step().Pass(); pass.Kind != exec.Whole && s[2] != pass.Rows {
		return nil, fmt.Errorf("%s: %w: the graph computes %d rows, the step (%v) %d from %d on", o, ErrValue, s[2], pass.Kind, pass.Rows, pass.First)
	}
	held, err := st.Cached(o.spec.Half, float32s(ts[0]), exec.CacheShape{Batch: s[0], KVHeads: s[1], Len: o.spec.Len, HeadDim: s[3]})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o, err)
	}
	return o.finish(held)
}

// PlanMemory asks for nothing: the layer keeps the result.
func (o *kvCache) PlanMemory(*exec.Run) error { return nil }

func (o *kvCache) MergesWith(other gorgonia.Op) bool {
	c, ok := other.(*kvCache)
	return ok && c.spec.State == o.spec.State
}

var _ exec.Operator = (*kvCache)(nil)
