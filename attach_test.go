package pulsecol_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestOtherMachines: layers run under their controller's machine only. Any other way of
// running their graph is an error and does not change the controller.
func TestOtherMachines(t *testing.T) {
	a := attncase.Seeded(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	r.start(3)
	r.step(a, refresh)
	table := r.table(0)

	plain := gorgonia.NewTapeMachine(r.g)
	defer plain.Close()
	if err := plain.RunAll(); err == nil || !strings.Contains(err.Error(), op.ErrNoMachine.Error()) {
		t.Errorf("a plain tape machine: %v", err)
	}

	other := newController(t, pulsecol.Config{Sparsity: 0.5, Name: "other"})
	second := must(pulsecol.Attach(gorgonia.NewLispMachine(r.g, gorgonia.ExecuteFwdOnly()), other))(t) // whose graph Attach cannot see
	defer second.Close()
	if err := other.Start(1); err != nil {
		t.Fatal(err)
	}
	if err := second.RunAll(); !errors.Is(err, op.ErrNoMachine) {
		t.Errorf("another controller's machine: %v, want ErrNoMachine", err)
	}
	if got := other.Stats().Steps; got != 0 {
		t.Errorf("%d steps of the other controller count", got)
	}
	checkAttention(t, r.step(a, reuse), a, table)
}

// TestTwoMachinesInOneStep: a second machine that runs the layers while a step of
// the first is in progress gets an error.
func TestTwoMachinesInOneStep(t *testing.T) {
	var second gorgonia.VM
	var inner error
	nested := false
	a := attncase.Seeded(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 2, hooked(t, func() error {
		if nested {
			nested = false
			inner = second.RunAll()
		}
		return nil
	}))
	second = gorgonia.NewTapeMachine(r.g)
	defer second.Close()
	r.start(2)
	r.let(a)
	nested = true
	if err := r.m.Step(); err != nil {
		t.Errorf("the step itself: %v", err)
	}
	if inner == nil || !strings.Contains(inner.Error(), op.ErrOrder.Error()) {
		t.Errorf("the second machine: %v, want %v", inner, op.ErrOrder)
	}
}

// TestLispMachine: Gorgonia's lisp machine runs a graph once; its Reset does not
// rewind. The first step is right and every later one an error, with and without a
// Reset; the next machine goes on with the generation.
func TestLispMachine(t *testing.T) {
	a := attncase.Seeded(1, small)
	build := func() (*rig, gorgonia.VM) {
		r := &rig{t: t, g: gorgonia.NewGraph(), ctl: newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 8})}
		r.q, r.k, r.v, _ = qkv(r.g, a)
		r.y = must(pulsecol.Attention(r.q, r.k, r.v, r.ctl.Layer(0)))(t)
		r.let(a)
		return r, gorgonia.NewLispMachine(r.g, gorgonia.ExecuteFwdOnly())
	}
	_, vm := build()
	if err := vm.RunAll(); err == nil || !strings.Contains(err.Error(), op.ErrNoMachine.Error()) {
		t.Errorf("without a controller: %v, want %v", err, op.ErrNoMachine)
	}
	r, vm := build()
	r.m = must(pulsecol.Attach(vm, r.ctl))(t)
	defer r.m.Close()
	r.start(3)
	if err := r.m.Step(); err != nil {
		t.Fatal(err)
	}
	checkAttention(t, r.y.Value().Data().([]float32), a, nil)
	for name, step := range map[string]func() error{"Step": r.m.Step, "RunAll": r.m.RunAll} {
		if err := step(); !errors.Is(err, pulsecol.ErrRanOnce) {
			t.Errorf("a second step by %s: %v, want ErrRanOnce", name, err)
		}
	}
	if got := r.ctl.Stats().Steps; got != 1 {
		t.Errorf("%d steps count, want 1", got)
	}
	r.m.Close()
	r.m = must(pulsecol.Attach(gorgonia.NewLispMachine(r.g, gorgonia.ExecuteFwdOnly()), r.ctl))(t)
	if err := r.m.RunAll(); err != nil {
		t.Errorf("the next machine: %v", err)
	}
	if err := r.m.RunAll(); !errors.Is(err, pulsecol.ErrRanOnce) {
		t.Errorf("a second RunAll: %v, want ErrRanOnce", err)
	}
}

