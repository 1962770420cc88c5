package pulsecol_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestAmongGorgoniasOperators puts a layer among operators of Gorgonia that preallocate,
// reuse registers and work in place, and compares every step with the same calculation in
// three separate graphs.
func TestAmongGorgoniasOperators(t *testing.T) {
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 3}}
	a := attncase.Seeded(1, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 40, HeadDim: 4})
	size := len(a.Q)
	node := func(g *gorgonia.ExprGraph, name string) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 2, 40, 4), gorgonia.WithName(name))
	}
	two := func(f func(a, b *gorgonia.Node) (*gorgonia.Node, error)) func(a, b *gorgonia.Node) *gorgonia.Node {
		return func(a, b *gorgonia.Node) *gorgonia.Node { return must(f(a, b))(t) }
	}
	add, sub, mul := two(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Add(a, b) }), two(gorgonia.Sub), two(gorgonia.HadamardProd)
	tanh := func(a *gorgonia.Node) *gorgonia.Node { return must(gorgonia.Tanh(a))(t) }
	matmul := func(a, b *gorgonia.Node) *gorgonia.Node { // [80,4] x [4,80] x [80,4]: extern, with preallocation
		m := must(gorgonia.Reshape(a, tensor.Shape{80, 4}))(t)
		n := must(gorgonia.Reshape(b, tensor.Shape{80, 4}))(t)
		p := must(gorgonia.Mul(must(gorgonia.Mul(m, must(gorgonia.Transpose(n, 1, 0))(t)))(t), n))(t)
		return must(gorgonia.Reshape(p, tensor.Shape{1, 2, 40, 4}))(t)
	}
	// What comes before and after attention; y0 is used twice after it.
	pre := func(x, z *gorgonia.Node) (q, k, v *gorgonia.Node) {
		s := add(x, z)
		q = tanh(matmul(s, mul(x, s)))
		k = sub(tanh(mul(s, s)), x)
		return q, k, add(mul(q, k), z)
	}
	post := func(y0, y1, x *gorgonia.Node) *gorgonia.Node {
		return add(matmul(tanh(add(y0, y0)), y1), mul(sub(y0, y1), add(y1, x)))
	}
	newMachine := func(g *gorgonia.ExprGraph) gorgonia.VM {
		vm := gorgonia.NewTapeMachine(g)
		t.Cleanup(func() { vm.Close() })
		return vm
	}
	let := func(n *gorgonia.Node, x []float32) {
		t.Helper()
		if err := gorgonia.Let(n, dense(x, 1, 2, 40, 4)); err != nil {
			t.Fatal(err)
		}
	}

	// All in one graph: two layers, the second's queries being the first's output.
	g := gorgonia.NewGraph()
	ctl := newController(t, cfg)
	x, z := node(g, "x"), node(g, "z")
	q, k, v := pre(x, z)
	y0 := must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
	y1 := must(pulsecol.Attention(y0, k, v, ctl.Layer(1)))(t)
	var got gorgonia.Value
	gorgonia.Read(post(y0, y1, x), &got)
	m := must(pulsecol.NewMachine(g, ctl))(t)
	defer m.Close()

	// In pieces.
	g1 := gorgonia.NewGraph()
	x1, z1 := node(g1, "x"), node(g1, "z")
	var in [3]gorgonia.Value
	for i, n := range slices.Collect(func(yield func(*gorgonia.Node) bool) {
		q, k, v := pre(x1, z1)
		_ = yield(q) && yield(k) && yield(v)
	}) {
		gorgonia.Read(n, &in[i])
	}
	vm1 := newMachine(g1)
	first, both := newRig(t, a, cfg, 1, nil), newRig(t, a, cfg, 2, nil)
	g2 := gorgonia.NewGraph()
	a0, a1, x2 := node(g2, "y0"), node(g2, "y1"), node(g2, "x")
	var want gorgonia.Value
	gorgonia.Read(post(a0, a1, x2), &want)
	vm2 := newMachine(g2)

	for _, c := range []interface{ Start(int) error }{ctl, first.ctl, both.ctl} {
		if err := c.Start(7); err != nil {
			t.Fatal(err)
		}
	}
	run := func(vm gorgonia.VM) {
		t.Helper()
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		vm.Reset()
	}
	for i, mode := range []pulsecol.Mode{refresh, reuse, reuse, refresh, reuse, reuse, refresh} {
		r := attncase.Rand(uint64(i))
		xs, zs := attncase.Normal(r, size, 1), attncase.Normal(r, size, 1)
		let(x, xs)
		let(z, zs)
		run(m)

		let(x1, xs)
		let(z1, zs)
		run(vm1)
		b := *a
		b.Q, b.K, b.V = in[0].Data().([]float32), in[1].Data().([]float32), in[2].Data().([]float32)
		let(a0, first.step(&b, mode))
		let(a1, both.step(&b, mode))
		let(x2, xs)
		run(vm2)
		tol.SameBits(t, fmt.Sprintf("step %d (%v)", i+1, mode), got.Data().([]float32), want.Data().([]float32))
		if diff := cmp.Diff(snapshot(both.ctl), snapshot(ctl)); diff != "" {
			t.Fatalf("columns after step %d: %s", i+1, diff)
		}
	}
}
