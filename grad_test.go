package pulsecol_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// slopes are the derivatives of sum(weights * attention) with respect to q, k and
// v by central differences in float64.
func slopes(a *kernel.Operands, table *kernel.Table, weights []float32) [3][]float64 {
	const h = 1.0 / (1 << 10) // x±h is exact for the rounded x of the test
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

// TestGradients: gorgonia.Grad through a layer, in every mode of one program,
// against finite differences with the columns held fixed.
func TestGradients(t *testing.T) {
	for _, s := range []kernel.Shape{
		{Batch: 1, Heads: 1, KVHeads: 1, Len: 1, HeadDim: 2},
		{Batch: 2, Heads: 4, KVHeads: 2, Len: 7, HeadDim: 2},
		{Batch: 1, Heads: 7, KVHeads: 1, Len: 5, HeadDim: 3},
	} {
		for _, padded := range []bool{false, true} {
			for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.SlidingWindow{Width: 4}} {
				t.Run(fmt.Sprintf("%s-padded=%v-%v", caseName(s, 2), padded, pattern), func(t *testing.T) {
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
					g := gorgonia.NewGraph()
					ctl := newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 2, Pattern: pattern, Schedule: refreshOnce})
					r := &rig{t: t, g: g, ctl: ctl}
					r.q, r.k, r.v, r.mask = qkv(g, a)
					var opts []pulsecol.AttentionOption
					if padded {
						opts = append(opts, pulsecol.WithPaddingMask(r.mask))
					}
					y := must(pulsecol.Attention(r.q, r.k, r.v, ctl.Layer(0), opts...))(t)
					w := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(y.Shape()...), gorgonia.WithName("weights"), gorgonia.WithValue(dense(weights, y.Shape()...)))
					cost := must(gorgonia.Sum(must(gorgonia.HadamardProd(y, w))(t)))(t)
					grads := must(gorgonia.Grad(cost, r.q, r.k, r.v))(t)
					var values [3]gorgonia.Value
					for i, n := range grads {
						gorgonia.Read(n, &values[i])
					}
					gorgonia.Read(y, &r.out)
					r.m = must(pulsecol.NewMachine(g, ctl))(t)
					defer r.m.Close()
					r.start(3)
					check := func(mode pulsecol.Mode, table *kernel.Table) {
						t.Helper()
						r.step(a, mode)
						want := slopes(a, table, weights)
						dq, dk, dv := ref.AttentionGrad[float32](weights, a, table)
						for i, plain := range [][]float32{dq, dk, dv} {
							// The differences are off by h² times a third derivative,
							// which is of the size of the largest gradient.
							largest := 0.0
							for _, x := range want[i] {
								largest = max(largest, math.Abs(x))
							}
							tol.CloseAbs(t, values[i].Data().([]float32), want[i], bound(plain, want[i])+4*max(1, largest)/(1<<20))
						}
					}
					if pattern != (pulsecol.Columns{}) {
						check(reuse, perQuery(s, func(_, _, i, j int) bool { return max(i-j, j-i) <= 2 }))
					} else {
						check(refresh, nil)
						check(reuse, r.table(0))
					}
					ctl.SetDense(true)
					check(denseStep, nil)
				})
			}
		}
	}
}

// A path through an operator without a gradient is an error, also where another
// path has one: it must not be left out in silence.
func TestNoGradientIsAnError(t *testing.T) {
	g := gorgonia.NewGraph()
	q := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 1, 8, 4), gorgonia.WithName("q"), gorgonia.WithInit(gorgonia.Gaussian(0, 1)))
	collect, err := op.NewScoreCollect("scores", op.AttentionParams{Group: 4})
	if err != nil {
		t.Fatal(err)
	}
	scores, err := op.Apply(collect, q, q, q)
	if err != nil {
		t.Fatal(err)
	}
	cost := gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Sum(scores)), gorgonia.Must(gorgonia.Sum(q))))
	if _, err := gorgonia.Grad(cost, q); err == nil || !strings.Contains(err.Error(), op.ErrNoGradient.Error()) || !strings.Contains(err.Error(), "ScoreCollect") {
		t.Errorf("error %v, want one that says ScoreCollect has no gradient", err)
	}
}

// TestNoGradientOfRows: with rows wanted alone, gorgonia.Grad gets an error.
func TestNoGradientOfRows(t *testing.T) {
	g := gorgonia.NewGraph()
	q, k, v, _ := qkv(g, randomOperands(1, kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 4, HeadDim: 2}))
	rows := gorgonia.NewVector(g, tensor.Int32, gorgonia.WithShape(1), gorgonia.WithName("rows"))
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5})
	y := must(pulsecol.Attention(q, k, v, ctl.Layer(0), pulsecol.WithRows(rows)))(t)
	cost := must(gorgonia.Sum(y))(t)
	if _, err := gorgonia.Grad(cost, q); err == nil || !strings.Contains(err.Error(), op.ErrNoGradient.Error()) || !strings.Contains(err.Error(), "ColumnSparseAttn") {
		t.Errorf("got %v, want %q of ColumnSparseAttn", err, op.ErrNoGradient)
	}
}
