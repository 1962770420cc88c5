package graph_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// trainedModel is the tiny model with a loss for each token and parameters of its blocks.
type trainedModel struct {
	t      *testing.T
	g      *gorgonia.ExprGraph
	ctl    *pulsecol.Controller
	loss   *gorgonia.Node
	params gorgonia.Nodes
}

// tokenIDs are two sequences of six tokens, and what follows each token.
var tokenIDs, nextIDs = []int32{1, 2, 3, 6, 6, 6, 0, 4, 5, 6, 1, 2}, []int32{2, 3, 6, 6, 6, -1, 4, 5, 6, 1, 2, -1}

// train builds the model with what prepare makes of its blocks. table and head are nodes, too,
// if full is set.
func train(t *testing.T, model tiny, cfg pulsecol.Config, full bool, prepare func(g *gorgonia.ExprGraph, b *graph.Block) gorgonia.Nodes) *trainedModel {
	t.Helper()
	const n = 6
	m := &trainedModel{t: t, g: gorgonia.NewGraph(), ctl: newController(t, cfg)}
	at, rows := make([]int32, len(tokenIDs)), make([]int32, len(tokenIDs))
	for i := range at {
		at[i], rows[i] = int32(i%n), int32(i)
	}
	positions, ids := variable(m.g, "positions", at, 2, n), variable(m.g, "ids", slices.Clone(tokenIDs), 2, n)
	w := weights{t}
	table, norm, head := w.matrix(7, 8, 1, 0.1), w.norm("norm", 0.3, model.eps), w.matrix(7, 8, 1, 0.2)
	var x *gorgonia.Node
	if full {
		param := must(graph.Parameter(m.g, "embed.weight", table))(t)
		x = must(graph.TrainedEmbed("embed", ids, param))(t)
		m.params = append(append(m.params, param), must(norm.Train(m.g))(t)...)
	} else {
		x = must(graph.Embed("embed", ids, table, pulsecol.CPU))(t)
	}
	for l := range 2 {
		b := model.block(t, l)
		m.params = append(m.params, prepare(m.g, b)...)
		x = must(b.Build(x, positions, m.ctl.Layer(l)))(t)
	}
	selected := variable(m.g, "rows", rows, len(rows))
	x = must(graph.GatherRows("rows", x, selected))(t)
	x = must(graph.RMSNorm(x, norm))(t)
	var logits *gorgonia.Node
	if full {
		param := must(graph.Parameter(m.g, "head.weight", head))(t)
		logits = must(graph.TrainedLogits("head", x, selected, param))(t)
		m.params = append(m.params, param)
	} else {
		logits = must(graph.Logits("head", x, selected, head))(t)
	}
	losses := must(graph.CrossEntropy("loss", logits, variable(m.g, "targets", slices.Clone(nextIDs), len(nextIDs))))(t)
	m.loss = must(gorgonia.Mean(losses))(t)
	return m
}

// gradients runs a step of the model under a machine, and returns the gradients and a function
// that runs another and returns the loss.
func (m *trainedModel) gradients(lisp bool) (grads [][]float32, loss func() float64) {
	m.t.Helper()
	var vm *pulsecol.Machine
	if lisp {
		vm = must(pulsecol.Attach(gorgonia.NewLispMachine(m.g), m.ctl))(m.t)
	} else {
		must(op.Grad(m.loss, m.params...))(m.t)
		vm = must(pulsecol.NewMachine(m.g, m.ctl, gorgonia.BindDualValues(m.params...)))(m.t)
	}
	m.t.Cleanup(func() { vm.Close() })
	loss = func() float64 {
		if err := errors.Join(m.ctl.Start(1), vm.RunAll()); err != nil {
			m.t.Fatal(err)
		}
		return float64(m.loss.Value().Data().(float32))
	}
	loss()
	for _, p := range m.params {
		grads = append(grads, slices.Clone(must(p.Grad())(m.t).Data().([]float32)))
	}
	return grads, loss
}

