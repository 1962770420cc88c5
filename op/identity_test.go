package op_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestHashCoversParameters: no two of these operators may hash alike, or
// Gorgonia would run one in place of the other.
func TestHashCoversParameters(t *testing.T) {
	var step exec.Step
	state, given := exec.NewState("layer", &step), exec.NewState("layer", &step)
	given.Give(&exec.ColumnBits{Batch: 1, Heads: 1, Len: 64, Group: 32, Bits: make([]uint32, 4)})
	w22, w23 := weight(t, 2, 2, make([]float32, 4)), weight(t, 2, 3, make([]float32, 6))
	next := math.Nextafter(0.5, 1)
	exact, rounded, integers := w22, w22, w22
	exact.Precision, rounded.Precision, integers.Precision = op.Float32, op.BFloat16, op.Int16
	ops := []gorgonia.Op{
		op.NewTrainedLinear("a", 1), op.NewTrainedLinear("a", math.Nextafter(1, 0)), op.NewTrainedLMHead("a"), op.NewTrainedEmbed("a"),
		op.NewTrainedRMSNorm("a", 1e-5), op.NewTrainedRMSNorm("a", 1e-6), op.NewGate("a"), op.NewAddBias("a"), op.NewCrossEntropy("a"),
		op.NewAdd("a"), op.NewAdd("b"), op.NewMergeHeads("a"), op.NewGatherRows("a"),
		op.NewEmbed("a", w22), op.NewEmbed("a", w23), op.NewLMHead("a", w22), op.NewLMHead("a", w23),
		op.NewRMSNorm("a", make([]float32, 2), 1e-5), op.NewRMSNorm("a", make([]float32, 2), 1e-6), op.NewRMSNorm("a", make([]float32, 3), 1e-5),
		must(op.NewLinear("a", op.Projection{Weight: w22}))(t), must(op.NewLinear("a", op.Projection{Weight: w22, Bias: make([]float32, 2)}))(t), must(op.NewLinear("b", op.Projection{Weight: w22}))(t),
		must(op.NewLinear("a", op.Projection{Weight: exact}))(t), must(op.NewLinear("a", op.Projection{Weight: rounded}))(t), op.NewLMHead("a", rounded), must(op.NewLinear("a", op.Projection{Weight: integers}))(t),
		must(op.NewLinear("a", op.Projection{Weight: w22}, op.Projection{Weight: w22}))(t), must(op.NewAddLinear("a", op.Projection{Weight: w22}))(t),
		must(op.NewSwiGLU("a", op.Projection{Weight: w22}, op.Projection{Weight: w22}))(t), must(op.NewSwiGLU("a", op.Projection{Weight: w22}, op.Projection{Weight: rounded}))(t),
		must(op.NewSwiGLU("a", op.Projection{Weight: w23}, op.Projection{Weight: w23}))(t), must(op.NewSwiGLU("a", op.Projection{Weight: w22}, op.Projection{Weight: w22, Bias: make([]float32, 2)}))(t),
		must(op.NewSplitHeads("a", op.Heads{Count: 2, Dim: 4}))(t), must(op.NewSplitHeads("a", op.Heads{First: 1, Count: 2, Dim: 4}))(t), must(op.NewRoPE("a", op.Heads{First: 1, Count: 2, Dim: 4}, 1e4))(t), must(op.NewSplitHeads("a", op.Heads{Count: 4, Dim: 2}))(t),
		must(op.NewRoPE("a", op.Heads{Count: 2, Dim: 4}, 1e4))(t), must(op.NewRoPE("a", op.Heads{Count: 4, Dim: 2}, 1e4))(t), must(op.NewRoPE("a", op.Heads{Count: 2, Dim: 4}, math.Nextafter(1e4, 0)))(t),
		must(op.NewDenseAttn("a", 0.5, false))(t), must(op.NewDenseAttn("a", next, false))(t), must(op.NewDenseAttn("a", 0.5, true))(t),
		must(op.NewAllGather("a", 3, 1, nil))(t), must(op.NewAllGather("b", 3, 1, nil))(t), must(op.NewAllGather("a", 3, 2, nil))(t), must(op.NewAllGather("a", 4, 1, nil))(t), must(op.NewAllGather("a", 3, 1, twoRanks{}))(t),
		must(op.NewAllReduce("a", 3, nil))(t), must(op.NewReduceScatter("a", 3, 1, nil))(t),
	}
	for _, p := range []op.AttentionParams{
		{},
		{Group: 16},
		{Scale: 0.5},
		{Scale: next},
		{Masked: true},
		{Precision: op.Float32},
		{Precision: op.BFloat16},
		{Precision: op.Int16},
		op.AttentionParams{}.In(state),
		{Selection: op.Selection{Sparsity: 0.5}},
		{Selection: op.Selection{Sparsity: next}},
		{Selection: op.Selection{Kind: op.SelectBlocks, Block: 32}},
		{Selection: op.Selection{Kind: op.SelectBlocks, Block: 16}},
		{Selection: op.Selection{Kind: op.SelectSparseD, Block: 32}},
		{Selection: op.Selection{Kind: op.SelectSparseD, Block: 32, Generation: 1}},
		{Selection: op.Selection{Kind: op.SelectSparseD, Block: 32, ScoreScale: 1}},
		op.AttentionParams{Selection: op.Selection{Kind: op.SelectFixed}}.In(given),
		op.AttentionParams{Selection: op.Selection{Kind: op.SelectStatic, Reach: 1}}.In(state),
		op.AttentionParams{Selection: op.Selection{Kind: op.SelectStatic, Reach: 2}}.In(state),
		op.AttentionParams{Selection: op.Selection{Kind: op.SelectStatic, Reach: 1, SinkFraction: 0.1}}.In(state),
	} {
		ops = append(ops,
			must(op.NewScoreCollect("a", p))(t), must(op.NewGroupTopK("a", 64, p))(t),
			must(op.NewGroupTopK("a", 65, p))(t), must(op.NewColumnSparseAttn("a", p))(t))
	}
	seen := map[uint32]gorgonia.Op{}
	for _, o := range ops {
		if other := seen[o.Hashcode()]; other != nil {
			t.Errorf("%v and %v have the same hash", other, o)
		}
		seen[o.Hashcode()] = o
	}
	// And equal parameters hash alike, in every process.
	if a, b := op.NewAdd("a").Hashcode(), op.NewAdd("a").Hashcode(); a != b {
		t.Errorf("two equal operators hash as %#x and %#x", a, b)
	}
}

