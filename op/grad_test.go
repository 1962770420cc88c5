package op_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gradients runs sum(weights * o(in)) and its gradients with respect to the first
// three inputs through gorgonia.Grad.
func gradients(t *testing.T, o gorgonia.Op, weights []float32, in []*tensor.Dense) [3][]float32 {
	t.Helper()
	g := gorgonia.NewGraph()
	nodes := inputs(g, in)
	y := must(op.Apply(o, nodes...))(t)
	w := input(g, "weights", dense(weights, y.Shape()...))
	cost := must(gorgonia.Sum(must(gorgonia.HadamardProd(y, w))(t)))(t)
	grads := must(gorgonia.Grad(cost, nodes[:3]...))(t)
	var values [3]gorgonia.Value
	for i, n := range grads {
		gorgonia.Read(n, &values[i])
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	var out [3][]float32
	for i, v := range values {
		if !v.Shape().Eq(in[i].Shape()) {
			t.Fatalf("gradient %d has shape %v, want %v", i, v.Shape(), in[i].Shape())
		}
		out[i] = float32s(v.(*tensor.Dense))
	}
	return out
}

// slopes are the derivatives of sum(weights * attention) with respect to q, k and
// v by central differences in float64. With x, the step h and the third
// derivatives all about 1 their error is about h² + 2^-53/h.
func slopes(a *kernel.Operands, table *kernel.Table, weights []float32) [3][]float64 {
	const h = 1.0 / (1 << 10) // h and x±h are exact for the rounded x below
	cost := func() float64 {
		out, _ := ref.Attention[float64](a, table)
		sum := 0.0
		for i, y := range out {
			sum += y * float64(weights[i])
		}
		return sum
	}
	var d [3][]float64
	for which, x := range [][]float32{a.Q, a.K, a.V} {
		for i, old := range x {
			x[i] = old + h
			up := cost()
			x[i] = old - h
			d[which] = append(d[which], (up-cost())/(2*h))
			x[i] = old
		}
	}
	return d
}

// TestGradients compares gorgonia.Grad with finite differences.
func TestGradients(t *testing.T) {
	for _, s := range []kernel.Shape{
		{Batch: 1, Heads: 1, KVHeads: 1, Len: 1, HeadDim: 1},
		{Batch: 1, Heads: 2, KVHeads: 2, Len: 5, HeadDim: 3},
		{Batch: 2, Heads: 4, KVHeads: 2, Len: 6, HeadDim: 2},
		{Batch: 1, Heads: 7, KVHeads: 1, Len: 5, HeadDim: 2},
	} {
		for _, padded := range []bool{false, true} {
			a := randomOperands(1, s)
			for _, x := range [][]float32{a.Q, a.K, a.V} {
				for i := range x {
					x[i] = float32(math.Round(float64(x[i])*256) / 256)
				}
			}
			if padded {
				padLeft(a, s.Len/2, 1)
			}
			weights := normal(newRand(2), len(a.Q))
			const group = 2
			rows := s.Batch * s.Heads * kernel.Groups(s.Len, group)
			var bits []uint32
			for r := range rows { // every other key or so, a different set for each row
				bits = append(bits, (0x5a6c>>(r%7)|1<<(s.Len-1))&(1<<s.Len-1))
			}
			table := &kernel.Table{Bits: bits, Group: group, Reach: -1}
			columns := dense(bits, s.Batch, s.Heads, kernel.Groups(s.Len, group), 1)
			in := qkv(a)
			sparseIn := append(append(append([]*tensor.Dense{}, in[:3]...), columns), in[3:]...)
			p := op.AttentionParams{Group: group, Masked: padded}

			for _, c := range []struct {
				name  string
				op    gorgonia.Op
				in    []*tensor.Dense
				table *kernel.Table
			}{
				{"DenseAttn", must(op.NewDenseAttn("o", 0, padded))(t), in, nil},
				{"ColumnSparseAttn", must(op.NewColumnSparseAttn("o", p))(t), sparseIn, table},
			} {
				t.Run(fmt.Sprintf("%s%v-padded=%v", c.name, s, padded), func(t *testing.T) {
					got := gradients(t, c.op, weights, c.in)
					want := slopes(a, c.table, weights)
					dq, dk, dv := ref.AttentionGrad[float32](weights, a, c.table)
					for i, plain := range [][]float32{dq, dk, dv} {
						// The differences are off by h² times a third derivative,
						// which is of the size of the largest gradient.
						largest := 0.0
						for _, x := range want[i] {
							largest = max(largest, math.Abs(x))
						}
						tol.CloseAbs(t, got[i], want[i], bound(plain, want[i])+4*max(1, largest)/(1<<20))
					}
				})
			}
		}
	}
}

// TestNotDifferentiable: where there is no gradient, gorgonia.Grad must say so
// rather than panic.
func TestNotDifferentiable(t *testing.T) {
	a := randomOperands(3, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 6, HeadDim: 2})
	p := op.AttentionParams{Group: 2, Selection: op.Selection{Sparsity: 0.5}}
	grad := func(cost func(in []*gorgonia.Node) *gorgonia.Node) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
		}()
		g := gorgonia.NewGraph()
		in := inputs(g, qkv(a))
		_, err = gorgonia.Grad(must(gorgonia.Sum(cost(in)))(t), in[0])
		return err
	}
	scores := func(in []*gorgonia.Node) *gorgonia.Node {
		return must(op.Apply(must(op.NewScoreCollect("o", p))(t), in...))(t)
	}
	for name, cost := range map[string]func(in []*gorgonia.Node) *gorgonia.Node{
		"ScoreCollect": scores,
		"GroupTopK": func(in []*gorgonia.Node) *gorgonia.Node {
			// q reaches the cost through the choice of columns alone.
			columns := must(op.Apply(must(op.NewGroupTopK("o", 6, p))(t), scores(in)))(t)
			q := input(in[0].Graph(), "other", dense(a.Q, in[0].Shape()...))
			return must(op.Apply(must(op.NewColumnSparseAttn("o", p))(t), q, in[1], in[2], columns))(t)
		},
		"RMSNorm": func(in []*gorgonia.Node) *gorgonia.Node {
			x := must(op.Apply(op.NewMergeHeads("merge"), in[0]))(t)
			return must(op.Apply(op.NewRMSNorm("norm", make([]float32, 4), 1e-5), x))(t)
		},
	} {
		if err := grad(cost); err == nil || strings.HasPrefix(err.Error(), "panic") {
			t.Errorf("%s: got %v, want an error", name, err)
		}
	}
}

// TestSymDiff: asked directly, an operator without a gradient names itself.
func TestSymDiff(t *testing.T) {
	_, err := op.NewAdd("sum").SymDiff(nil, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "Add{sum}[]: has no gradient") {
		t.Errorf("got %v", err)
	}
}
