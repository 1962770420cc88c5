package pulsecol_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// refused fails the test unless NewMachine and Attach refuse the graph with an error that
// wraps ErrOwner and contains all of says.
func refused(t *testing.T, g *gorgonia.ExprGraph, ctl *pulsecol.Controller, says ...string) {
	t.Helper()
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	made, newErr := pulsecol.NewMachine(g, ctl)
	attached, attachErr := pulsecol.Attach(vm, ctl)
	for name, err := range map[string]error{"NewMachine": newErr, "Attach": attachErr} {
		if made != nil || attached != nil || !errors.Is(err, pulsecol.ErrOwner) {
			t.Fatalf("%s: %v, want ErrOwner", name, err)
		}
		for _, want := range says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an error with %q", name, err, want)
			}
		}
	}
}

// TestGraphOfAnotherController: a graph with layers of a controller, cloned or not, is
// refused for any other one. Its own machine is not affected: steps are right and stop with
// their context.
func TestGraphOfAnotherController(t *testing.T) {
	a := attncase.Seeded(1, small)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := false
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce, Name: "first"}
	r := newRig(t, a, cfg, 2, hooked(t, func() error {
		if stop {
			cancel()
		}
		return nil
	}))
	r.start(4)
	r.step(a, refresh)
	want := r.step(a, reuse)
	other := newController(t, pulsecol.Config{Sparsity: 0.5, Name: "other"})
	says := []string{`layer "first.layers.0.attention" (and 1 more) belongs to another controller, "first"; the machine's is "other"`}
	refused(t, r.g, other, says...)
	refused(t, r.g.Clone().(*gorgonia.ExprGraph), other, says...)
	refused(t, r.g.SubgraphRoots(r.y), other, says...)
	tol.SameBits(t, "after the refusals", r.step(a, reuse), want)
	stop = true
	if err := r.m.StepContext(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a step whose context is done: %v", err)
	}
	if err := r.m.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, r.g, other, says...) // with its machine closed as well

	q, k, v, _ := qkv(gorgonia.NewGraph(), a)
	must(pulsecol.Attention(q, k, v, other.Layer(0)))(t)
	m := must(pulsecol.NewMachine(q.Graph(), other))(t) // the other one is free
	defer m.Close()
}

// TestLayersOfTwoControllers: a graph with both is refused for both.
func TestLayersOfTwoControllers(t *testing.T) {
	g := gorgonia.NewGraph()
	q, k, v, _ := qkv(g, attncase.Seeded(1, small))
	one := newController(t, pulsecol.Config{Sparsity: 0.5, Name: "one"})
	two := newController(t, pulsecol.Config{Sparsity: 0.5, Name: "two"})
	y := must(pulsecol.Attention(q, k, v, one.Layer(0)))(t)
	must(pulsecol.Attention(y, k, v, two.Layer(3)))(t)
	for _, ctl := range []*pulsecol.Controller{one, two} {
		m, err := pulsecol.NewMachine(g, ctl)
		if m != nil || !errors.Is(err, pulsecol.ErrOwner) || !strings.Contains(err.Error(), `"one"`) || !strings.Contains(err.Error(), `"two"`) {
			t.Errorf("%s: %v, want ErrOwner with both names", ctl.Config().Name, err)
		}
	}
}

// TestLayerElsewhere: a controller's layers are all in the machine's graph.
func TestLayerElsewhere(t *testing.T) {
	a := attncase.Seeded(1, small)
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5})
	g := gorgonia.NewGraph()
	q, k, v, _ := qkv(g, a)
	must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
	far := gorgonia.NewGraph()
	q, k, v, _ = qkv(far, a)
	must(pulsecol.Attention(q, k, v, ctl.Layer(2)))(t)
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	for name, err := range map[string]error{"NewMachine": second(pulsecol.NewMachine(g, ctl)), "Attach": second(pulsecol.Attach(vm, ctl))} {
		if err == nil || !strings.Contains(err.Error(), "the attention of pulsecol.layers.2.attention is not in the machine's graph") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGraphInAnotherMachine: operators without a layer are in one machine at a time.
func TestGraphInAnotherMachine(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(1, 1, 2), gorgonia.WithName("x"))
	must(op.Apply(op.NewAdd("sum"), x, x))(t)
	one, two := newController(t, pulsecol.Config{Name: "one"}), newController(t, pulsecol.Config{Name: "two"})
	m := must(pulsecol.NewMachine(g, one))(t)
	refused(t, g, two, fmt.Sprintf("Add{sum} belongs to another controller, %q; the machine's is %q", "one", "two"))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = must(pulsecol.NewMachine(g, two))(t)
	refused(t, g, one)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNewMachineChecksTheGraph: nodes that Gorgonia would silently merge are an error before
// anything runs.
func TestNewMachineChecksTheGraph(t *testing.T) {
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5})
	g := gorgonia.NewGraph()
	unnamed := func() *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 1, 8, 2))
	}
	must(pulsecol.Attention(unnamed(), unnamed(), unnamed(), ctl.Layer(0)))(t)
	if m, err := pulsecol.NewMachine(g, ctl); m != nil || !errors.Is(err, op.ErrGraph) || !strings.Contains(err.Error(), "of shape (1, 1, 8, 2) has no name") {
		t.Errorf("q, k and v without names: %v, want ErrGraph", err)
	}

	ctl = newController(t, pulsecol.Config{Sparsity: 0.5})
	g = gorgonia.NewGraph()
	q, k, v, _ := qkv(g, attncase.Seeded(1, small))
	must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(100, 100), gorgonia.WithName("x"))
	big := tensor.New(tensor.WithShape(100, 100), tensor.WithBacking(make([]float32, 100*100)))
	must(gorgonia.Add(x, gorgonia.NewConstant(big)))(t)
	if m, err := pulsecol.NewMachine(g, ctl); m != nil || !errors.Is(err, op.ErrGraph) || !strings.Contains(err.Error(), "is named by its abbreviated value") {
		t.Errorf("a large constant without a name: %v, want ErrGraph", err)
	}
}