// TestApplyMerges: operators with equal names and parameters merge. Another weight or another
// state under the same name is an error.
func TestApplyMerges(t *testing.T) {
	g := gorgonia.NewGraph()
	x := input(g, "x", dense(make([]float32, 8), 1, 2, 4))
	ids := input(g, "ids", dense([]int32{0, 1}, 1, 2))
	rows := input(g, "rows", dense([]int32{0, 1}, 2))
	var qkv []*gorgonia.Node
	for _, name := range []string{"q", "k", "v"} {
		qkv = append(qkv, input(g, name, dense(make([]float32, 16), 1, 2, 2, 4)))
	}
	one, other := weight(t, 4, 4, make([]float32, 16)), weight(t, 4, 4, make([]float32, 16))
	vector, otherVector := make([]float32, 4), make([]float32, 4)
	var step exec.Step
	stateful := func(kind string) func(s *exec.State) gorgonia.Op {
		return func(s *exec.State) gorgonia.Op {
			p := op.AttentionParams{}.In(s)
			switch kind {
			case "ScoreCollect":
				return must(op.NewScoreCollect("o", p))(t)
			case "GroupTopK":
				return must(op.NewGroupTopK("o", 2, p))(t)
			}
			return must(op.NewColumnSparseAttn("o", p))(t)
		}
	}
	stateA, stateB := exec.NewState("layer", &step), exec.NewState("layer", &step)
	scores := input(g, "scores", dense(make([]float32, 4), 1, 2, 1, 2))
	columns := input(g, "columns", dense(make([]uint32, 2), 1, 2, 1, 1))

	stacked := func(make func(string, ...op.Projection) (gorgonia.Op, error), weights ...op.Weight) gorgonia.Op {
		var parts []op.Projection
		for _, w := range weights {
			parts = append(parts, op.Projection{Weight: w})
		}
		return must(make("stacked", parts...))(t)
	}
	gated := func(gate, up op.Weight) gorgonia.Op {
		return must(op.NewSwiGLU("gated", op.Projection{Weight: gate}, op.Projection{Weight: up}))(t)
	}

	for _, c := range []struct {
		name               string
		first, same, other gorgonia.Op
		in                 []*gorgonia.Node
	}{
		{"Linear", must(op.NewLinear("o", op.Projection{Weight: one}))(t), must(op.NewLinear("o", op.Projection{Weight: one}))(t), must(op.NewLinear("o", op.Projection{Weight: other}))(t), []*gorgonia.Node{x}},
		{"Linear's bias", must(op.NewLinear("b", op.Projection{Weight: one, Bias: vector}))(t), must(op.NewLinear("b", op.Projection{Weight: one, Bias: vector}))(t), must(op.NewLinear("b", op.Projection{Weight: one, Bias: otherVector}))(t), []*gorgonia.Node{x}},
		{"Linear's second", stacked(op.NewLinear, one, one), stacked(op.NewLinear, one, one), stacked(op.NewLinear, one, other), []*gorgonia.Node{x}},
		{"AddLinear", stacked(op.NewAddLinear, one), stacked(op.NewAddLinear, one), stacked(op.NewAddLinear, other), []*gorgonia.Node{x, x}},
		{"SwiGLU", gated(one, one), gated(one, one), gated(one, other), []*gorgonia.Node{x}},
		{"RMSNorm", op.NewRMSNorm("o", vector, 1e-5), op.NewRMSNorm("o", vector, 1e-5), op.NewRMSNorm("o", otherVector, 1e-5), []*gorgonia.Node{x}},
		{"Embed", op.NewEmbed("o", one), op.NewEmbed("o", one), op.NewEmbed("o", other), []*gorgonia.Node{ids}},
		{"LMHead", op.NewLMHead("o", one), op.NewLMHead("o", one), op.NewLMHead("o", other), []*gorgonia.Node{x, rows}},
		{"ScoreCollect", stateful("ScoreCollect")(stateA), stateful("ScoreCollect")(stateA), stateful("ScoreCollect")(stateB), qkv},
		{"GroupTopK", stateful("GroupTopK")(stateA), stateful("GroupTopK")(stateA), stateful("GroupTopK")(stateB), []*gorgonia.Node{scores}},
		{"ColumnSparseAttn", stateful("")(stateA), stateful("")(stateA), stateful("")(stateB), append(qkv, columns)},
		{"GatherRows", op.NewGatherRows("o"), op.NewGatherRows("o"), nil, []*gorgonia.Node{x, rows}},
		{"Add", op.NewAdd("o"), op.NewAdd("o"), nil, []*gorgonia.Node{x, x}},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := must(op.Apply(c.first, c.in...))(t)
			if same := must(op.Apply(c.same, c.in...))(t); same != first {
				t.Error("an equal operator made a second node")
			}
			if c.other == nil {
				return
			}
			if n, err := op.Apply(c.other, c.in...); !errors.Is(err, op.ErrMerged) || n != nil {
				t.Errorf("got %v, %v; want ErrMerged", n, err)
			}
		})
	}
}

