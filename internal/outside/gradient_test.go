package outside_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gradientCase is attention with random inputs and a cost, sum(weights * attention).
type gradientCase struct {
	r             *rand.Rand
	g             *gorgonia.ExprGraph
	a             *operands
	q, k, v, mask *gorgonia.Node
	weights       []float32
	cost          *gorgonia.Node
	symbols       [3]func() []float32 // the gradients in a tape machine's graph
	lisp          bool
}

func drawGradient(r *rand.Rand) *gradientCase {
	s := shape{batch: 1 + r.IntN(2), kvHeads: 1 + r.IntN(2), n: 1 + r.IntN(7), dim: 1 + r.IntN(4)}
	s.heads = s.kvHeads * pick(r, 1, 1, 2, 3, 7)
	c := &gradientCase{r: r, g: gorgonia.NewGraph(), lisp: r.IntN(2) == 0}
	in := func(name string, heads int) (*gorgonia.Node, array) {
		x := normal(r, s.batch*heads*s.n*s.dim, pick(r, 0.3, 1, 1, 2))
		return input(c.g, name, x, s.batch, heads, s.n, s.dim), exact(x)
	}
	c.a = &operands{batch: s.batch, heads: s.heads, kvHeads: s.kvHeads, n: s.n, dim: s.dim, scale: pick(r, 0, 0, 0.5, 1)}
	c.q, c.a.q = in("q", s.heads)
	c.k, c.a.k = in("k", s.kvHeads)
	c.v, c.a.v = in("v", s.kvHeads)
	if r.IntN(3) == 0 {
		c.a.valid = drawMask(r, s.batch, s.n)
		c.mask = input(c.g, "mask", c.a.valid, s.batch, s.n)
	}
	c.weights = normal(r, s.batch*s.heads*s.n*s.dim, 1)
	for i := range c.weights { // what padding queries give is undefined
		if !c.a.real(i/(s.heads*s.n*s.dim), i/s.dim%s.n) {
			c.weights[i] = 0
		}
	}
	return c
}

// from adds the cost of y, and for a tape machine the gradients.
func (c *gradientCase) from(t *testing.T, y *gorgonia.Node) {
	t.Helper()
	w := input(c.g, "weights", c.weights, y.Shape()...)
	c.cost = must(gorgonia.Sum(must(gorgonia.HadamardProd(y, w))(t)))(t)
	if c.lisp {
		return
	}
	grad := op.Grad
	if c.r.IntN(2) == 0 {
		grad = gorgonia.Grad
	}
	for i, n := range must(grad(c.cost, c.q, c.k, c.v))(t) {
		c.symbols[i] = read(n)
	}
}

// check compares the gradients that a run has left.
func (c *gradientCase) check(t *testing.T, what string, see func(b, h, i, j int) bool) (values int) {
	t.Helper()
	want := c.a.slopes(c.weights, see)
	for i, x := range []struct {
		name string
		n    *gorgonia.Node
		want array
	}{{"q", c.q, want.q}, {"k", c.k, want.k}, {"v", c.v, want.v}} {
		var got []float32
		if c.lisp {
			got = floats(must(x.n.Grad())(t))
		} else {
			got = c.symbols[i]()
		}
		if len(got) != len(x.want.v) {
			t.Fatalf("%s: %d gradients of %s, want %d", what, len(got), x.name, len(x.want.v))
		}
		for at, v := range x.want.v {
			values++
			if d := math.Abs(float64(got[at]) - v); !(d <= x.want.e[at]) {
				t.Errorf("%s: gradient of %s[%d] is %g, want %g ± %.2g", what, x.name, at, got[at], v, x.want.e[at])
				return values
			}
		}
	}
	return values
}