// full makes nodes of all weights of a block, and adapters.
func full(t *testing.T) func(g *gorgonia.ExprGraph, b *graph.Block) gorgonia.Nodes {
	return func(g *gorgonia.ExprGraph, b *graph.Block) gorgonia.Nodes {
		nodes := append(must(b.Train(g))(t), must(b.Adapt(g, 2, 0.5, 7))(t)...)
		r := attncase.Rand(3)
		for _, n := range nodes {
			if strings.HasSuffix(n.Name(), ".adapter.b") { // zeros would hide the gradient of A
				copy(n.Value().Data().([]float32), attncase.Normal(r, n.Shape().TotalSize(), 0.3))
			}
		}
		return nodes
	}
}

// TestModelGradients: the gradients of a whole model under both machines agree, and with
// differences of its loss along each parameter's gradient.
func TestModelGradients(t *testing.T) {
	for name, model := range map[string]tiny{"llada": llada, "dream": dream} {
		// The keys of a window do not change with the parameters.
		for _, cfg := range []pulsecol.Config{{}, {Pattern: pulsecol.SlidingWindow{Width: 2}, GroupSize: 2}} {
			m := train(t, model, cfg, true, full(t))
			want, loss := m.gradients(false)
			got, _ := train(t, model, cfg, true, full(t)).gradients(true)
			for i, p := range m.params {
				tol.CloseAbs(t, got[i], want[i], 1e-6) // another order of sums
				size := 0.0
				for _, g := range want[i] {
					size += float64(g) * float64(g)
				}
				if size = math.Sqrt(size); size < 1e-4 {
					t.Errorf("%s: the gradient of %v is %g", name, p, size)
				}
				const step = 1.0 / 64
				v := p.Value().Data().([]float32)
				start := slices.Clone(v)
				at := func(distance float64) float64 { // along the gradient
					for j := range v {
						v[j] = start[j] + float32(distance*float64(want[i][j])/size)
					}
					defer copy(v, start)
					return loss()
				}
				near := (at(step) - at(-step)) / (2 * step)
				far := (at(2*step) - at(-2*step)) / (4 * step)
				// The error of near is a third of its difference from far, and the rounding of
				// two losses of about 4 in float32.
				if off := math.Abs(near - size); off > math.Abs(far-near)+64*tol.ULP*4/step {
					t.Errorf("%s, %v: the loss along the gradient of %v rises by %g, its length is %g", name, cfg.Pattern, p, near, size)
				}
			}
		}
	}
}

// TestTrainedIsConstant: a block with nodes for its weights computes what it computes with
// constants, and so does one with adapters that are new.
func TestTrainedIsConstant(t *testing.T) {
	for name, model := range map[string]tiny{"llada": llada, "dream": dream} {
		loss := func(full bool, prepare func(g *gorgonia.ExprGraph, b *graph.Block) gorgonia.Nodes) float64 {
			m := train(t, model, pulsecol.Config{}, full, prepare)
			vm := must(pulsecol.NewMachine(m.g, m.ctl))(t)
			defer vm.Close()
			if err := errors.Join(m.ctl.Start(1), vm.RunAll()); err != nil {
				t.Fatal(err)
			}
			return float64(m.loss.Value().Data().(float32))
		}
		want := loss(false, func(*gorgonia.ExprGraph, *graph.Block) gorgonia.Nodes { return nil })
		for what, got := range map[string]float64{
			"nodes":    loss(true, func(g *gorgonia.ExprGraph, b *graph.Block) gorgonia.Nodes { return must(b.Train(g))(t) }),
			"adapters": loss(false, func(g *gorgonia.ExprGraph, b *graph.Block) gorgonia.Nodes { return must(b.Adapt(g, 3, 2, 1))(t) }),
		} {
			if math.Abs(got-want) > 1e-5 {
				t.Errorf("%s with %s: loss %v, want %v", name, what, got, want)
			}
		}
	}
}

