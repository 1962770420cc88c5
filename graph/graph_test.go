package graph_test

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestNodeCount: Gorgonia merges no nodes of a model of two layers, which differ only in
// their paths and weights.
func TestNodeCount(t *testing.T) {
	for name, model := range map[string]tiny{"llada": llada, "dream": dream} {
		for blocks := range 4 {
			g := gorgonia.NewGraph()
			model.build(t, g, newController(t, pulsecol.Config{Sparsity: 0.5}), blocks, 6, 1, 2, 3, 6, 6, 6)
			// Inputs: ids, positions, rows. Embedding, selection of rows, norm, head. In a block: 2
			// norms, 3 linear layers, 2 rotations, the split of v, 3 for attention, the
			// merge and the gated layer.
			if got, want := len(g.AllNodes()), 3+4+blocks*(2+3+2+1+3+1+1); got != want {
				t.Errorf("%s of %d blocks: %d nodes, want %d", name, blocks, got, want)
			}
			if err := graph.Check(g); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestBuildRows: a last block with selected rows gives the bits of those rows of the whole
// block, in dense, refresh and reuse steps.
func TestBuildRows(t *testing.T) {
	const batch, n, steps = 2, 6, 4
	ids := []int32{1, 2, 3, 6, 6, 6, 0, 4, 5, 6, 6, 6}
	selected := []int32{3, -1, 4, 11, 3, 0}
	at := make([]int32, len(ids))
	for i := range at {
		at[i] = int32(i % n)
	}
	run := func(model tiny, some bool) (out [][]float32, modes []pulsecol.Mode) {
		ctl := newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 2, Schedule: pulsecol.Uniform{Refreshes: 2}})
		g := gorgonia.NewGraph()
		positions := variable(g, "positions", at, batch, n)
		x := must(graph.Embed("embed", variable(g, "ids", ids, batch, n), weights{t}.matrix(7, 8, 1, 0.1), pulsecol.CPU))(t)
		x = must(model.block(t, 0).Build(x, positions, ctl.Layer(0)))(t)
		var rows *gorgonia.Node
		if some {
			rows = variable(g, "rows", selected, len(selected))
		}
		last := model.block(t, 1)
		x = must(last.Attention(x, positions, rows, ctl.Layer(1)))(t)
		x = must(last.FeedForward(x, ctl.Layer(1)))(t)
		m := must(pulsecol.NewMachine(g, ctl))(t)
		defer m.Close()
		if err := ctl.Start(steps); err != nil {
			t.Fatal(err)
		}
		for range steps {
			if err := m.RunAll(); err != nil {
				t.Fatal(err)
			}
			out, modes = append(out, slices.Clone(x.Value().Data().([]float32))), append(modes, ctl.LastMode())
			m.Reset()
		}
		return out, modes
	}
	for name, model := range map[string]tiny{"llada": llada, "dream": dream} {
		whole, modes := run(model, false)
		some, _ := run(model, true)
		for step, got := range some {
			if len(got) != len(selected)*8 {
				t.Fatalf("%s: %d numbers, want %d rows of 8", name, len(got), len(selected))
			}
			for r, row := range selected {
				if row < 0 {
					continue
				}
				if have, want := got[r*8:(r+1)*8], whole[step][row*8:(row+1)*8]; !slices.Equal(have, want) {
					t.Errorf("%s, step %d (%v), row %d: %v, want %v", name, step+1, modes[step], row, have, want)
				}
			}
		}
		if slices.Index(modes, pulsecol.Refresh) < 0 || slices.Index(modes, pulsecol.Reuse) < 0 {
			t.Errorf("%s: modes %v, want refreshes and reuse", name, modes)
		}
	}
}

// TestSharedWeightName: different weights under one name are an error; the same weights
// twice, as in tied layers, are not.
func TestSharedWeightName(t *testing.T) {
	g := gorgonia.NewGraph()
	x := variable(g, "x", make([]float32, 8), 1, 1, 8)
	w := weights{t}
	shared := graph.Projection{Path: "proj", Weight: w.matrix(8, 8, 0.3, 1)}
	first := must(graph.Linear(x, shared))(t)
	if again := must(graph.Linear(x, shared))(t); again != first {
		t.Error("the same projection of the same input is computed twice")
	}
	if _, err := graph.Linear(x, graph.Projection{Path: "proj", Weight: w.matrix(8, 8, 0.3, 2)}); !errors.Is(err, op.ErrMerged) {
		t.Errorf("other data: %v, want ErrMerged", err)
	}
	norm := w.norm("norm", 1, 1e-5)
	must(graph.RMSNorm(x, norm))(t)
	if _, err := graph.RMSNorm(x, w.norm("norm", 2, 1e-5)); !errors.Is(err, op.ErrMerged) {
		t.Errorf("another norm: %v, want ErrMerged", err)
	}
}

// TestCheckUnnamedInput: Gorgonia merges two unnamed inputs of one shape.
func TestCheckUnnamedInput(t *testing.T) {
	g := gorgonia.NewGraph()
	unnamed := func() *gorgonia.Node { return gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 3)) }
	if unnamed() != unnamed() {
		t.Error("premise: Gorgonia used to merge unnamed inputs")
	}
	if err := graph.Check(g); !errors.Is(err, op.ErrGraph) || !strings.Contains(err.Error(), "of shape (2, 3) has no name") {
		t.Errorf("got %v, want ErrGraph", err)
	}
}

