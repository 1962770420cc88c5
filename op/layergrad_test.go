package op_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestLayerGradients compares the gradients of every layer under both machines with central
// differences of its definition in float64, at random sizes.
func TestLayerGradients(t *testing.T) {
	cases := 200
	if testing.Short() {
		cases = 20
	}
	for kind, draw := range layerCases {
		t.Run(kind, func(t *testing.T) {
			r := attncase.Rand(uint64(len(kind)))
			for i := range cases {
				c := draw(t, r)
				var wrt []int
				in, wide := make([][]float32, len(c.in)), make([][]float64, len(c.in))
				for j, x := range c.in {
					if x.Dtype() == tensor.Float32 {
						wrt, in[j], wide[j] = append(wrt, j), slices.Clone(float32s(x)), floats(float32s(x))
					}
				}
				result := c.forward(wide)
				dy := attncase.Normal(r, len(result), 1)
				defined, y := slices.Clone(dy), slices.Clone(float32s(run(t, c.op, c.in...)))
				if c.ignored != nil {
					c.ignored(defined)
					c.ignored(y)
					narrow := make([]float32, len(result))
					for k, x := range result {
						narrow[k] = float32(x)
					}
					c.ignored(narrow)
					result = floats(narrow)
				}
				// Sums of up to 40 products of normal numbers stay below 64.
				if diff, at := tol.MaxAbs(y, result); !(diff <= 40*64*tol.ULP) {
					t.Fatalf("case %d: result [%d] is %v, want %v", i, at, y[at], result[at])
				}
				plain := c.plain(defined, in)
				tape, lisp := gradients(t, false, c.op, dy, c.in, wrt...), gradients(t, true, c.op, dy, c.in, wrt...)
				for k, j := range wrt {
					want, off := ref.Differences(func() []float64 { return c.forward(wide) }, defined, wide[j])
					for machine, got := range map[string][]float32{"tape": tape[k], "Lisp": lisp[k]} {
						bound := tol.Bound(plain[j], want) + off
						if c.terms != nil {
							bound += 16 * tol.ULP * c.terms(dy, in)
						}
						if diff, at := tol.MaxAbs(got, want); !(diff <= bound) {
							t.Fatalf("case %d, %s machine: gradient of input %d %v: [%d] is %v, want %v, off by %g, allowed %g",
								i, machine, j, c.in[j].Shape(), at, got[at], want[at], diff, bound)
						}
					}
				}
			}
		})
	}
}

// TestLayerGradName: an error of a gradient's run names the layer.
func TestLayerGradName(t *testing.T) {
	g := gorgonia.NewGraph()
	x := input(g, "x", dense(make([]float32, 8), 1, 2, 4))
	y := must(op.Apply(op.NewRMSNorm("norm", []float32{1, 1, 1, 1}, 1e-5), x))(t)
	grad := must(op.Grad(must(gorgonia.Sum(y))(t), x))(t)[0]
	if _, err := grad.Op().Do(x.Value()); !errors.Is(err, op.ErrValue) || !strings.Contains(err.Error(), "gradient of RMSNorm{norm}") {
		t.Errorf("got %v, want ErrValue of the gradient of RMSNorm{norm}", err)
	}
}

// TestSharedWeightGrad: one layer at two inputs has one gradient, two layers of one name with
// different weights are an error.
func TestSharedWeightGrad(t *testing.T) {
	for _, same := range []bool{true, false} {
		g := gorgonia.NewGraph()
		r := attncase.Rand(4)
		w, other := weight(t, 4, 4, attncase.Normal(r, 16, 1)), weight(t, 4, 4, attncase.Normal(r, 16, 1))
		if same {
			other = w
		}
		xs := inputs(g, []*tensor.Dense{drawn(r, 1, 2, 4), drawn(r, 1, 2, 4)})
		a := must(op.Apply(must(op.NewLinear("proj", op.Projection{Weight: w}))(t), xs[0]))(t)
		b := must(op.Apply(must(op.NewLinear("proj", op.Projection{Weight: other}))(t), xs[1]))(t)
		cost := must(gorgonia.Sum(must(op.Apply(op.NewAdd("sum"), a, b))(t)))(t)
		grads, err := op.Grad(cost, xs...)
		switch {
		case same && (err != nil || grads[0] != grads[1]):
			t.Errorf("the same weight: %v, %v", grads, err)
		case !same && !errors.Is(err, op.ErrMerged):
			t.Errorf("different weights: %v, want ErrMerged", err)
		}
	}
}

