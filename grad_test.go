package pulsecol_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gradRig is a layer whose output goes into cost = sum(weights * output), under a
// tape machine with the gradients in its graph or under one Lisp machine a step.
type gradRig struct {
	*rig
	lisp   []gorgonia.VMOpt // nil: tape
	symbol [3]gorgonia.Value
}

// machines are both kinds; the graph of a tape machine holds the gradients.
var machines = map[string][]gorgonia.VMOpt{"tape": nil, "lisp": {}}

func newGradRig(t testing.TB, a *kernel.Operands, cfg pulsecol.Config, weights []float32, lisp []gorgonia.VMOpt) *gradRig {
	t.Helper()
	r := &gradRig{rig: &rig{t: t, g: gorgonia.NewGraph(), ctl: newController(t, cfg)}, lisp: lisp}
	r.q, r.k, r.v, r.mask = qkv(r.g, a)
	var opts []pulsecol.AttentionOption
	if r.mask != nil {
		opts = append(opts, pulsecol.WithPaddingMask(r.mask))
	}
	r.y = must(pulsecol.Attention(r.q, r.k, r.v, r.ctl.Layer(0), opts...))(t)
	gorgonia.Read(r.y, &r.out)
	w := gorgonia.NewTensor(r.g, tensor.Float32, 4, gorgonia.WithShape(r.y.Shape()...), gorgonia.WithName("weights"), gorgonia.WithValue(dense(weights, r.y.Shape()...)))
	cost := must(gorgonia.Sum(must(gorgonia.HadamardProd(r.y, w))(t)))(t)
	if lisp != nil {
		return r
	}
	for i, n := range must(op.Grad(cost, r.q, r.k, r.v))(t) {
		gorgonia.Read(n, &r.symbol[i])
	}
	r.m = must(pulsecol.NewMachine(r.g, r.ctl))(t)
	t.Cleanup(func() { r.m.Close() })
	return r
}

// gradients runs one step on a and returns the gradients of q, k and v.
func (r *gradRig) gradients(a *kernel.Operands, mode pulsecol.Mode) (grads [3][]float32) {
	r.t.Helper()
	if r.lisp == nil {
		r.step(a, mode)
		for i, v := range r.symbol {
			grads[i] = v.Data().([]float32)
		}
		return grads
	}
	r.m = must(pulsecol.Attach(gorgonia.NewLispMachine(r.g, r.lisp...), r.ctl))(r.t)
	defer r.m.Close()
	inputs := []*gorgonia.Node{r.q, r.k, r.v}
	for _, n := range inputs {
		if v, err := n.Grad(); err == nil { // of the step before, to which this one adds
			v.(*tensor.Dense).Zero()
		}
	}
	r.step(a, mode)
	for i, n := range inputs {
		grads[i] = must(n.Grad())(r.t).Data().([]float32)
	}
	return grads
}

// round rounds the operands to what ref.Slopes takes.
func round(a *kernel.Operands) {
	for _, x := range [][]float32{a.Q, a.K, a.V} {
		for i := range x {
			x[i] = float32(math.Round(float64(x[i])*256) / 256)
		}
	}
}

// slopes are what gradients of sum(weights * attention) are checked against.
type slopes struct {
	want  [3][]float64 // by differences
	plain [3][]float32 // as plain loops in float32
	off   float64      // error of want
}

func newSlopes(weights []float32, a *kernel.Operands, table *kernel.Table) *slopes {
	s := new(slopes)
	s.want[0], s.want[1], s.want[2], s.off = ref.Slopes(weights, a, table)
	s.plain[0], s.plain[1], s.plain[2] = ref.AttentionGrad[float32](weights, a, table)
	return s
}

func (s *slopes) check(t *testing.T, got [3][]float32) {
	t.Helper()
	for i, want := range s.want {
		tol.CloseAbs(t, got[i], want, tol.Bound(s.plain[i], want)+s.off)
	}
}

// gradCase is a layer under a controller, drawn at random.
type gradCase struct {
	a       *kernel.Operands
	cfg     pulsecol.Config
	keeps   *kernel.Table // of a pattern that never refreshes, else nil
	weights []float32
}