// TestGradientsMerge: the same holds for the operators of a gradient.
func TestGradientsMerge(t *testing.T) {
	g := gorgonia.NewGraph()
	var in gorgonia.Nodes
	for _, name := range []string{"q", "k", "v"} {
		in = append(in, input(g, name, dense(make([]float32, 16), 1, 2, 2, 4)))
	}
	in = append(in, input(g, "columns", dense(make([]uint32, 2), 1, 2, 1, 1)))
	grad := input(g, "grad", dense(make([]float32, 16), 1, 2, 2, 4))
	var step exec.Step
	stateA, stateB := exec.NewState("layer", &step), exec.NewState("layer", &step)
	attend := func(s *exec.State) gorgonia.Op {
		return must(op.NewColumnSparseAttn("o", op.AttentionParams{}.In(s)))(t)
	}
	first := must(attend(stateA).(gorgonia.SDOp).SymDiff(in, nil, grad))(t)
	again := must(attend(stateA).(gorgonia.SDOp).SymDiff(in, nil, grad))(t)
	for i := range 3 {
		if first[i] != again[i] || first[i] == first[(i+1)%3] {
			t.Errorf("gradient %d: %v, then %v", i, first[i], again[i])
		}
	}
	if first[3] != nil {
		t.Errorf("the columns have a gradient %v", first[3])
	}
	if _, err := attend(stateB).(gorgonia.SDOp).SymDiff(in, nil, grad); !errors.Is(err, op.ErrMerged) {
		t.Errorf("of another state: %v, want ErrMerged", err)
	}
}

