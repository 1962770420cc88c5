package op_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gradients runs sum(weights * o(in)) under a tape machine with symbolic gradients or
// under a Lisp machine, and returns the gradients with respect to the inputs in wrt.
func gradients(t *testing.T, lisp bool, o gorgonia.Op, weights []float32, in []*tensor.Dense, wrt ...int) (grads [][]float32) {
	t.Helper()
	g := gorgonia.NewGraph()
	nodes := inputs(g, in)
	y := must(op.Apply(o, nodes...))(t)
	w := input(g, "weights", dense(weights, y.Shape()...))
	cost := must(gorgonia.Sum(must(gorgonia.HadamardProd(y, w))(t)))(t)
	values := make([]gorgonia.Value, len(wrt))
	var vm gorgonia.VM
	if lisp {
		vm = gorgonia.NewLispMachine(g)
	} else {
		var of gorgonia.Nodes
		for _, i := range wrt {
			of = append(of, nodes[i])
		}
		for i, n := range must(op.Grad(cost, of...))(t) {
			gorgonia.Read(n, &values[i])
		}
		vm = gorgonia.NewTapeMachine(g)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if lisp {
			v = must(nodes[wrt[i]].Grad())(t)
		}
		if !v.Shape().Eq(in[wrt[i]].Shape()) {
			t.Fatalf("gradient %d has shape %v, want %v", wrt[i], v.Shape(), in[wrt[i]].Shape())
		}
		grads = append(grads, float32s(v.(*tensor.Dense)))
	}
	return grads
}

// TestGradients compares the gradients of raw operators under both machines with
// central differences, at random shapes, columns and padding.
func TestGradients(t *testing.T) {
	cases := 100
	if testing.Short() {
		cases = 10
	}
	r := attncase.Rand(11)
	for i := range cases {
		s := kernel.Shape{Batch: 1 + r.IntN(2), KVHeads: 1 + r.IntN(2), Len: 1 + r.IntN(7), HeadDim: 1 + r.IntN(3)}
		s.Heads = s.KVHeads * []int{1, 2, 7}[r.IntN(3)]
		a := attncase.Seeded(r.Uint64(), s)
		for _, x := range [][]float32{a.Q, a.K, a.V} {
			for i := range x {
				x[i] = float32(math.Round(float64(x[i])*256) / 256)
			}
		}
		if r.IntN(2) == 0 {
			attncase.PadLeft(a, r.IntN(s.Len), r.IntN(s.Len+1))
		}
		padded := a.Valid != nil
		weights := attncase.Normal(r, len(a.Q), 1)
		in := qkv(a)
		table := randomTable(r, s, []int{1, 2, s.Len + 3}[r.IntN(3)])
		columns := dense(table.Bits, s.Batch, s.Heads, kernel.Groups(s.Len, table.Group), 1)
		sparseIn := append(append(append([]*tensor.Dense{}, in[:3]...), columns), in[3:]...)
		p := op.AttentionParams{Group: table.Group, Masked: padded}
		// With rows, the results outside of their range do not count.
		withRows, first, last := p, r.IntN(s.Len), r.IntN(s.Len)
		withRows.Rows = true
		rows := []int32{-1, int32(first), int32(last + (s.Batch-1)*s.Len)}
		rowsIn := slices.Insert(slices.Clone(sparseIn), 4, dense(rows, len(rows)))
		defined := make([]float32, len(weights))
		for i, w := range weights {
			if at := i / s.HeadDim % s.Len; at >= min(first, last) && at <= max(first, last) {
				defined[i] = w
			}
		}
		for _, c := range []struct {
			name  string
			op    gorgonia.Op
			in    []*tensor.Dense
			table *kernel.Table
			dout  []float32 // that count
		}{
			{"DenseAttn", must(op.NewDenseAttn("o", 0, padded))(t), in, nil, weights},
			{"ColumnSparseAttn", must(op.NewColumnSparseAttn("o", p))(t), sparseIn, table, weights},
			{"ColumnSparseAttn with rows", must(op.NewColumnSparseAttn("o", withRows))(t), rowsIn, table, defined},
		} {
			wantQ, wantK, wantV, off := ref.Slopes(c.dout, a, c.table)
			plainQ, plainK, plainV := ref.AttentionGrad[float32](c.dout, a, c.table)
			plain := [][]float32{plainQ, plainK, plainV}
			for machine, lisp := range map[string]bool{"tape": false, "lisp": true} {
				t.Run(fmt.Sprintf("%d-%s%v-group%d-padded=%v-%s", i, c.name, s, table.Group, padded, machine), func(t *testing.T) {
					got := gradients(t, lisp, c.op, weights, c.in, 0, 1, 2)
					for i, want := range [][]float64{wantQ, wantK, wantV} {
						tol.CloseAbs(t, got[i], want, tol.Bound(plain[i], want)+off)
					}
				})
			}
		}
	}
}

