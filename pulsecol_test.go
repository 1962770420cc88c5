package pulsecol_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func dense[E any](data []E, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(slices.Clone(data)))
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// newController returns a controller on the CPU.
func newController(t testing.TB, cfg pulsecol.Config) *pulsecol.Controller {
	t.Helper()
	cfg.Device = pulsecol.CPU
	return must(pulsecol.NewController(cfg))(t)
}

// qkv adds input nodes for the operands; mask is nil without padding.
func qkv(g *gorgonia.ExprGraph, a *kernel.Operands) (q, k, v, mask *gorgonia.Node) {
	node := func(name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	}
	q = node("q", a.Batch, a.Heads, a.Len, a.HeadDim)
	k = node("k", a.Batch, a.KVHeads, a.Len, a.HeadDim)
	v = node("v", a.Batch, a.KVHeads, a.Len, a.HeadDim)
	if a.Valid != nil {
		mask = node("mask", a.Batch, a.Len)
	}
	return q, k, v, mask
}

// rig is a graph of attention layers under a controller: layer i's queries are
// the output of layer i-1.
type rig struct {
	t             testing.TB
	g             *gorgonia.ExprGraph
	q, k, v, mask *gorgonia.Node
	y             *gorgonia.Node
	ctl           *pulsecol.Controller
	m             *pulsecol.Machine
	out           gorgonia.Value
}

// plan puts the rig's intermediate values into a workspace.
func (r *rig) plan() {
	r.t.Helper()
	if err := op.NewWorkspace().Plan(r.g, r.ctl.Modes()); err != nil {
		r.t.Fatal(err)
	}
}

// newRig builds and compiles layers layers for operands of a's shape. between, if not nil,
// adds nodes between two layers.
func newRig(t testing.TB, a *kernel.Operands, cfg pulsecol.Config, layers int, between func(y *gorgonia.Node) *gorgonia.Node) *rig {
	t.Helper()
	r := &rig{t: t, g: gorgonia.NewGraph(), ctl: newController(t, cfg)}
	r.q, r.k, r.v, r.mask = qkv(r.g, a)
	var opts []pulsecol.AttentionOption
	if r.mask != nil {
		opts = append(opts, pulsecol.WithPaddingMask(r.mask))
	}
	r.y = r.q
	for i := range layers {
		if i > 0 && between != nil {
			r.y = between(r.y)
		}
		r.y = must(pulsecol.Attention(r.y, r.k, r.v, r.ctl.Layer(i), opts...))(t)
	}
	gorgonia.Read(r.y, &r.out)
	r.m = must(pulsecol.NewMachine(r.g, r.ctl))(t)
	t.Cleanup(func() { r.m.Close() })
	return r
}

// let sets the inputs of the next step.
func (r *rig) let(a *kernel.Operands) {
	r.t.Helper()
	for n, x := range map[*gorgonia.Node][]float32{r.q: a.Q, r.k: a.K, r.v: a.V, r.mask: a.Valid} {
		if n == nil {
			continue
		}
		if err := gorgonia.Let(n, dense(x, n.Shape()...)); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) start(total int) {
	r.t.Helper()
	if err := r.ctl.Start(total); err != nil {
		r.t.Fatal(err)
	}
}

// step runs one step on a, checks its mode and returns the output.
func (r *rig) step(a *kernel.Operands, mode pulsecol.Mode) []float32 {
	r.t.Helper()
	r.let(a)
	if got := r.ctl.Mode(); got != mode {
		r.t.Fatalf("the next step is announced as %v, want %v", got, mode)
	}
	if err := r.m.Step(); err != nil {
		r.t.Fatal(err)
	}
	if got := r.ctl.LastMode(); got != mode {
		r.t.Fatalf("the step was %v, want %v", got, mode)
	}
	return r.values()
}

// values returns a copy of the output.
func (r *rig) values() []float32 { return slices.Clone(r.out.Data().([]float32)) }

// table returns a layer's columns as the kernels take them.
func (r *rig) table(layer int) *kernel.Table {
	r.t.Helper()
	c := must(r.ctl.Columns(layer))(r.t)
	return &kernel.Table{Bits: c.Bits, Group: c.Group, Reach: -1}
}

func caseName(s kernel.Shape, group int) string {
	return fmt.Sprintf("B%dH%dkv%dN%dD%d-group%d", s.Batch, s.Heads, s.KVHeads, s.Len, s.HeadDim, group)
}