// TestCheckAbbreviatedConstant: Gorgonia identifies a constant by its printed value, which
// it abbreviates.
func TestCheckAbbreviatedConstant(t *testing.T) {
	big := func(middle float32) *tensor.Dense {
		x := make([]float32, 100*100)
		x[5000] = middle
		return tensor.New(tensor.WithShape(100, 100), tensor.WithBacking(x))
	}
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(100, 100), gorgonia.WithName("x"))
	if must(gorgonia.Add(x, gorgonia.NewConstant(big(1))))(t) != must(gorgonia.Add(x, gorgonia.NewConstant(big(7))))(t) {
		t.Error("premise: Gorgonia used to merge these constants")
	}
	if err := graph.Check(g); !errors.Is(err, op.ErrGraph) || !strings.Contains(err.Error(), "is named by its abbreviated value") {
		t.Errorf("got %v, want ErrGraph", err)
	}

	g = gorgonia.NewGraph()
	x = gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(100, 100), gorgonia.WithName("an input may be called ..."))
	must(gorgonia.Add(x, gorgonia.NewConstant(big(1), gorgonia.WithName("one"))))(t)
	must(gorgonia.Add(x, gorgonia.NewConstant(float32(2))))(t)
	if err := graph.Check(g); err != nil {
		t.Errorf("named and scalar constants: %v", err)
	}
}

// TestCheckReportsAll: Check reports every problem, including those of op.Check.
func TestCheckReportsAll(t *testing.T) {
	g := gorgonia.NewGraph()
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5})
	qkv := variable(g, "qkv", make([]float32, 64), 1, 2, 8, 4)
	must(pulsecol.Attention(qkv, qkv, qkv, ctl.Layer(0)))(t)
	for _, n := range g.AllNodes() {
		if _, ok := exec.SpecOf(n.Op()).(exec.GroupTopK); ok {
			must(gorgonia.Reshape(n, tensor.Shape{2}))(t)
			break
		}
	}
	gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(3))
	err := graph.Check(g)
	for _, want := range []string{"reads the column table", "of shape (3) has no name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if err := graph.Check(gorgonia.NewGraph()); err != nil {
		t.Errorf("an empty graph: %v", err)
	}
}

// TestWorkspaceOfBlocks: the memory of a model's intermediate values does not depend on the
// number of blocks. It is larger with refreshes than without.
func TestWorkspaceOfBlocks(t *testing.T) {
	for _, s := range []struct{ n, group int }{{6, 2}, {9, 4}, {8, 2}, {70, 4}} {
		var first [2]int64
		for _, blocks := range []int{2, 6} {
			for i, sparsity := range []float64{0, 0.5} {
				g := gorgonia.NewGraph()
				ctl := newController(t, pulsecol.Config{Sparsity: sparsity, GroupSize: s.group, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}})
				logits := llada.build(t, g, ctl, blocks, s.n, slices.Repeat([]int32{1, 2, 6}, 24)[:s.n]...)
				ws := op.NewWorkspace()
				if err := ws.Plan(g, ctl.Modes(), logits); err != nil {
					t.Fatal(err)
				}
				if first[i] == 0 {
					first[i] = ws.Bytes()
				}
				if got := ws.Bytes(); got != first[i] {
					t.Errorf("%d blocks, %d tokens, sparsity %v: %d bytes, 2 blocks %d", blocks, s.n, sparsity, got, first[i])
				}
			}
		}
		if s.n == 70 && first[0] >= first[1] {
			t.Errorf("%d bytes without refreshes, %d with", first[0], first[1])
		}
	}
}