// randomTable keeps every key or none, or each with probability 1/2.
func randomTable(r *rand.Rand, s kernel.Shape, group int) *kernel.Table {
	table := &kernel.Table{Group: group, Reach: -1}
	for range s.Batch * s.Heads * kernel.Groups(s.Len, group) {
		word := r.Uint32()
		switch r.IntN(6) {
		case 0:
			word = 0
		case 1:
			word = math.MaxUint32
		}
		table.Bits = append(table.Bits, word&(1<<s.Len-1))
	}
	return table
}

// withoutGradient are operators that have none, each applied to inputs in g that one
// of the returned float inputs is part of.
func withoutGradient(t *testing.T) map[string]func(g *gorgonia.ExprGraph) (result, wrt *gorgonia.Node) {
	apply := func(o gorgonia.Op, in ...*tensor.Dense) func(*gorgonia.ExprGraph) (result, wrt *gorgonia.Node) {
		return func(g *gorgonia.ExprGraph) (result, wrt *gorgonia.Node) {
			ns := inputs(g, in)
			return must(op.Apply(o, ns...))(t), ns[0]
		}
	}
	a := attncase.Seeded(3, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 2, HeadDim: 2})
	return map[string]func(g *gorgonia.ExprGraph) (result, wrt *gorgonia.Node){
		"ScoreCollect": apply(must(op.NewScoreCollect("o", op.AttentionParams{}))(t), qkv(a)...),
	}
}

// TestNoGradient: an operator without a gradient is an error under both machines, also if
// another path to the cost has a gradient.
func TestNoGradient(t *testing.T) {
	seen := map[string]bool{}
	for name, build := range withoutGradient(t) {
		for _, other := range []bool{false, true} {
			// total is the sum of the operator's result, and of its input.
			total := func() (g *gorgonia.ExprGraph, o exec.Operator, cost, wrt *gorgonia.Node) {
				g = gorgonia.NewGraph()
				y, wrt := build(g)
				cost = must(gorgonia.Sum(y))(t)
				if other && wrt.Dtype() == tensor.Float32 {
					cost = must(gorgonia.Add(cost, must(gorgonia.Sum(wrt))(t)))(t)
				}
				return g, y.Op().(exec.Operator), cost, wrt
			}
			_, o, cost, wrt := total()
			kind, _, _ := strings.Cut(o.String(), "{")
			seen[kind] = true
			check := func(machine string, err error) {
				t.Helper()
				if !errors.Is(err, op.ErrNoGradient) || !strings.Contains(err.Error(), kind+"{") {
					t.Errorf("%s, %s machine: %v, want ErrNoGradient of %s", name, machine, err, kind)
				}
			}
			_, err := op.Grad(cost, wrt)
			check("tape", err)
			if failed := (gorgonia.SymDiffError{}); !errors.As(err, &failed) || failed.Node() == nil {
				t.Errorf("%s: %v holds no SymDiffError with the node", name, err)
			}
			g, _, _, _ := total()
			vm := gorgonia.NewLispMachine(g)
			check("lisp", vm.RunAll())
			vm.Close()
			g, _, _, _ = total()
			vm = gorgonia.NewLispMachine(g, gorgonia.ExecuteFwdOnly())
			if err := vm.RunAll(); err != nil {
				t.Errorf("%s: without a backward pass: %v", name, err)
			}
			vm.Close()
		}
	}
	// Nothing that has no gradient is left out above.
	for _, kind := range []string{"ScoreCollect"} {
		if !seen[kind] {
			t.Errorf("%s is not among the cases", kind)
		}
	}
}