// TestGradients: gradients of Attention in every mode, and of the raw operators that have
// some, under a tape machine and under Lisp machines. A failure names its seed, as those
// of TestGenerations.
func TestGradients(t *testing.T) {
	n, values, kinds := cases(4000), 0, map[string]int{}
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			c := drawGradient(r)
			kind := pick(r, "Attention", "Attention", "DenseAttn", "ColumnSparseAttn")
			kinds[kind]++
			if c.lisp {
				kinds["under a Lisp machine"]++
			}
			switch kind {
			case "Attention":
				values += c.attention(t)
			case "DenseAttn":
				values += c.raw(t, must(op.NewDenseAttn("o", c.a.scale, c.mask != nil))(t), nil)
			default:
				group := pick(r, 1, 2, 3, c.a.n+1)
				table := drawTable(t, r, c.a.batch, c.a.heads, c.a.n, group)
				for table.Batch != c.a.batch || table.Heads != c.a.heads { // the operator's has a row for each
					table = drawTable(t, r, c.a.batch, c.a.heads, c.a.n, group)
				}
				p := op.AttentionParams{Group: group, Scale: c.a.scale, Masked: c.mask != nil}
				values += c.raw(t, must(op.NewColumnSparseAttn("o", p))(t), table)
			}
		})
	}
	t.Logf("%d cases, %d gradients: %v", n, values, kinds)
}

