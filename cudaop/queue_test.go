//go:build cuda

package cudaop_test

import (
	"context"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models/llada"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// TestQueue: commands do the same one by one, when they are captured and as a graph, in
// any number.
func TestQueue(t *testing.T) {
	needGPU(t)
	g := gorgonia.NewGraph()
	x := input(g, "x", make([]float32, 8), 1, 1, 8)
	read(must(op.Apply(must(cudaop.Wrap(op.NewAdd("add"), op.AutoPrecision))(t), x, x))(t))
	vm := machine(t, g)
	number := uint32(0)
	values := func(n int) []uint32 { // that were never there
		v := make([]uint32, n)
		for i := range v {
			number++
			v[i] = number
		}
		return v
	}
	fill := func(v []uint32) (known, graphs int) {
		t.Helper()
		if got := must(cudaop.Fill(vm, v))(t); !slices.Equal(got, v) {
			t.Fatalf("%v, want %v", got, v)
		}
		known, graphs, never := cudaop.Replays()
		if never > 0 {
			t.Fatalf("%d runs of commands cannot be captured", never)
		}
		return known, graphs
	}
	for _, c := range []struct{ commands, graphs int }{
		{2, 0}, {3, 0}, {4, 1}, {8, 1}, {9, 1}, // few are not worth a graph
		{12, 2}, {61, 4}, {301, 6}, // of 8, 16, 32, 64, 128 commands, and the rest
	} {
		known, graphs := fill(values(c.commands - 1)) // and a copy; the memory is there from now on
		v := values(c.commands - 1)
		for round, made := range []int{0, c.graphs, c.graphs, c.graphs} {
			k, g := fill(v)
			if k -= known; k != c.graphs {
				t.Errorf("%d commands, round %d: %d runs are new, want %d", c.commands, round, k, c.graphs)
			}
			if g -= graphs; g != made {
				t.Errorf("%d commands, round %d: %d graphs are new, want %d", c.commands, round, g, made)
			}
		}
	}
	v := values(5)
	for range 300 {
		fill(v)
		if known, _ := fill(values(5)); known > 256 {
			t.Fatalf("%d runs of commands are kept", known)
		}
	}
	if _, graphs := fill(v); graphs != 1 {
		t.Errorf("%d graphs, want one of what came every time", graphs)
	}
}

// inTurn is a schedule: dense, refresh and reuse take turns.
type inTurn struct{}

func (inTurn) Mode(step, _ int) pulsecol.Mode {
	return []pulsecol.Mode{pulsecol.Dense, pulsecol.Refresh, pulsecol.Reuse}[(step-1)%3]
}

// TestReplays: a model's steps of one mode give the same commands, and so are graphs from
// the third on: in the first one memory comes from the driver.
func TestReplays(t *testing.T) {
	needGPU(t)
	m := must(llada.OpenFS(tinymodel.FS(), tinymodel.Weights()))(t)
	defer m.Close()
	ids := must(m.Encode("Q: Please reverse the list 66 50 47 62.\nA:"))(t)
	var known, graphs []int // after each step
	var o llada.GenerateOptions
	o.Steps, o.GenLength, o.BlockLength = 15, 15, 15
	o.OnStep = func(p llada.Progress) {
		k, g, never := cudaop.Replays()
		if known, graphs = append(known, k), append(graphs, g); never > 0 {
			t.Errorf("step %d, %v: %d runs of commands cannot be captured", p.Step, p.Mode, never)
		}
	}
	must(m.Generate(context.Background(), ids, pulsecol.Config{Device: pulsecol.CUDA, Sparsity: 0.5, GroupSize: 32, Schedule: inTurn{}}, o))(t)
	for step := 7; step <= 15; step++ {
		if k := known[step-1]; k != known[5] {
			t.Errorf("step %d: %d runs of commands are known, after 6 steps %d were", step, k, known[5])
		}
	}
	for step := 9; step <= 15; step++ {
		if g := graphs[step-1]; g != graphs[8] || g < 12 { // some four in each mode
			t.Errorf("step %d: %d graphs, after 9 steps there were %d", step, g, graphs[8])
		}
	}
}