func newGradCase(r *rand.Rand) gradCase {
	s := kernel.Shape{Batch: 1 + r.IntN(2), KVHeads: 1 + r.IntN(2), Len: 1 + r.IntN(7), HeadDim: 1 + r.IntN(3)}
	s.Heads = s.KVHeads * []int{1, 2, 7}[r.IntN(3)]
	a := attncase.Seeded(r.Uint64(), s)
	round(a)
	if r.IntN(2) == 0 {
		attncase.PadLeft(a, r.IntN(s.Len), r.IntN(s.Len+1)) // the second row may be nothing else
	}
	c := gradCase{a: a, weights: attncase.Normal(r, len(a.Q), 1)}
	c.cfg = pulsecol.Config{
		Sparsity:  []float64{1e-17, 0.3, 0.6, 0.99}[r.IntN(4)], // from every key to one
		GroupSize: []int{1, 2, 3, s.Len + 3}[r.IntN(4)],
		Schedule:  refreshOnce,
	}
	if r.IntN(4) == 0 {
		c.cfg.Scale = 0.75
		a.Scale = 0.75
	}
	width := 2 * r.IntN(3)
	switch r.IntN(7) {
	case 0:
		c.cfg.Pattern = pulsecol.Blocks{Size: 2}
	case 1:
		c.cfg.Pattern = pulsecol.SparseD{BlockSize: 2, Generation: r.IntN(s.Len + 1)}
	case 2:
		c.cfg.Pattern = pulsecol.SlidingWindow{Width: width + 1}
		c.keeps = perQuery(s, func(_, _, i, j int) bool { return max(i-j, j-i) <= (width+1)/2 })
	case 3:
		sinks := int(math.Ceil(0.25 * float64(s.Len)))
		c.cfg.Pattern = pulsecol.Streaming{Width: width + 2, SinkFraction: 0.25}
		c.keeps = perQuery(s, func(_, _, i, j int) bool { return max(i-j, j-i) <= (width+2)/2 || j < sinks })
	case 4:
		table := randomColumns(r, []int{1, s.Batch}[r.IntN(2)], []int{1, s.Heads}[r.IntN(2)], s.Len, c.cfg.GroupSize)
		c.cfg.Pattern = pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{table}}
		c.keeps = keptBy(table, s)
	}
	return c
}

// TestGradients: the gradients of a layer under both machines, in every mode, against
// central differences with the columns of the step held fixed.
func TestGradients(t *testing.T) {
	cases := 200
	if testing.Short() {
		cases = 20
	}
	r := attncase.Rand(17)
	for i := range cases {
		c := newGradCase(r)
		name := fmt.Sprintf("%d-%s-%v-%g-padded=%v", i, caseName(c.a.Shape, c.cfg.GroupSize), c.cfg.Pattern, c.cfg.Sparsity, c.a.Valid != nil)
		full := newSlopes(c.weights, c.a, nil)
		var sparse *slopes
		if c.keeps != nil {
			sparse = newSlopes(c.weights, c.a, c.keeps)
		}
		for machine, lisp := range machines {
			t.Run(name+"-"+machine, func(t *testing.T) {
				g := newGradRig(t, c.a, c.cfg, c.weights, lisp)
				g.start(3)
				if c.keeps == nil {
					full.check(t, g.gradients(c.a, refresh))
				}
				got := g.gradients(c.a, reuse)
				if sparse == nil { // both machines keep the same columns
					sparse = newSlopes(c.weights, c.a, g.table(0))
				}
				sparse.check(t, got)
				g.ctl.SetDense(true)
				full.check(t, g.gradients(c.a, denseStep))
			})
		}
	}
}