// TestAdapter: an adapter computes Scale B A x, as the weight plus Scale B A does.
func TestAdapter(t *testing.T) {
	r := attncase.Rand(8)
	values, x := attncase.Normal(r, 6*8, 1), attncase.Normal(r, 2*3*8, 1)
	run := func(p graph.Projection, prepare func(g *gorgonia.ExprGraph, p *graph.Projection)) []float32 {
		g := gorgonia.NewGraph()
		prepare(g, &p)
		y := must(graph.Linear(variable(g, "x", slices.Clone(x), 2, 3, 8), p))(t)
		vm := gorgonia.NewTapeMachine(g)
		defer vm.Close()
		if err := vm.RunAll(); err != nil {
			t.Fatal(err)
		}
		return y.Value().Data().([]float32)
	}
	bias := attncase.Normal(r, 6, 1)
	var a, b []float32
	adapted := func(node bool) []float32 {
		return run(graph.Projection{Path: "p", Weight: must(op.NewWeightFloat32(6, 8, values))(t), Bias: bias}, func(g *gorgonia.ExprGraph, p *graph.Projection) {
			if node {
				must(p.Train(g))(t)
			}
			nodes := must(p.Adapt(g, 2, 0.25, 3))(t)
			a, b = nodes[0].Value().Data().([]float32), nodes[1].Value().Data().([]float32)
			copy(b, attncase.Normal(attncase.Rand(9), len(b), 1))
		})
	}
	constant, nodes := adapted(false), adapted(true)
	merged := slices.Clone(values)
	for i := range merged {
		for k := range 2 {
			merged[i] += 0.25 * b[i/8*2+k] * a[k*8+i%8]
		}
	}
	want := run(graph.Projection{Path: "p", Weight: must(op.NewWeightFloat32(6, 8, merged))(t), Bias: bias}, func(*gorgonia.ExprGraph, *graph.Projection) {})
	tol.CloseAbs(t, constant, want, 1e-5)
	tol.CloseAbs(t, nodes, want, 1e-5)
}

// TestFineTuning: solvers lower the loss, all weights or adapters alone, under either machine. A
// Workspace changes nothing.
func TestFineTuning(t *testing.T) {
	for _, whole := range []bool{true, false} {
		var unplanned float64
		for _, machine := range []string{"tape", "tape with a workspace", "Lisp"} {
			lisp := machine == "Lisp"
			prepare := func(g *gorgonia.ExprGraph, b *graph.Block) gorgonia.Nodes { return must(b.Adapt(g, 2, 1, 5))(t) }
			if whole {
				prepare = func(g *gorgonia.ExprGraph, b *graph.Block) gorgonia.Nodes { return must(b.Train(g))(t) }
			}
			m := train(t, llada, pulsecol.Config{Sparsity: 0.5, GroupSize: 2, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 16}}, whole, prepare)
			const steps = 60
			if err := m.ctl.Start(steps); err != nil {
				t.Fatal(err)
			}
			var vm *pulsecol.Machine
			if !lisp {
				must(op.Grad(m.loss, m.params...))(t)
				if machine != "tape" {
					if err := op.NewWorkspace().Plan(m.g, m.ctl.Modes()); err != nil {
						t.Fatal(err)
					}
				}
				vm = must(pulsecol.NewMachine(m.g, m.ctl, gorgonia.BindDualValues(m.params...)))(t)
				defer vm.Close()
			}
			solver := gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.02))
			var first, last float64
			for step := range steps {
				if lisp {
					vm = must(pulsecol.Attach(gorgonia.NewLispMachine(m.g), m.ctl))(t)
				}
				if err := vm.RunAll(); err != nil {
					t.Fatal(err)
				}
				last = float64(m.loss.Value().Data().(float32))
				if step == 0 {
					first = last
				}
				if err := solver.Step(gorgonia.NodesToValueGrads(m.params)); err != nil {
					t.Fatal(err)
				}
				if vm.Reset(); lisp {
					vm.Close()
				}
			}
			if !(last < first/4) {
				t.Errorf("all weights: %v, %s: the loss is %v after %d steps, %v at first", whole, machine, last, steps, first)
			}
			if machine == "tape" {
				unplanned = last
			} else if !lisp && last != unplanned {
				t.Errorf("all weights: %v: the loss is %v with a workspace, %v without", whole, last, unplanned)
			}
		}
	}
}