// TestGradOfColumns: an input that affects the cost through the selection of columns only
// has no gradient, and zero under a Lisp machine: columns are held fixed.
func TestGradOfColumns(t *testing.T) {
	a := attncase.Seeded(3, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 6, HeadDim: 2})
	p := op.AttentionParams{Group: 2, Selection: op.Selection{Sparsity: 0.5}}
	build := func() (g *gorgonia.ExprGraph, cost, scored, q *gorgonia.Node) {
		g = gorgonia.NewGraph()
		in := inputs(g, qkv(a))
		scores := must(op.Apply(must(op.NewScoreCollect("o", p))(t), in...))(t)
		columns := must(op.Apply(must(op.NewGroupTopK("o", 6, p))(t), scores))(t)
		q = input(g, "q", dense(a.Q, in[0].Shape()...))
		y := must(op.Apply(must(op.NewColumnSparseAttn("o", p))(t), q, in[1], in[2], columns))(t)
		return g, must(gorgonia.Sum(y))(t), in[0], q
	}
	_, cost, scored, q := build()
	if _, err := op.Grad(cost, scored); !errors.Is(err, op.ErrNoGradient) || !strings.Contains(err.Error(), "in0") {
		t.Errorf("by the columns alone: %v, want ErrNoGradient with respect to in0", err)
	}
	if _, err := op.Grad(cost, q, scored); !errors.Is(err, op.ErrNoGradient) {
		t.Errorf("of two: %v, want ErrNoGradient", err)
	}
	_, cost, _, q = build()
	if _, err := op.Grad(cost, q); err != nil {
		t.Errorf("by the attention: %v", err)
	}
	g, _, scored, q := build()
	vm := gorgonia.NewLispMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	for n, zero := range map[*gorgonia.Node]bool{scored: true, q: false} {
		most := 0.0
		for _, x := range float32s(must(n.Grad())(t).(*tensor.Dense)) {
			most = max(most, math.Abs(float64(x)))
		}
		if (most == 0) != zero {
			t.Errorf("the largest gradient of %v is %g", n, most)
		}
	}
}

// TestNoSecondGradient: the gradients of attention have none.
func TestNoSecondGradient(t *testing.T) {
	g := gorgonia.NewGraph()
	in := inputs(g, qkv(attncase.Seeded(3, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 2, HeadDim: 2})))
	y := must(op.Apply(must(op.NewDenseAttn("o", 0, false))(t), in...))(t)
	var cost *gorgonia.Node // of which all gradients are part: a Lisp machine allows one root
	for _, n := range must(op.Grad(must(gorgonia.Sum(must(gorgonia.Square(y))(t)))(t), in...))(t) {
		sum := must(gorgonia.Sum(n))(t)
		if cost != nil {
			sum = must(gorgonia.Add(cost, sum))(t)
		}
		cost = sum
	}
	gorgonia.Read(cost, new(gorgonia.Value))
	vm := gorgonia.NewLispMachine(g)
	defer vm.Close()
	lisp := vm.RunAll()
	_, tape := op.Grad(cost, in[0])
	for machine, err := range map[string]error{"tape": tape, "lisp": lisp} {
		if !errors.Is(err, op.ErrNoGradient) || !strings.Contains(err.Error(), "AttnGrad{o}") {
			t.Errorf("%s machine: %v, want ErrNoGradient of AttnGrad", machine, err)
		}
	}
}

// TestGradErrors: Gorgonia's own errors and panics come back as errors.
func TestGradErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	x := input(g, "x", dense(make([]float32, 8), 1, 2, 4))
	for name, call := range map[string]func() (gorgonia.Nodes, error){
		"nil cost":     func() (gorgonia.Nodes, error) { return op.Grad(nil, x) },
		"a tensor":     func() (gorgonia.Nodes, error) { return op.Grad(x, x) },
		"not an input": func() (gorgonia.Nodes, error) { s := must(gorgonia.Sum(x))(t); return op.Grad(s, s) },
		"nil input":    func() (gorgonia.Nodes, error) { return op.Grad(must(gorgonia.Sum(x))(t), nil) },
		"no connection": func() (gorgonia.Nodes, error) {
			return op.Grad(must(gorgonia.Sum(x))(t), input(g, "other", dense(make([]float32, 8), 1, 2, 4)))
		},
	} {
		if grads, err := call(); err == nil || grads != nil {
			t.Errorf("%s: %v, %v", name, grads, err)
		}
	}
}

// TestSymDiff: the error of SymDiff names the operator without a gradient.
func TestSymDiff(t *testing.T) {
	_, err := must(op.NewGroupTopK("top", 6, op.AttentionParams{}))(t).(gorgonia.SDOp).SymDiff(nil, nil, nil)
	if !errors.Is(err, op.ErrNoGradient) || !strings.Contains(err.Error(), "GroupTopK{top}") {
		t.Errorf("got %v", err)
	}
}