// TestLispMachineSums: a second reader's gradients and those of a step before are
// added to, not replaced.
func TestLispMachineSums(t *testing.T) {
	a := attncase.Seeded(1, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 5, HeadDim: 2})
	a.K, a.V = a.Q, a.Q
	round(a)
	weights := attncase.Normal(attncase.Rand(2), len(a.Q), 1)
	ctl := newController(t, pulsecol.Config{})
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 2, 5, 2), gorgonia.WithName("x"), gorgonia.WithValue(dense(a.Q, 1, 2, 5, 2)))
	y := must(pulsecol.Attention(x, x, x, ctl.Layer(0)))(t)
	w := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(y.Shape()...), gorgonia.WithName("weights"), gorgonia.WithValue(dense(weights, y.Shape()...)))
	must(gorgonia.Sum(must(gorgonia.HadamardProd(must(gorgonia.Add(y, x))(t), w))(t)))(t)
	if err := ctl.Start(2); err != nil {
		t.Fatal(err)
	}
	one := newSlopes(weights, a, nil)
	want, plain := make([]float64, len(a.Q)), make([]float32, len(a.Q))
	for steps := 1; steps <= 2; steps++ {
		for i := range want {
			want[i] += one.want[0][i] + one.want[1][i] + one.want[2][i] + float64(weights[i])
			plain[i] += one.plain[0][i] + one.plain[1][i] + one.plain[2][i] + weights[i]
		}
		m := must(pulsecol.Attach(gorgonia.NewLispMachine(g), ctl))(t)
		if err := m.Step(); err != nil {
			t.Fatal(err)
		}
		m.Close()
		tol.CloseAbs(t, must(x.Grad())(t).Data().([]float32), want, tol.Bound(plain, want)+3*float64(steps)*one.off)
	}
}

// TestLispMachineOptions: what the options of a Lisp machine do to a step.
func TestLispMachineOptions(t *testing.T) {
	c := newGradCase(attncase.Rand(3))
	logger := log.New(io.Discard, "", 0)
	for name, opts := range map[string][]gorgonia.VMOpt{
		"NaNWatch":       {gorgonia.WithNaNWatch()},
		"InfWatch":       {gorgonia.WithInfWatch()},
		"log everything": {gorgonia.WithLogger(logger), gorgonia.WithWatchlist(), gorgonia.LogBothDir()},
		"eval mode":      {gorgonia.EvalMode()},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGradRig(t, c.a, pulsecol.Config{Sparsity: 0.5, GroupSize: 2, Schedule: refreshOnce}, c.weights, opts)
			g.start(2)
			newSlopes(c.weights, c.a, nil).check(t, g.gradients(c.a, refresh))
			got := g.gradients(c.a, reuse)
			newSlopes(c.weights, c.a, g.table(0)).check(t, got)
		})
	}
	t.Run("ExecuteFwdOnly", func(t *testing.T) {
		g := newGradRig(t, c.a, pulsecol.Config{}, c.weights, []gorgonia.VMOpt{gorgonia.ExecuteFwdOnly()})
		g.start(1)
		for i, grad := range g.gradients(c.a, denseStep) {
			if slices.ContainsFunc(grad, func(x float32) bool { return x != 0 }) {
				t.Errorf("a forward pass alone gives gradient %d = %v", i, grad)
			}
		}
		checkAttention(t, g.values(), c.a, nil)
	})
	t.Run("ExecuteBwdOnly", func(t *testing.T) {
		g := newGradRig(t, c.a, pulsecol.Config{}, c.weights, []gorgonia.VMOpt{gorgonia.ExecuteBwdOnly()})
		g.start(1)
		g.let(c.a)
		m := must(pulsecol.Attach(gorgonia.NewLispMachine(g.g, g.lisp...), g.ctl))(t)
		defer m.Close()
		if err := m.Step(); err == nil || !strings.Contains(err.Error(), "layers.0.attention did not run in this step") {
			t.Errorf("got %v, want an error that names the layer that did not run", err)
		}
	})
	t.Run("WithManualGradient", func(t *testing.T) { // y is the root, its gradient all ones
		ctl := newController(t, pulsecol.Config{})
		r := &rig{t: t, g: gorgonia.NewGraph(), ctl: ctl}
		r.q, r.k, r.v, r.mask = qkv(r.g, c.a)
		var opts []pulsecol.AttentionOption
		if r.mask != nil {
			opts = append(opts, pulsecol.WithPaddingMask(r.mask))
		}
		must(pulsecol.Attention(r.q, r.k, r.v, ctl.Layer(0), opts...))(t)
		r.start(1)
		r.let(c.a)
		m := must(pulsecol.Attach(gorgonia.NewLispMachine(r.g, gorgonia.WithManualGradient()), ctl))(t)
		defer m.Close()
		if err := m.Step(); err != nil {
			t.Fatal(err)
		}
		var got [3][]float32
		for i, n := range []*gorgonia.Node{r.q, r.k, r.v} {
			got[i] = must(n.Grad())(t).Data().([]float32)
		}
		newSlopes(slices.Repeat([]float32{1}, len(c.a.Q)), c.a, nil).check(t, got)
	})
}