// raw checks an operator without a controller.
func (c *gradientCase) raw(t *testing.T, o gorgonia.Op, table *pulsecol.ColumnTable) int {
	in, see := []*gorgonia.Node{c.q, c.k, c.v}, all
	if table != nil {
		in = append(in, input(c.g, "columns", table.Bits, table.Batch, table.Heads, table.Groups(), (table.Len+31)/32))
		see = func(b, h, i, j int) bool { return slices.Contains(table.Keys(b, h, i/table.Group), j) }
	}
	if c.mask != nil {
		in = append(in, c.mask)
	}
	c.from(t, must(op.Apply(o, in...))(t))
	var vm gorgonia.VM
	if c.lisp {
		vm = gorgonia.NewLispMachine(c.g)
	} else {
		vm = gorgonia.NewTapeMachine(c.g)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	return c.check(t, o.String(), see)
}

// attention checks a layer over some steps.
func (c *gradientCase) attention(t *testing.T) (values int) {
	p := drawPattern(t, c.r, shape{c.a.batch, c.a.heads, c.a.kvHeads, c.a.n, c.a.dim}, 1)
	modes := stepList{pulsecol.Refresh, pulsecol.Reuse, pick(c.r, pulsecol.Dense, pulsecol.Reuse)}
	ctl := must(pulsecol.NewController(pulsecol.Config{
		Sparsity: pick(c.r, 0.3, 0.5, 0.8), GroupSize: p.group, Pattern: p.Pattern, Schedule: modes, Scale: c.a.scale, Device: pulsecol.CPU,
	}))(t)
	var opts []pulsecol.AttentionOption
	if c.mask != nil {
		opts = append(opts, pulsecol.WithPaddingMask(c.mask))
	}
	c.from(t, must(pulsecol.Attention(c.q, c.k, c.v, ctl.Layer(0), opts...))(t))
	if err := ctl.Start(len(modes)); err != nil {
		t.Fatal(err)
	}
	var m *pulsecol.Machine
	if !c.lisp {
		m = must(pulsecol.NewMachine(c.g, ctl))(t)
		defer m.Close()
	}
	g := &run{model: &model{ctl: ctl, shape: shape{n: c.a.n}}, pattern: p, tables: make([]*pulsecol.ColumnTable, 1)}
	for range modes {
		if c.lisp {
			m = must(pulsecol.Attach(gorgonia.NewLispMachine(c.g), ctl))(t)
			for _, n := range []*gorgonia.Node{c.q, c.k, c.v} {
				if v, err := n.Grad(); err == nil { // sums that the step before has left
					v.(*tensor.Dense).Zero()
				}
			}
		}
		if err := m.Step(); err != nil {
			t.Fatal(err)
		}
		see := all
		if ctl.LastMode() == pulsecol.Reuse {
			g.tables[0] = must(ctl.Columns(0))(t)
			see = g.sees(0)
		}
		values += c.check(t, fmt.Sprintf("%v step, %v", ctl.LastMode(), p.Pattern), see)
		if c.lisp {
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return values
}

// TestNoGradient: where there is no gradient Grad is an error, and so is a step of a Lisp
// machine. It is never left out.
func TestNoGradient(t *testing.T) {
	float := func(shape ...int) func(*gorgonia.ExprGraph, string) *gorgonia.Node {
		return func(g *gorgonia.ExprGraph, name string) *gorgonia.Node { return floatInput(g, name, shape...) }
	}
	ints := func(shape ...int) func(*gorgonia.ExprGraph, string) *gorgonia.Node {
		return func(g *gorgonia.ExprGraph, name string) *gorgonia.Node { return intInput(g, name, shape...) }
	}
	x4 := float(1, 2, 4, 4)
	type maker = func(*gorgonia.ExprGraph, string) *gorgonia.Node
	for name, c := range map[string]struct {
		o  gorgonia.Op
		in []maker
	}{
		"ScoreCollect":     {must(op.NewScoreCollect("o", op.AttentionParams{Group: 2}))(t), []maker{x4, x4, x4}},
		"ids of Embed":     {op.NewEmbed("o", weight(3, 4)), []maker{ints(1, 4)}},
		"DenseAttn's mask": {must(op.NewDenseAttn("o", 0, true))(t), []maker{x4, x4, x4, float(1, 4)}},
	} {
		build := func() (g *gorgonia.ExprGraph, in []*gorgonia.Node, cost *gorgonia.Node) {
			g = gorgonia.NewGraph()
			for i, of := range c.in {
				in = append(in, of(g, fmt.Sprint("in", i)))
			}
			return g, in, must(gorgonia.Sum(must(op.Apply(c.o, in...))(t)))(t)
		}
		_, in, _ := build()
		for i := range in {
			if strings.HasSuffix(name, "mask") && i != 3 {
				continue // has a gradient
			}
			_, in, cost := build()
			if _, err := op.Grad(cost, in[i]); !errors.Is(err, op.ErrNoGradient) {
				t.Errorf("%s: op.Grad with respect to input %d: %v", name, i, err)
			}
			_, in, cost = build()
			if _, err := gradOrPanic(cost, in[i]); err == nil {
				t.Errorf("%s: gorgonia.Grad with respect to input %d: no error", name, i)
			}
		}
		if strings.HasSuffix(name, "mask") || strings.HasPrefix(name, "ids") {
			continue // other inputs, if any, have gradients
		}
		g, _, _ := build()
		vm := gorgonia.NewLispMachine(g)
		if err := vm.RunAll(); !errors.Is(err, op.ErrNoGradient) {
			t.Errorf("%s under a Lisp machine: %v", name, err)
		}
		vm.Close()
	}
	// The choice of columns.
	g := gorgonia.NewGraph()
	q, k, v := x4(g, "q"), x4(g, "k"), x4(g, "v")
	scores := float(1, 2, 2, 4)(g, "scores")
	table := must(op.Apply(must(op.NewGroupTopK("t", 4, op.AttentionParams{Group: 2}))(t), scores))(t)
	cost := must(gorgonia.Sum(must(op.Apply(must(op.NewColumnSparseAttn("o", op.AttentionParams{Group: 2}))(t), q, k, v, table))(t)))(t)
	if _, err := op.Grad(cost, scores); !errors.Is(err, op.ErrNoGradient) {
		t.Errorf("with respect to scores: %v", err)
	}
}

// gradOrPanic is gorgonia.Grad, whose panic is an error here.
func gradOrPanic(cost, wrt *gorgonia.Node) (n gorgonia.Nodes, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return gorgonia.Grad(cost, wrt)
}