// TestApplyErrors: Apply returns an error where Gorgonia panics or accepts a wrong input.
func TestApplyErrors(t *testing.T) {
	g, g2 := gorgonia.NewGraph(), gorgonia.NewGraph()
	x := input(g, "x", dense(make([]float32, 8), 1, 2, 4))
	foreign := input(g2, "x", dense(make([]float32, 8), 1, 2, 4))
	shapeless := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithName("shapeless"))
	double := input(g, "double", dense(make([]float64, 8), 1, 2, 4))
	matrix := input(g, "matrix", dense(make([]float32, 8), 2, 4))
	var v gorgonia.Value
	statement := gorgonia.Read(x, &v)
	for _, c := range []struct {
		name string
		in   []*gorgonia.Node
		want string
	}{
		{"nil", []*gorgonia.Node{x, nil}, "input 1 is nil"},
		{"two graphs", []*gorgonia.Node{x, foreign}, "inputs 0 and 1 belong to different graphs"},
		{"no shape", []*gorgonia.Node{x, shapeless}, "want 3 dimensions"},
		{"wrong rank", []*gorgonia.Node{x, matrix}, "input 1 has shape (2, 4), want 3 dimensions"},
		{"too few", []*gorgonia.Node{x}, "Add{sum}: wrong shape: got 1 inputs, want 2"},
		{"too many", []*gorgonia.Node{x, x, x}, "got 3 inputs, want 2"},
		{"none", nil, "got 0 inputs, want 2"},
		{"a statement", []*gorgonia.Node{x, statement}, "input 1 is a statement, which has no value, want float32 of 3 dimensions"},
		{"float64", []*gorgonia.Node{x, double}, "Add{sum}: wrong shape: input 1 is float64 of shape (1, 2, 4), want float32 of 3 dimensions"},
	} {
		n, err := op.Apply(op.NewAdd("sum"), c.in...)
		if !errors.Is(err, op.ErrShape) || n != nil || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: got %v, %v; want ErrShape with %q", c.name, n, err, c.want)
		}
	}
	if _, err := op.Apply(nil, x); err == nil {
		t.Error("a nil operator: no error")
	}
}

// TestApplyConstant: a constant, which belongs to no graph until it is used, is a valid
// input.
func TestApplyConstant(t *testing.T) {
	g := gorgonia.NewGraph()
	x := input(g, "x", dense([]float32{1, 2, 3, 4}, 1, 1, 4))
	positions := gorgonia.NewConstant(dense([]int32{1}, 1, 1), gorgonia.WithName("positions"))
	y := must(op.Apply(must(op.NewRoPE("rope", op.Heads{Count: 1, Dim: 4}, 1e4))(t), x, positions))(t)
	sum := gorgonia.NewConstant(dense([]float32{1, 1, 1, 1}, 1, 1, 4), gorgonia.WithName("ones"))
	z := must(op.Apply(op.NewAdd("sum"), sum, x))(t)
	var yv, zv gorgonia.Value
	gorgonia.Read(y, &yv)
	gorgonia.Read(z, &zv)
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	tol.SameBits(t, "result", float32s(yv.(*tensor.Dense)), float32s(run(t, must(op.NewRoPE("rope", op.Heads{Count: 1, Dim: 4}, 1e4))(t), dense([]float32{1, 2, 3, 4}, 1, 1, 4), dense([]int32{1}, 1, 1))))
	tol.SameBits(t, "result", float32s(zv.(*tensor.Dense)), []float32{2, 3, 4, 5})
}