// TestLispMachineAndWorkspace: a plan counts no readers in a backward pass, so the
// gradient of an input that it has planned is an error and not one of other values.
func TestLispMachineAndWorkspace(t *testing.T) {
	a := attncase.Seeded(1, small)
	ctl := newController(t, pulsecol.Config{})
	g := gorgonia.NewGraph()
	r := &rig{t: t, g: g, ctl: ctl}
	r.q, r.k, r.v, _ = qkv(g, a)
	first := must(pulsecol.Attention(r.q, r.k, r.v, ctl.Layer(0)))(t)
	must(pulsecol.Attention(first, r.k, r.v, ctl.Layer(1)))(t)
	if err := op.NewWorkspace().Plan(g, ctl.Modes()); err != nil {
		t.Fatal(err)
	}
	r.start(1)
	r.let(a)
	m := must(pulsecol.Attach(gorgonia.NewLispMachine(g, gorgonia.WithManualGradient()), ctl))(t)
	defer m.Close()
	if err := m.Step(); !errors.Is(err, op.ErrGraph) || !strings.Contains(err.Error(), "Workspace") {
		t.Errorf("got %v, want ErrGraph about the workspace", err)
	}
}

// TestGradientsOfRows: with selected rows the gradients are those without, of a cost in which
// other rows do not count, bit for bit, in every mode and under both machines.
func TestGradientsOfRows(t *testing.T) {
	a := attncase.Seeded(1, kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 40, HeadDim: 8})
	weights := attncase.Normal(attncase.Rand(2), len(a.Q), 1)
	const first, last = 7, 33
	for i := range weights {
		if at := i / a.HeadDim % a.Len; at < first || at > last {
			weights[i] = 0
		}
	}
	for machine, lisp := range machines {
		run := func(some bool) (all [][3][]float32) {
			r := &gradRig{rig: &rig{t: t, g: gorgonia.NewGraph(), ctl: newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 4, Schedule: refreshOnce})}, lisp: lisp}
			r.q, r.k, r.v, _ = qkv(r.g, a)
			var opts []pulsecol.AttentionOption
			counted := slices.Clone(weights)
			if some {
				opts = append(opts, pulsecol.WithRows(variable(r.g, "rows", []int32{last, -1, 40 + first}, 3)))
				for i := range counted { // what other rows get does not matter
					if at := i / a.HeadDim % a.Len; at < first || at > last {
						counted[i] = 5
					}
				}
			}
			r.y = must(pulsecol.Attention(r.q, r.k, r.v, r.ctl.Layer(0), opts...))(t)
			gorgonia.Read(r.y, &r.out)
			cost := must(gorgonia.Sum(must(gorgonia.HadamardProd(r.y, variable(r.g, "weights", counted, r.y.Shape()...)))(t)))(t)
			if lisp == nil {
				for i, n := range must(op.Grad(cost, r.q, r.k, r.v))(t) {
					gorgonia.Read(n, &r.symbol[i])
				}
				r.m = must(pulsecol.NewMachine(r.g, r.ctl))(t)
				defer r.m.Close()
			}
			r.start(3)
			for _, mode := range []pulsecol.Mode{refresh, reuse, denseStep} {
				r.ctl.SetDense(mode == denseStep)
				var copied [3][]float32
				for i, grad := range r.gradients(a, mode) {
					copied[i] = slices.Clone(grad)
				}
				all = append(all, copied)
			}
			return all
		}
		want, got := run(false), run(true)
		for step := range want {
			for i := range want[step] {
				tol.SameBits(t, fmt.Sprintf("%s machine, step %d, gradient %d", machine, step+1, i), got[step][i], want[step][i])
			}
		}
	}
}
