package pulsecol

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// AttentionOption is an optional part of one Attention call.
type AttentionOption func(*attentionOptions)

type attentionOptions struct {
	mask, rows *gorgonia.Node
	cached     int
	hasCache   bool
}

// WithPaddingMask hides padding: mask [B,N] float32 is 0 at padding positions.
// No query attends to padding, padding queries do not influence the columns,
// and the number of columns kept counts real keys only. The results of padding queries
// are undefined.
func WithPaddingMask(mask *gorgonia.Node) AttentionOption {
	return func(o *attentionOptions) { o.mask = mask }
}

// WithRows selects the tokens whose results are read, as after a model's last attention:
// rows [R] int32 holds b*N+i for token i of batch row b, and a negative number for none, as
// graph.GatherRows takes them. The results of other tokens are undefined: queries before
// the first and after the last of these tokens, over all batch rows, are left out unless a
// refresh needs them. The gradients of their results count as zero.
func WithRows(rows *gorgonia.Node) AttentionOption {
	return func(o *attentionOptions) { o.rows = rows }
}

// WithCache says that q, k and v are some consecutive rows of a sequence of n tokens, those
// that a step computes (Controller.Pass). The layer keeps the keys and values of all tokens
// from step to step. A controller whose Config has a Cache needs it. A padding mask is
// [B,n], and the rows of WithRows count those of q. The result has no gradient.
func WithCache(n int) AttentionOption {
	return func(o *attentionOptions) { o.cached, o.hasCache = n, true }
}

// Attention adds an attention layer under l's controller to the graph of q, k
// and v and returns its output.
//
// q is [B,H,N,D], k and v are [B,Hkv,N,D] with H a multiple of Hkv (query head h
// reads key head h/(H/Hkv)), all float32, already split into heads and rotated.
// The result has q's shape. A layer serves one Attention in each graph, and on a GPU one in
// all.
//
// It adds three nodes: those of op.NewScoreCollect, op.NewGroupTopK and
// op.NewColumnSparseAttn.
// The result is differentiable in q, k and v, with the columns held fixed, by op.Grad
// or gorgonia.Grad and under a Lisp machine; see Attach.
func Attention(q, k, v *gorgonia.Node, l *Layer, opts ...AttentionOption) (*gorgonia.Node, error) {
	var o attentionOptions
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	switch {
	case l == nil || l.ctl == nil:
		return nil, errors.New("pulsecol: Attention: the layer is nil, or not one of Controller.Layer(i), 0 <= i < 65536")
	case l.ctl.closed:
		return nil, ErrClosed
	case l.err != nil:
		return nil, fmt.Errorf("pulsecol: %s: %w", l.path, l.err)
	case l.sel.Kind == exec.SelectFixed && l.state.Given() == nil:
		return nil, fmt.Errorf("pulsecol: %s: Pattern %v has no table for this layer", l.path, l.cfg.Pattern)
	}
	if err := o.check(q, k, v); err != nil { // before any node is added
		return nil, fmt.Errorf("pulsecol: %s: %w: %w", l.path, op.ErrShape, err)
	}
	if err := o.checkCache(q, k, v, l); err != nil {
		return nil, fmt.Errorf("pulsecol: %s: %w", l.path, err)
	}
	device := l.ctl.DeviceFor(q.Shape()[3])
	if l.used && q.Graph() != nil && l.state.In(q.Graph()) {
		return nil, fmt.Errorf("pulsecol: %s already has its attention; use another layer", l.path)
	}
	p := op.AttentionParams{
		Group: l.group, Selection: op.Selection(l.sel), Scale: l.ctl.cfg.Scale,
		Masked: o.mask != nil, Rows: o.rows != nil, Precision: l.ctl.cfg.Precision, Cached: o.cached,
	}.In(l.state)
	n := q.Shape()[2]
	if o.hasCache {
		n = o.cached
		var err error
		if k, v, err = l.cache(device, k, v, p); err != nil {
			return nil, err
		}
	}
	collect, err := op.NewScoreCollect(l.path, p)
	if err != nil {
		return nil, err
	}
	topK, err := op.NewGroupTopK(l.path, n, p)
	if err != nil {
		return nil, err
	}
	attend, err := op.NewColumnSparseAttn(l.path, p)
	if err != nil {
		return nil, err
	}
	scores, err := l.add(device, collect, o.mask, q, k, v)
	if err != nil {
		return nil, err
	}
	columns, err := l.add(device, topK, o.mask, scores)
	if err != nil {
		return nil, err
	}
	inputs := []*gorgonia.Node{q, k, v, columns}
	if o.rows != nil {
		inputs = append(inputs, o.rows)
	}
	y, err := l.add(device, attend, o.mask, inputs...)
	if err != nil {
		return nil, err
	}
	l.used = true
	return y, nil
}