// TestTrainErrors: what cannot be trained is an error that names the projection.
func TestTrainErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	x := variable(g, "x", make([]float32, 16), 1, 2, 8)
	w := weights{t}
	p := func() graph.Projection { return graph.Projection{Path: "proj", Weight: w.matrix(8, 8, 0.3, 1)} }
	node := func(name string, shape ...int) *gorgonia.Node {
		return variable(g, name, make([]float32, tensor.Shape(shape).TotalSize()), shape...)
	}
	build := func(change func(p *graph.Projection)) error {
		p := p()
		change(&p)
		_, err := graph.Linear(x, p)
		return err
	}
	quantized := p()
	quantized.Weight = op.Weight{Rows: 1, Cols: 32, DType: op.Q8_0, Data: make([]byte, 34)}
	_, ofQuantized := quantized.Train(g)
	_, two := graph.Linear(x, p(), graph.Projection{Path: "second", Weight: w.matrix(8, 8, 0.3, 1), Trained: graph.Trained{Weight: node("w2", 8, 8)}})
	adapt := func(rank int, scale float64) error {
		p := p()
		_, err := p.Adapt(g, rank, scale, 1)
		return err
	}
	narrow, none := p(), (*graph.Block)(nil)
	_, ofNarrow := narrow.Train(nil)
	_, ofNone := none.Train(g)
	_, ofNoneAdapted := none.Adapt(g, 1, 1, 1)
	norm := graph.Norm{Path: "norm"}
	_, ofNorm := norm.Train(g)
	for want, err := range map[string]error{
		"weight of type Q8_0 stays a constant": ofQuantized,
		"second: ":                             two,
		"adapter of rank 0":                    adapt(0, 1),
		"adapter of rank 9":                    adapt(9, 1),
		"scale NaN":                            adapt(1, math.NaN()),
		"scale 0":                              adapt(1, 0),
		"proj.weight: wrong value: the graph is nil": ofNarrow,
		"the block is nil":                           errors.Join(ofNone, ofNoneAdapted),
		"norm: wrong shape: the norm has no weight":  ofNorm,
		"adapter needs both A and B":                 build(func(p *graph.Projection) { p.Trained.A = node("a", 2, 8) }),
		"without an adapter":                         build(func(p *graph.Projection) { p.Trained.Scale = 2 }),
		"the bias a constant": build(func(p *graph.Projection) {
			p.Bias, p.Trained.Weight = make([]float32, 8), node("w8", 8, 8)
		}),
		"TrainedLinear{proj}": build(func(p *graph.Projection) { p.Trained.Weight = node("w9", 8, 9) }),
		"AddBias{proj.bias}":  build(func(p *graph.Projection) { p.Trained.Bias = node("b9", 9) }),
		"TrainedLinear{third.adapter.b}": build(func(p *graph.Projection) {
			p.Path = "third"
			p.Trained.A, p.Trained.B, p.Trained.Scale = node("a4", 3, 8), node("b4", 8, 2), 1
		}),
		"Add{other.adapter}": build(func(p *graph.Projection) {
			p.Path = "other"
			p.Trained.A, p.Trained.B, p.Trained.Scale = node("a3", 3, 8), node("b3", 7, 3), 1
		}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	b := llada.block(t, 0)
	b.Down.Weight = quantized.Weight
	if nodes, err := b.Train(g); err == nil || nodes != nil || b.Q.Trained != (graph.Trained{}) {
		t.Errorf("a block with one quantized weight: %v, %v, and Q has %v; want an error that changes nothing", fmt.Sprint(nodes), err, b.Q.Trained)
	}
}