// TestCheckFindsHashCollision forces two operators of one kind on one input to
// the same 32-bit node hash. The tape machine would run one of them for both.
func TestCheckFindsHashCollision(t *testing.T) {
	g := gorgonia.NewGraph()
	x := input(g, "x", dense(make([]float32, 4), 1, 1, 4))
	probe := must(op.Apply(op.NewAdd("probe"), x, x))(t)
	seen := map[uint32]string{}
	var a, b string
	r := attncase.Rand(1)
	for i := 0; a == ""; i++ {
		name := fmt.Sprintf("%x", r.Uint64())
		// As Gorgonia's Node.WriteHash; the premise is checked below.
		h := fnv.New32a()
		fmt.Fprintf(h, "%v%v", probe.Type(), probe.Shape())
		op.NewAdd(name).WriteHash(h)
		h.Write([]byte{2})
		for range 2 {
			binary.Write(h, binary.LittleEndian, x.Hashcode())
		}
		if other, ok := seen[h.Sum32()]; ok {
			a, b = other, name
		}
		seen[h.Sum32()] = name
		if i > 1<<20 {
			t.Fatal("no collision found")
		}
	}
	first := must(op.Apply(op.NewAdd(a), x, x))(t)
	if err := op.Check(g); err != nil {
		t.Fatalf("before the collision: %v", err)
	}
	second := must(op.Apply(op.NewAdd(b), x, x))(t)
	if first == second || first.Hashcode() != second.Hashcode() {
		t.Fatalf("premise: %q and %q should be two nodes of one hash", a, b)
	}
	err := op.Check(g)
	if !errors.Is(err, op.ErrGraph) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
		t.Errorf("got %v, want ErrGraph with %q and %q", err, a, b)
	}
}

// TestCheckFindsForeignReader: a layer's column table is its state, and Gorgonia's
// own operators may write over what they read.
func TestCheckFindsForeignReader(t *testing.T) {
	build := func(s *exec.State) (g *gorgonia.ExprGraph, columns *gorgonia.Node) {
		g = gorgonia.NewGraph()
		scores := input(g, "scores", dense(make([]float32, 4), 1, 1, 1, 4))
		return g, must(op.Apply(must(op.NewGroupTopK("o", 4, op.AttentionParams{}.In(s)))(t), scores))(t)
	}
	var step exec.Step
	g, columns := build(exec.NewState("layer", &step))
	var v gorgonia.Value
	gorgonia.Read(columns, &v)
	if err := op.Check(g); err != nil {
		t.Errorf("Read of a table: %v", err)
	}
	must(gorgonia.Reshape(columns, tensor.Shape{1, 1}))(t)
	if err := op.Check(g); !errors.Is(err, op.ErrGraph) || !strings.Contains(err.Error(), "column table") {
		t.Errorf("Reshape of a table: %v, want ErrGraph", err)
	}
	g, columns = build(nil)
	must(gorgonia.Reshape(columns, tensor.Shape{1, 1}))(t)
	if err := op.Check(g); err != nil {
		t.Errorf("without a State the result is fresh memory, yet: %v", err)
	}
}

// TestString: errors and graph prints name the layer, without parameters.
func TestString(t *testing.T) {
	if got, want := op.NewAdd("model.layers.3.residual").String(), "Add{model.layers.3.residual}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := must(op.NewSplitHeads("", op.Heads{Count: 2, Dim: 4}))(t).String(), "SplitHeads"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// twoRanks are ranks that run nothing.
type twoRanks struct{ op.Ranks }

func (twoRanks) Rank() int { return 0 }
func (twoRanks) Size() int { return 2 }

// TestCollectiveMerges: collectives of one name over other ranks do not merge.
func TestCollectiveMerges(t *testing.T) {
	g := gorgonia.NewGraph()
	x := input(g, "x", dense(make([]float32, 8), 2, 4))
	ranks := &twoRanks{}
	first := must(op.Apply(must(op.NewAllReduce("a", 2, ranks))(t), x))(t)
	if again, err := op.Apply(must(op.NewAllReduce("a", 2, ranks))(t), x); err != nil || again != first {
		t.Errorf("the same again: %v", err)
	}
	if _, err := op.Apply(must(op.NewAllReduce("a", 2, twoRanks{}))(t), x); !errors.Is(err, op.ErrMerged) {
		t.Errorf("of other ranks: %v", err)
	}
	if _, err := op.Grad(must(gorgonia.Sum(first))(t), x); !errors.Is(err, op.ErrNoGradient) {
		t.Errorf("gradient: %v", err)
	}
}