// check returns what is wrong with the type, the rank or the graph of an input. The
// operators check the sizes against each other.
func (o *attentionOptions) check(q, k, v *gorgonia.Node) error {
	for _, in := range []struct {
		is       string
		n        *gorgonia.Node
		of       tensor.Dtype
		dims     string
		optional bool
	}{
		{"q is", q, tensor.Float32, "B H N D", false},
		{"k is", k, tensor.Float32, "B Hkv N D", false},
		{"v is", v, tensor.Float32, "B Hkv N D", false},
		{"the padding mask is", o.mask, tensor.Float32, "B N", true},
		{"rows are", o.rows, tensor.Int32, "R", true},
	} {
		switch {
		case in.n == nil && in.optional:
			continue
		case in.n == nil:
			return errors.New("q, k and v must not be nil")
		}
		t, ok := in.n.Type().(gorgonia.TensorType)
		if rank := len(strings.Fields(in.dims)); !ok || t.Of != in.of || len(in.n.Shape()) != rank {
			return fmt.Errorf("%s %s, want %v [%s]", in.is, exec.Describe(in.n), in.of, in.dims)
		}
		if in.n.Graph() != nil && q.Graph() != nil && in.n.Graph() != q.Graph() {
			return fmt.Errorf("%s of a graph other than q's", in.is)
		}
	}
	return nil
}

// checkCache returns what is wrong with the use of a cache, before there are nodes for it.
func (o *attentionOptions) checkCache(q, k, v *gorgonia.Node, l *Layer) error {
	qs, ks := q.Shape(), k.Shape()
	switch cache := l.ctl.cfg.Cache; {
	case cache == NoCache && o.hasCache:
		return fmt.Errorf("%w: WithCache(%d) under a Config with Cache %v, want prefix or dual", ErrConfig, o.cached, cache)
	case cache != NoCache && !o.hasCache:
		return fmt.Errorf("%w: Cache is %v, and Attention has no option WithCache", ErrConfig, cache)
	case !o.hasCache:
	case o.cached < qs[2]:
		return fmt.Errorf("%w: WithCache(%d) for %d rows of q, want at least as many tokens", op.ErrShape, o.cached, qs[2])
	case !slices.Equal(ks, v.Shape()) || ks[0] != qs[0] || ks[2] != qs[2] || ks[3] != qs[3] || qs[1]%ks[1] != 0:
		return fmt.Errorf("%w: q %v, k %v and v %v may differ in their heads only, q's a multiple of the others'", op.ErrShape, qs, ks, v.Shape())
	case o.mask != nil && !slices.Equal(o.mask.Shape(), tensor.Shape{qs[0], o.cached}):
		return fmt.Errorf("%w: padding mask %v, want [%d %d]", op.ErrShape, o.mask.Shape(), qs[0], o.cached)
	}
	return nil
}

// cache adds the layer's keys and values of all tokens, of which k and v are some.
func (l *Layer) cache(device Device, k, v *gorgonia.Node, p op.AttentionParams) (keys, values *gorgonia.Node, err error) {
	nodes := [2]*gorgonia.Node{k, v}
	for i, half := range []op.CacheHalf{op.CachedKeys, op.CachedValues} {
		o, err := op.NewKVCache(l.path, half, p)
		if err != nil {
			return nil, nil, err
		}
		if nodes[i], err = l.add(device, o, nil, nodes[i]); err != nil {
			return nil, nil, err
		}
	}
	return nodes[0], nodes[1], nil
}

// add puts an operator into the graph, on a device, with the padding mask as its
// last input if there is one.
func (l *Layer) add(device Device, o gorgonia.Op, mask *gorgonia.Node, inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	if device == CUDA {
		var err error
		if o, err = cudaop.Wrap(o, l.ctl.cfg.Precision); err != nil {
			return nil, fmt.Errorf("pulsecol: %s: %w", l.path, err)
		}
	}
	if mask != nil {
		inputs = append(inputs, mask)
	}
	return op.Apply(o, inputs...)
}
