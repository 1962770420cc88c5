//go:build cuda

package cudaop_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/llada"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fills returns a machine, a function that makes n new values, and one that fills memory on the
// machine's GPU with values and counts the queue's segments and those of them that are graphs.
func fills(t *testing.T) (vm gorgonia.VM, values func(n int) []uint32, fill func(v []uint32) (known, graphs int)) {
	t.Helper()
	g := gorgonia.NewGraph()
	x := input(g, "x", make([]float32, 8), 1, 1, 8)
	read(must(op.Apply(must(cudaop.Wrap(op.NewAdd("add"), op.AutoPrecision))(t), x, x))(t))
	vm = machine(t, g)
	number := uint32(0)
	values = func(n int) []uint32 {
		v := make([]uint32, n)
		for i := range v {
			number++
			v[i] = number
		}
		return v
	}
	fill = func(v []uint32) (known, graphs int) {
		t.Helper()
		if got := must(cudaop.Fill(vm, v))(t); !slices.Equal(got, v) {
			t.Fatalf("%v, want %v", got, v)
		}
		known, graphs, never := cudaop.Replays()
		if never > 0 {
			t.Fatalf("%d segments cannot be captured", never)
		}
		return known, graphs
	}
	return vm, values, fill
}

// TestQueue: commands do the same one by one, when they are captured and as a graph, in
// any number.
func TestQueue(t *testing.T) {
	needGPU(t)
	vm, values, fill := fills(t)
	for _, c := range []struct{ commands, graphs int }{
		{2, 0}, {3, 0}, {4, 1}, {8, 1}, {9, 1}, // few are not worth a graph
		{12, 2}, {61, 4}, {301, 6}, // of 8, 16, 32, 64, 128 commands, and the rest
	} {
		v := values(c.commands - 1) // and a copy
		for round, want := range []int{0, c.graphs, c.graphs, c.graphs} {
			known, graphs := fill(v)
			if known != c.graphs || graphs != want {
				t.Errorf("%d commands, round %d: %d of %d segments are graphs, want %d of %d", c.commands, round, graphs, known, want, c.graphs)
			}
		}
	}
	// What cannot be captured runs all the same, and a failure is reported once.
	v := values(20)
	known, graphs := fill(v)
	cudaop.NeverCapture()
	for range 3 {
		if got := must(cudaop.Fill(vm, v))(t); !slices.Equal(got, v) {
			t.Fatalf("never captured: %v, want %v", got, v)
		}
	}
	if k, g, never := cudaop.Replays(); k != known || g != graphs || never != known {
		t.Errorf("%d segments, %d of them graphs and %d never, want %d, %d and all", k, g, never, known, graphs)
	}
	if err := cudaop.Unknown(vm); err == nil || !strings.Contains(err.Error(), "a command of kind 99") {
		t.Errorf("a command that there is not: %v", err)
	}
	if got := must(cudaop.Fill(vm, v))(t); !slices.Equal(got, v) {
		t.Fatalf("after a failure: %v, want %v", got, v)
	}
}

// TestChangedSegment: a segment that changes runs as it is now, and is a graph again once it
// stays the same.
func TestChangedSegment(t *testing.T) {
	needGPU(t)
	_, values, fill := fills(t)
	v := values(5)
	for round := range 20 {
		fill(v)
		if _, graphs := fill(v); graphs != 1 {
			t.Errorf("round %d: %d graphs of one that stays", round, graphs)
		}
		if _, graphs := fill(values(5)); graphs != 0 {
			t.Errorf("round %d: %d graphs of one that has changed", round, graphs)
		}
	}
}

// TestStepFlushes: no command stays buffered after a step, so that errors are those of the step.
func TestStepFlushes(t *testing.T) {
	needGPU(t)
	l := must(llada.OpenFS(tinymodel.FS(), tinymodel.Weights()))(t)
	defer l.Close()
	ctl := must(pulsecol.NewController(pulsecol.Config{Device: pulsecol.CUDA, Sparsity: 0.5, GroupSize: 16}))(t)
	g := gorgonia.NewGraph()
	const n = 20
	m := must(l.Build(g, models.Shape{Batch: 1, Len: n, Rows: 1}, ctl))(t)
	for node, data := range map[*gorgonia.Node][]int32{m.IDs: make([]int32, n), m.Positions: make([]int32, n), m.Rows: {3}} {
		if err := gorgonia.Let(node, tensor.New(tensor.WithShape(node.Shape()...), tensor.WithBacking(data))); err != nil {
			t.Fatal(err)
		}
	}
	later := lmhead.Defer(m.Logits.Op())
	if err := op.NewWorkspace().Plan(g, ctl.Modes(), m.Logits); err != nil {
		t.Fatal(err)
	}
	vm := must(pulsecol.NewMachine(g, ctl))(t)
	defer vm.Close()
	if err := ctl.Start(3); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := vm.Step(); err != nil {
			t.Fatal(err)
		}
		if held := cudaop.Buffered(); held != 0 {
			t.Errorf("%d commands are buffered after a step", held)
		}
	}
	must(later(1).Rows(1, 0))(t)
}

// inTurn is a schedule: dense, refresh and reuse take turns.
type inTurn struct{}

func (inTurn) Mode(step, _ int) pulsecol.Mode {
	return []pulsecol.Mode{pulsecol.Dense, pulsecol.Refresh, pulsecol.Reuse}[(step-1)%3]
}

// TestReplays: a model's steps of one mode give the same commands, and so are graphs from
// the second on.
func TestReplays(t *testing.T) {
	needGPU(t)
	m := must(llada.OpenFS(tinymodel.FS(), tinymodel.Weights()))(t)
	defer m.Close()
	ids := must(m.Encode("Q: Please reverse the list 66 50 47 62.\nA:"))(t)
	var known, graphs []int // after each step
	var o llada.GenerateOptions
	o.Steps, o.GenLength, o.BlockLength = 15, 15, 15
	o.OnStep = func(p models.Progress) {
		k, g, never := cudaop.Replays()
		if known, graphs = append(known, k), append(graphs, g); never > 0 {
			t.Errorf("step %d, %v: %d segments cannot be captured", p.Step, p.Mode, never)
		}
	}
	must(m.Generate(context.Background(), ids, pulsecol.Config{Device: pulsecol.CUDA, Sparsity: 0.5, GroupSize: 32, Schedule: inTurn{}}, o))(t)
	for step := 7; step <= 15; step++ {
		if k := known[step-1]; k != known[5] {
			t.Errorf("step %d: %d segments are known, after 6 steps %d were", step, k, known[5])
		}
		if g := graphs[step-1]; g != graphs[5] || g < 12 { // some four in each mode
			t.Errorf("step %d: %d graphs, after 6 steps there were %d", step, g, graphs[5])
		}
	}
}