// TestAttach: one controller, one machine, one generation at a time.
func TestAttach(t *testing.T) {
	a := attncase.Seeded(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	other := newController(t, pulsecol.Config{})
	vm := gorgonia.NewTapeMachine(r.g)
	if _, err := pulsecol.Attach(vm, r.ctl); !errors.Is(err, pulsecol.ErrAttached) {
		t.Errorf("a second machine: %v, want ErrAttached", err)
	}
	if _, err := pulsecol.Attach(r.m, other); !errors.Is(err, pulsecol.ErrAttached) {
		t.Errorf("a second controller: %v, want ErrAttached", err)
	}
	if _, err := pulsecol.Attach(nil, other); err == nil {
		t.Error("a nil machine: no error")
	}
	if _, err := pulsecol.Attach(vm, nil); err == nil {
		t.Error("a nil controller: no error")
	}
	if r.m.Controller() != r.ctl {
		t.Error("Controller is another one")
	}

	// A closed machine frees its controller, with its generation and columns.
	r.start(4)
	r.step(a, refresh)
	want := r.step(a, reuse)
	for range 2 {
		if err := r.m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := r.m.RunAll(); !errors.Is(err, pulsecol.ErrClosed) {
		t.Errorf("RunAll of a closed machine: %v, want ErrClosed", err)
	}
	if err := r.m.Step(); !errors.Is(err, pulsecol.ErrClosed) {
		t.Errorf("Step of a closed machine: %v, want ErrClosed", err)
	}
	old := r.m
	r.m = must(pulsecol.Attach(vm, r.ctl))(t)
	tol.SameBits(t, "under the next machine", r.step(a, reuse), want)
	if err := old.Close(); err != nil { // must not free the new machine's controller
		t.Error(err)
	}
	if _, err := pulsecol.Attach(vm, r.ctl); !errors.Is(err, pulsecol.ErrAttached) {
		t.Errorf("after a late Close of the old machine: %v, want ErrAttached", err)
	}
}

// TestNewMachineErrors: what Gorgonia panics about, or runs wrongly, is an error.
func TestNewMachineErrors(t *testing.T) {
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5})
	for name, g := range map[string]*gorgonia.ExprGraph{"nil": nil, "empty": gorgonia.NewGraph()} {
		if m, err := pulsecol.NewMachine(g, ctl); err == nil || m != nil {
			t.Errorf("%s graph: %v, %v", name, m, err)
		}
	}
	g := gorgonia.NewGraph()
	q, k, v, _ := qkv(g, attncase.Seeded(1, small))
	must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
	if m, err := pulsecol.NewMachine(g, nil); err == nil || m != nil {
		t.Errorf("nil controller: %v, %v", m, err)
	}
	for _, n := range g.AllNodes() {
		if _, ok := exec.SpecOf(n.Op()).(exec.GroupTopK); ok {
			must(gorgonia.Reshape(n, tensor.Shape{2, n.Shape().TotalSize() / 2}))(t)
			break
		}
	}
	if m, err := pulsecol.NewMachine(g, ctl); !errors.Is(err, op.ErrGraph) || m != nil {
		t.Errorf("a foreign reader of the columns: %v, %v; want ErrGraph", m, err)
	}
	// None of the failures holds the controller.
	must(pulsecol.Attach(gorgonia.NewTapeMachine(g), ctl))(t)
}

// TestLayerOfAnotherGraph: a layer that was built but is not in the machine's graph
// would silently keep its old columns.
func TestLayerOfAnotherGraph(t *testing.T) {
	a := attncase.Seeded(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	q, k, v, _ := qkv(gorgonia.NewGraph(), a)
	must(pulsecol.Attention(q, k, v, r.ctl.Layer(1)))(t)
	r.start(1)
	r.let(a)
	if err := r.m.Step(); err == nil || !strings.Contains(err.Error(), "pulsecol.layers.1.attention did not run in this step") {
		t.Errorf("got %v", err)
	}
	if got := r.ctl.Stats().Steps; got != 0 {
		t.Errorf("%d steps count", got)
	}
}

// TestUnusedLayer: a layer without an Attention is no error.
func TestUnusedLayer(t *testing.T) {
	a := attncase.Seeded(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	r.ctl.Layer(5)
	r.start(2)
	r.step(a, refresh)
	r.step(a, reuse)
}

// TestTwoGraphsSideBySide: two graphs with a controller each, built and run in two
// goroutines, give the results of separate runs.
func TestTwoGraphsSideBySide(t *testing.T) {
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 3}}
	modes := []pulsecol.Mode{refresh, reuse, refresh, reuse, refresh}
	generate := func(r *rig) (out [][]float32) {
		r.start(len(modes))
		for i, mode := range modes {
			out = append(out, r.step(attncase.Seeded(uint64(i), small), mode))
		}
		return out
	}
	want := generate(newRig(t, attncase.Seeded(1, small), cfg, 2, nil))
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 3 {
				r := newRig(t, attncase.Seeded(1, small), cfg, 2, nil)
				for range 3 {
					for i, y := range generate(r) {
						tol.SameBits(t, fmt.Sprint("step ", i+1), y, want[i])
					}
				}
			}
		})
	}
}