// TestWorkspaceAfterFailedSteps: the next step reuses the memory of a failed one.
func TestWorkspaceAfterFailedSteps(t *testing.T) {
	g := gorgonia.NewGraph()
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 2, Schedule: pulsecol.Uniform{Refreshes: 1}})
	logits := llada.build(t, g, ctl, 1, 6, 1, 2, 3, 6, 6, 6)
	rows := g.ByName("rows")[0].Value().Data().([]int32)
	ws := op.NewWorkspace()
	if err := ws.Plan(g, ctl.Modes(), logits); err != nil {
		t.Fatal(err)
	}
	m := must(pulsecol.NewMachine(g, ctl))(t)
	defer m.Close()
	if err := ctl.Start(3); err != nil {
		t.Fatal(err)
	}
	step := func() []float32 {
		t.Helper()
		if err := m.Step(); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(logits.Value().Data().([]float32))
	}
	step()
	want, held := step(), ws.Bytes()
	for range 3 {
		rows[5] = 99 // the last operator fails, with its input in use
		if err := m.Step(); !errors.Is(err, op.ErrValue) {
			t.Fatalf("got %v, want ErrValue", err)
		}
	}
	rows[5] = 5
	if got := step(); !slices.Equal(got, want) {
		t.Errorf("logits %v, want %v", got, want)
	}
	if got := ws.Bytes(); got != held {
		t.Errorf("%d bytes after three failures, %d before", got, held)
	}
}

// TestBlockErrors: an error names the block, the part and the operator.
func TestBlockErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *graph.Block)
		want   []string
	}{
		"attention norm": {func(b *graph.Block) { b.AttentionNorm.Weight = make([]float32, 7) }, []string{"attention", "blocks.1.norm1", "weight 7"}},
		"q":              {func(b *graph.Block) { b.Q.Weight = weights{t}.matrix(8, 9, 1, 0) }, []string{"attention", "blocks.1.q", "takes 9"}},
		"q's heads":      {func(b *graph.Block) { b.Heads = 3 }, []string{"attention", "blocks.1.q: ", "weight [8 8], 3 heads of 4 need 12 rows"}},
		"k":              {func(b *graph.Block) { b.K.Bias = make([]float32, 3) }, []string{"attention", "blocks.1.k", "bias has 3"}},
		"k's heads":      {func(b *graph.Block) { b.KVHeads = 4 }, []string{"attention", "blocks.1.k: ", "4 heads of 4 need 16 rows"}},
		"v":              {func(b *graph.Block) { b.V.Weight = weights{t}.matrix(4, 8, 1, 0) }, []string{"attention", "blocks.1.v: ", "2 heads of 4 need 8 rows"}},
		"head dimension": {func(b *graph.Block) {
			b.HeadDim = 1
			b.Heads, b.KVHeads = 8, 8
		}, []string{"attention", "head dimension 1"}},
		"theta":             {func(b *graph.Block) { b.Theta = 0 }, []string{"attention", "theta 0"}},
		"out":               {func(b *graph.Block) { b.Out.Weight = weights{t}.matrix(8, 4, 1, 0) }, []string{"attention", "blocks.1.out", "takes 4"}},
		"out's size":        {func(b *graph.Block) { b.Out.Weight = weights{t}.matrix(4, 8, 1, 0) }, []string{"attention", "blocks.1.out", "differ"}},
		"feed-forward norm": {func(b *graph.Block) { b.FeedForwardNorm.Weight = nil }, []string{"feed-forward", "blocks.1.norm2", "weight 0"}},
		"gate":              {func(b *graph.Block) { b.Gate.Bias = make([]float32, 1) }, []string{"feed-forward", "blocks.1.gate"}},
		"up":                {func(b *graph.Block) { b.Up.Weight = weights{t}.matrix(11, 8, 1, 0) }, []string{"feed-forward", "blocks.1.gate+blocks.1.up", "gate has 12 outputs, up 11"}},
		"down":              {func(b *graph.Block) { b.Down.Weight = weights{t}.matrix(8, 11, 1, 0) }, []string{"feed-forward", "blocks.1.down", "takes 11"}},
		"down's size":       {func(b *graph.Block) { b.Down.Weight = weights{t}.matrix(9, 12, 1, 0) }, []string{"feed-forward", "blocks.1.down", "differ"}},
	} {
		g := gorgonia.NewGraph()
		x, at := variable(g, "x", make([]float32, 48), 1, 6, 8), variable(g, "positions", make([]int32, 6), 1, 6)
		b := llada.block(t, 1)
		c.change(b)
		y, err := b.Build(x, at, newController(t, pulsecol.Config{}).Layer(0))
		if !errors.Is(err, op.ErrShape) && name != "theta" { // which has no shape
			t.Errorf("%s: %v, want ErrShape", name, err)
		}
		for _, want := range append(c.want, "graph: blocks.1: ") {
			if y != nil || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%s: got %v, %v; want an error with %q", name, y, err, want)
			}
		}
	}
	g := gorgonia.NewGraph()
	x, at := variable(g, "x", make([]float32, 48), 1, 6, 8), variable(g, "positions", make([]int32, 6), 1, 6)
	var none *graph.Block
	for _, err := range []error{
		func() error { _, err := none.Build(x, at, nil); return err }(),
		func() error { _, err := none.FeedForward(x, nil); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "the block is nil") {
			t.Errorf("no block: %v", err)
		}
	}
	if _, err := llada.block(t, 0).Build(x, at, nil); err == nil || !strings.Contains(err.Error(), "the layer is nil") {
		t.Errorf("no layer: %v", err)
	}
	if _, err := llada.block(t, 0).Build(nil, at, nil); err == nil {
		t.Error("no input: no error")
	}
}