// TestPlannedGradients: gradients in the memory of a Workspace are those without one, bit for
// bit, and take less memory than all values at once.
func TestPlannedGradients(t *testing.T) {
	run := func(plan bool) (out [][]float32, held int64) {
		g, r := gorgonia.NewGraph(), attncase.Rand(9)
		apply := func(o gorgonia.Op, in ...*gorgonia.Node) *gorgonia.Node { return must(op.Apply(o, in...))(t) }
		x, table := input(g, "x", drawn(r, 1, 40, 16)), input(g, "table", drawn(r, 50, 16))
		ids := input(g, "ids", dense(slices.Repeat([]int32{3, 49, 3, 7}, 10), 1, 40))
		wrt := gorgonia.Nodes{x, table}
		y := apply(op.NewAdd("embedded"), x, apply(op.NewTrainedEmbed("embed"), ids, table))
		for i := range 6 {
			p := func(name string, out, in int) op.Projection {
				return op.Projection{Weight: weight(t, out, in, attncase.Normal(r, out*in, 0.3))}
			}
			w := input(g, fmt.Sprintf("w%d", i), drawn(r, 16, 16))
			wrt = append(wrt, w)
			n := apply(op.NewRMSNorm(fmt.Sprintf("norm%d", i), attncase.Normal(r, 16, 1), 1e-5), y)
			m := apply(must(op.NewSwiGLU(fmt.Sprintf("glu%d", i), p("gate", 24, 16), p("up", 24, 16)))(t), n)
			d := apply(must(op.NewLinear(fmt.Sprintf("down%d", i), p("down", 16, 24)))(t), m)
			d = apply(op.NewTrainedLinear(fmt.Sprintf("trained%d", i), 1), d, w)
			y = apply(op.NewAdd(fmt.Sprintf("sum%d", i)), y, d)
		}
		// Layers whose gradients are zero in places.
		at := make([]int32, 40)
		own := func(path string) *gorgonia.Node { // whose gradient nothing is added to
			return apply(must(op.NewLinear(path, op.Projection{Weight: weight(t, 16, 16, attncase.Normal(r, 256, 1))}))(t), y)
		}
		rotated := apply(must(op.NewRoPE("rope", op.Heads{First: 1, Count: 2, Dim: 4}, 1e4))(t), own("rotated"), input(g, "positions", dense(at, 1, 40)))
		split := apply(must(op.NewSplitHeads("split", op.Heads{Count: 2, Dim: 4}))(t), own("split"))
		y = apply(op.NewAdd("heads"), apply(op.NewMergeHeads("rotated"), rotated), apply(op.NewMergeHeads("merged"), split))
		bias, head := input(g, "bias", drawn(r, 8)), input(g, "head", drawn(r, 30, 8))
		wrt = append(wrt, bias, head)
		rows := input(g, "rows", dense([]int32{-1, 3, 39, 3, -1}, 5))
		biased := apply(op.NewAddBias("bias"), y, bias)
		selection := func(path string) *gorgonia.Node { return apply(op.NewGatherRows(path), biased, rows) }
		targets := input(g, "targets", dense([]int32{-1, 1, 2, 3, -1}, 5))
		loss := func(logits *gorgonia.Node) *gorgonia.Node {
			return must(gorgonia.Sum(apply(op.NewCrossEntropy(logits.Op().String()), logits, targets)))(t)
		}
		constant := op.NewLMHead("constant", weight(t, 30, 8, attncase.Normal(r, 240, 1)))
		cost := must(gorgonia.Add(loss(apply(op.NewTrainedLMHead("trained"), selection("a"), rows, head)), loss(apply(constant, selection("b"), rows))))(t)
		grads := must(op.Grad(cost, wrt...))(t)
		ws := op.NewWorkspace()
		if plan {
			if err := ws.Plan(g, []op.Mode{op.Dense}, grads...); err != nil {
				t.Fatal(err)
			}
		}
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		for range 2 {
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			out = nil
			for _, n := range grads {
				out = append(out, slices.Clone(float32s(n.Value().(*tensor.Dense))))
			}
			vm.Reset()
		}
		return out, ws.Bytes()
	}
	want, _ := run(false)
	got, held := run(true)
	for i := range want {
		tol.SameBits(t, fmt.Sprintf("gradient %d", i), got[i], want[i])
	}
	// Six blocks have more than 10 values of 40x16 each, forward and backward.
	if held == 0 || held > 6*14*40*24*4 {
		t.Errorf("%d bytes are planned", held)
	}
}