// TestBlockPadding: a padding mask given to a block reaches its attention.
func TestBlockPadding(t *testing.T) {
	run := func(embedding float32) []float32 { // of the padding token
		g := gorgonia.NewGraph()
		x := make([]float32, 48)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		for i := range 8 {
			x[i] *= embedding
		}
		mask := variable(g, "mask", []float32{0, 1, 1, 1, 1, 1}, 1, 6)
		ctl := newController(t, pulsecol.Config{})
		y := must(llada.block(t, 0).Build(variable(g, "x", x, 1, 6, 8), variable(g, "positions", []int32{0, 1, 2, 3, 4, 5}, 1, 6), ctl.Layer(0), pulsecol.WithPaddingMask(mask)))(t)
		m := must(pulsecol.NewMachine(g, ctl))(t)
		defer m.Close()
		if err := ctl.Start(1); err != nil {
			t.Fatal(err)
		}
		if err := m.Step(); err != nil {
			t.Fatal(err)
		}
		return y.Value().Data().([]float32)[8:]
	}
	if one, two := run(1), run(-5); !slices.Equal(one, two) {
		t.Errorf("what stands at a padding position changes the others: %v, %v", one, two)
	}
}

// recorder is a hash that keeps what is written to it.
type recorder struct {
	hash.Hash
	text strings.Builder
}

func (r *recorder) Write(p []byte) (int, error) { return r.text.Write(p) }

// TestPrecision: the controller's precision reaches the four operators with weights
// and the three of attention of a block, and the head keeps its own.
func TestPrecision(t *testing.T) {
	for precision, want := range map[pulsecol.Precision]int{pulsecol.AutoPrecision: 2*(4+3) + 1, pulsecol.Float32: 2 * (4 + 3), pulsecol.BFloat16: 2 * (4 + 3), pulsecol.Int16: 2 * (4 + 3), pulsecol.Int8: 2 * (4 + 3)} {
		g := gorgonia.NewGraph()
		ctl := newController(t, pulsecol.Config{Sparsity: 0.5, Precision: precision})
		llada.build(t, g, ctl, 2, 6, 1, 2, 3, 6, 6, 6)
		got := 0
		for _, n := range g.AllNodes() {
			if n.Op() == nil {
				continue
			}
			h := &recorder{Hash: fnv.New32a()}
			n.Op().WriteHash(h)
			if strings.Contains(h.text.String(), strconv.Quote(precision.String())) {
				got++
			}
		}
		if got != want {
			t.Errorf("%d operators of %v, want %d", got, precision, want)
		}
	}
}
