package op_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestConstructorErrors: an error of a constructor names the bad parameter.
func TestConstructorErrors(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	w := weight(t, 2, 3, make([]float32, 6))
	attention := func(p op.AttentionParams) error {
		_, a := op.NewScoreCollect("layer", p)
		_, b := op.NewGroupTopK("layer", 8, p)
		_, c := op.NewColumnSparseAttn("layer", p)
		if (a == nil) != (b == nil) || (a == nil) != (c == nil) {
			t.Errorf("%+v: the operators of a layer disagree: %v, %v, %v", p, a, b, c)
		}
		return a
	}
	selection := func(s op.Selection) error { return attention(op.AttentionParams{Selection: s, Group: max(s.Block, 0)}) }
	err := func(_ any, err error) error { return err }
	for want, got := range map[string]error{
		"group of -1 queries":                   attention(op.AttentionParams{Group: -1}),
		"scale -1":                              attention(op.AttentionParams{Scale: -1}),
		"scale NaN":                             attention(op.AttentionParams{Scale: nan}),
		"scale +Inf":                            attention(op.AttentionParams{Scale: inf}),
		"sparsity 1,":                           selection(op.Selection{Sparsity: 1}),
		"sparsity -0.1":                         selection(op.Selection{Sparsity: -0.1}),
		"sparsity NaN":                          selection(op.Selection{Sparsity: nan}),
		"selection SelectionKind(9) is unknown": selection(op.Selection{Kind: 9}),
		"block of 0 keys":                       selection(op.Selection{Kind: op.SelectBlocks}),
		"block of -2 keys":                      selection(op.Selection{Kind: op.SelectSparseD, Block: -2}),
		"-1 generated tokens":                   selection(op.Selection{Kind: op.SelectSparseD, Block: 2, Generation: -1}),
		"score scale NaN":                       selection(op.Selection{Kind: op.SelectSparseD, Block: 2, ScoreScale: nan}),
		"score scale -1":                        selection(op.Selection{Kind: op.SelectSparseD, Block: 2, ScoreScale: -1}),
		"group of 4 queries must be its block of 2": attention(op.AttentionParams{Group: 4, Selection: op.Selection{Kind: op.SelectSparseD, Block: 2}}),
		"reach -1":                              selection(op.Selection{Kind: op.SelectStatic, Reach: -1}),
		"sink fraction 1.5":                     selection(op.Selection{Kind: op.SelectStatic, SinkFraction: 1.5}),
		"sink fraction NaN":                     selection(op.Selection{Kind: op.SelectStatic, SinkFraction: nan}),
		"a static selection needs a controller": selection(op.Selection{Kind: op.SelectStatic}),
		"a fixed selection needs a controller with columns that are given": attention(op.AttentionParams{Selection: op.Selection{Kind: op.SelectFixed}}.In(exec.NewState("layer", new(exec.Step)))),
		"0 tokens":                           err(op.NewGroupTopK("layer", 0, op.AttentionParams{})),
		"scale -2":                           err(op.NewDenseAttn("layer", -2, false)),
		"bias has 3 elements, weight 2 rows": err(op.NewLinear("layer", op.Projection{Weight: w, Bias: make([]float32, 3)})),
		"no projection":                      err(op.NewLinear("layer")),
		"projection 1: wrong shape: weight [3 2] takes 2 features, the first takes 3": err(op.NewLinear("layer", op.Projection{Weight: w}, op.Projection{Weight: op.Weight{Rows: 3, Cols: 2}})),
		"up: wrong shape: weight [3 2] takes 2 features, the first takes 3":           err(op.NewSwiGLU("layer", op.Projection{Weight: w}, op.Projection{Weight: op.Weight{Rows: 3, Cols: 2}})),
		"gate has 2 outputs, up 3":     err(op.NewSwiGLU("layer", op.Projection{Weight: w}, op.Projection{Weight: op.Weight{Rows: 3, Cols: 3}})),
		"2 heads of 4 from head -1 on": err(op.NewSplitHeads("layer", op.Heads{First: -1, Count: 2, Dim: 4})),
		"precision is Precision(5)":    attention(op.AttentionParams{Precision: 5}),
		"precision is Precision(6)":    err(op.NewLinear("layer", op.Projection{Weight: op.Weight{Rows: 2, Cols: 2, Precision: 6}})),
		"0 heads of 4":                 err(op.NewSplitHeads("layer", op.Heads{Count: 0, Dim: 4})),
		"2 heads of -4":                err(op.NewSplitHeads("layer", op.Heads{Count: 2, Dim: -4})),
		"-1 heads":                     err(op.NewRoPE("layer", op.Heads{Count: -1, Dim: 4}, 1e4)),
		"head dimension 3":             err(op.NewRoPE("layer", op.Heads{Count: 1, Dim: 3}, 1e4)),
		"1 heads of 0":                 err(op.NewRoPE("layer", op.Heads{Count: 1, Dim: 0}, 1e4)),
		"theta NaN":                    err(op.NewRoPE("layer", op.Heads{Count: 1, Dim: 4}, nan)),
		"theta 0":                      err(op.NewRoPE("layer", op.Heads{Count: 1, Dim: 4}, 0)),
		"0 dimensions, want 1 to 4":    err(op.NewAllReduce("sum", 0, nil)),
		"5 dimensions":                 err(op.NewAllGather("gather", 5, 0, nil)),
		"axis 3, want 0 to 2":          err(op.NewAllGather("gather", 3, 3, nil)),
		"axis -1":                      err(op.NewReduceScatter("scatter", 3, -1, nil)),
		"op: weight: ":                 err(op.NewWeight(2, 3, op.F32, make([]byte, 23))),
	} {
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("got %v, want an error with %q", got, want)
		}
		if want != "op: weight: " && got != nil && !errors.Is(got, op.ErrValue) && !errors.Is(got, op.ErrShape) {
			t.Errorf("%v wraps neither ErrValue nor ErrShape", got)
		}
	}
}

// TestShapeErrors: wrong ranks, sizes and types of inputs are errors when the
// graph is built, never a panic, and leave nothing in the graph.
func TestShapeErrors(t *testing.T) {
	const f32 = "float32"
	w := weight(t, 5, 4, make([]float32, 20))
	p, masked := op.AttentionParams{Group: 2}, op.AttentionParams{Group: 2, Masked: true}
	sparsed := op.AttentionParams{Group: 2, Selection: op.Selection{Kind: op.SelectSparseD, Block: 2, Generation: 4}}
	heads := [][]int{{1, 4, 8, 2}, {1, 2, 8, 2}, {1, 2, 8, 2}} // good q, k, v
	with := func(at int, shape []int, more ...[]int) [][]int {
		shapes := append(append([][]int{}, heads...), more...)
		shapes[at] = shape
		return shapes
	}
	for _, c := range []struct {
		op     gorgonia.Op
		dtypes map[int]string // where not float32
		shapes [][]int
		want   string // "" = good
	}{
		{must(op.NewDenseAttn("a", 0, false))(t), nil, heads, ""},
		{must(op.NewDenseAttn("b", 0, false))(t), nil, with(0, []int{1, 3, 8, 2}), "3 query heads are not a multiple of 2"},
		{must(op.NewDenseAttn("c", 0, false))(t), nil, with(0, []int{1, 4, 7, 2}), "may differ in their heads only"},
		{must(op.NewDenseAttn("d", 0, false))(t), nil, with(0, []int{2, 4, 8, 2}), "may differ in their heads only"},
		{must(op.NewDenseAttn("e", 0, false))(t), nil, with(0, []int{1, 4, 8, 3}), "may differ in their heads only"},
		{must(op.NewDenseAttn("f", 0, false))(t), nil, with(2, []int{1, 2, 8, 3}), "keys (1, 2, 8, 2) and values (1, 2, 8, 3) differ"},
		{must(op.NewDenseAttn("g", 0, false))(t), nil, with(1, []int{2, 8, 2}), "input 1 has shape (2, 8, 2), want 4 dimensions"},
		{must(op.NewDenseAttn("h", 0, true))(t), nil, with(0, heads[0], []int{1, 8}), ""},
		{must(op.NewDenseAttn("i", 0, true))(t), nil, with(0, heads[0], []int{1, 7}), "padding mask (1, 7), want [1 8]"},
		{must(op.NewDenseAttn("j", 0, true))(t), nil, with(0, heads[0], []int{1, 8, 1}), "want 2 dimensions"},
		{must(op.NewDenseAttn("k", 0, true))(t), nil, heads, "DenseAttn"},
		{must(op.NewScoreCollect("a", p))(t), nil, heads, ""},
		{must(op.NewScoreCollect("b", masked))(t), nil, with(0, heads[0], []int{2, 8}), "padding mask (2, 8), want [1 8]"},
		{must(op.NewScoreCollect("c", p))(t), map[int]string{0: "float64"}, heads, "ScoreCollect"},
		{must(op.NewGroupTopK("a", 8, p))(t), nil, [][]int{{1, 4, 4, 8}}, ""},
		{must(op.NewGroupTopK("b", 8, p))(t), nil, [][]int{{1, 4, 4, 7}}, "scores (1, 4, 4, 7), want [B H 4 8] for 8 tokens"},
		{must(op.NewGroupTopK("c", 8, p))(t), nil, [][]int{{1, 4, 3, 8}}, "want [B H 4 8]"},
		{must(op.NewGroupTopK("d", 8, sparsed))(t), nil, [][]int{{1, 4, 4, 12}}, ""},
		{must(op.NewGroupTopK("e", 8, sparsed))(t), nil, [][]int{{1, 4, 4, 8}}, "want [B H 4 12]"},
		{must(op.NewGroupTopK("f", 8, masked))(t), nil, [][]int{{1, 4, 4, 8}, {1, 9}}, "padding mask (1, 9), want [1 8]"},
		{must(op.NewGroupTopK("g", 8, p))(t), map[int]string{0: "uint32"}, [][]int{{1, 4, 4, 8}}, "GroupTopK"},
		{must(op.NewColumnSparseAttn("a", p))(t), map[int]string{3: "uint32"}, with(0, heads[0], []int{1, 4, 4, 1}), ""},
		{must(op.NewColumnSparseAttn("b", p))(t), map[int]string{3: "uint32"}, with(0, heads[0], []int{1, 4, 3, 1}), "columns (1, 4, 3, 1), want (1, 4, 4, 1)"},
		{must(op.NewColumnSparseAttn("c", p))(t), nil, with(0, heads[0], []int{1, 4, 4, 1}), "ColumnSparseAttn"},
		{must(op.NewColumnSparseAttn("d", p))(t), map[int]string{3: "uint32"}, with(0, heads[0], []int{4, 4}), "ColumnSparseAttn"},
		{must(op.NewLinear("a", op.Projection{Weight: w}))(t), nil, [][]int{{2, 3, 4}}, ""},
		{must(op.NewLinear("b", op.Projection{Weight: w}))(t), nil, [][]int{{2, 3, 5}}, "has 5 features, weight [5 4] takes 4"},
		{must(op.NewLinear("c", op.Projection{Weight: w}))(t), nil, [][]int{{3, 4}}, "want 3 dimensions"},
		{op.NewRMSNorm("a", make([]float32, 4), 1e-5), nil, [][]int{{2, 3, 5}}, "has 5 features, weight 4"},
		{must(op.NewRoPE("a", op.Heads{Count: 2, Dim: 2}, 1e4))(t), map[int]string{1: "int32"}, [][]int{{2, 3, 4}, {2, 3}}, ""},
		{must(op.NewRoPE("b", op.Heads{Count: 2, Dim: 2}, 1e4))(t), map[int]string{1: "int32"}, [][]int{{2, 3, 4}, {3, 2}}, "positions (3, 2), want [2 3]"},
		{must(op.NewRoPE("c", op.Heads{Count: 2, Dim: 2}, 1e4))(t), map[int]string{1: "int32"}, [][]int{{2, 3, 5}, {2, 3}}, "has 5 features, want a multiple of 2"},
		{must(op.NewRoPE("d", op.Heads{Count: 2, Dim: 2}, 1e4))(t), nil, [][]int{{2, 3, 4}, {2, 3}}, "RoPE"},
		{must(op.NewSplitHeads("a", op.Heads{Count: 2, Dim: 2}))(t), nil, [][]int{{2, 3, 5}}, "has 5 features, want a multiple of 2"},
		{must(op.NewSplitHeads("b", op.Heads{First: 1, Count: 2, Dim: 2}))(t), nil, [][]int{{2, 3, 6}}, ""},
		{must(op.NewSplitHeads("c", op.Heads{First: 2, Count: 2, Dim: 2}))(t), nil, [][]int{{2, 3, 6}}, "has 3 heads of 2, want 2 from head 2 on"},
		{must(op.NewSplitHeads("d", op.Heads{First: math.MaxInt, Count: 2, Dim: 2}))(t), nil, [][]int{{2, 3, 6}}, "has 3 heads of 2"},
		{must(op.NewRoPE("e", op.Heads{Count: 2, Dim: 2}, 1e4))(t), map[int]string{1: "int32"}, [][]int{{2, 3, 2}, {2, 3}}, "has 1 heads of 2, want 2 from head 0 on"},
		{op.NewMergeHeads("a"), nil, [][]int{{2, 3, 6}}, "want 4 dimensions"},
		{must(op.NewSwiGLU("a", op.Projection{Weight: w}, op.Projection{Weight: w}))(t), nil, [][]int{{2, 3, 4}}, ""},
		{must(op.NewSwiGLU("b", op.Projection{Weight: w}, op.Projection{Weight: w}))(t), nil, [][]int{{2, 3, 5}}, "has 5 features, weight [5 4] takes 4"},
		{must(op.NewAddLinear("a", op.Projection{Weight: w}))(t), nil, [][]int{{2, 3, 4}, {2, 3, 5}}, ""},
		{must(op.NewAddLinear("b", op.Projection{Weight: w}))(t), nil, [][]int{{2, 3, 4}, {2, 3, 4}}, "residual (2, 3, 4) and result (2, 3, 5) differ"},
		{op.NewAdd("a"), nil, [][]int{{2, 3, 6}, {3, 2, 6}}, "differ"},
		{op.NewEmbed("a", w), map[int]string{0: "int32"}, [][]int{{2, 3}}, ""},
		{op.NewEmbed("b", w), nil, [][]int{{2, 3}}, "Embed"},
		{op.NewGatherRows("a"), map[int]string{1: "int32"}, [][]int{{2, 3, 4}, {5}}, ""},
		{op.NewGatherRows("b"), map[int]string{1: "int32"}, [][]int{{2, 3, 4}, {5, 1}}, "GatherRows"},
		{op.NewGatherRows("c"), nil, [][]int{{2, 3, 4}, {5}}, "GatherRows"},
		{op.NewLMHead("a", w), map[int]string{1: "int32"}, [][]int{{1, 6, 5}, {6}}, "has 5 features, weight [5 4] takes 4"},
		{op.NewLMHead("b", w), map[int]string{1: "int32"}, [][]int{{1, 6, 4}, {6, 1}}, "LMHead"},
		{op.NewLMHead("c", w), map[int]string{1: "int32"}, [][]int{{1, 6, 4}, {6}}, ""},
		{op.NewLMHead("d", w), map[int]string{1: "int32"}, [][]int{{2, 3, 4}, {6}}, "want [1 6 4] for the 6 selected rows"},
		{op.NewLMHead("e", w), map[int]string{1: "int32"}, [][]int{{1, 5, 4}, {6}}, "want [1 6 4] for the 6 selected rows"},
	} {
		g := gorgonia.NewGraph()
		var in []*gorgonia.Node
		for i, shape := range c.shapes {
			in = append(in, gorgonia.NewTensor(g, dtypeOf(c.dtypes[i]), len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("in", i))))
		}
		before := len(g.AllNodes())
		n, err := op.Apply(c.op, in...)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v of %v: %v", c.op, c.shapes, err)
		case c.want == "":
			if n.Dims() != len(n.Shape()) {
				t.Errorf("%v of %v: type of rank %d, shape %v", c.op, c.shapes, n.Dims(), n.Shape())
			}
		case !errors.Is(err, op.ErrShape) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%v of %v: got %v, %v, want ErrShape with %q", c.op, c.shapes, n, err, c.want)
		case len(g.AllNodes()) != before:
			t.Errorf("%v of %v: the failure left nodes in the graph", c.op, c.shapes)
		}
	}
}

func dtypeOf(name string) tensor.Dtype {
	switch name {
	case "int32":
		return tensor.Int32
	case "uint32":
		return tensor.Uint32
	case "float64":
		return tensor.Float64
	}
	return tensor.Float32
}

// TestRunTimeErrors: values that do not fit the operator, handed to it directly
// or by another machine, are errors.
func TestRunTimeErrors(t *testing.T) {
	good := dense(make([]float32, 8), 1, 2, 4)
	view, err := dense(make([]float32, 16), 1, 4, 4).Slice(nil, gorgonia.S(0, 4, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	transposed := dense(make([]float32, 8), 1, 4, 2)
	if err := transposed.T(0, 2, 1); err != nil {
		t.Fatal(err)
	}
	columns := func(words ...uint32) []gorgonia.Value {
		q := dense(make([]float32, 6), 1, 1, 3, 2)
		return []gorgonia.Value{q, q, q, dense(words, 1, 1, len(words), 1)}
	}
	add := op.NewAdd("sum")
	sparse := must(op.NewColumnSparseAttn("layer", op.AttentionParams{Group: 2}))(t)
	topk := must(op.NewGroupTopK("layer", 3, op.AttentionParams{Group: 2}))(t)
	for _, c := range []struct {
		op   gorgonia.Op
		in   []gorgonia.Value
		want string
	}{
		{add, []gorgonia.Value{good}, "got 1 inputs, want 2"},
		{add, []gorgonia.Value{good, nil}, "input 1 is a <nil>"},
		{add, []gorgonia.Value{good, (*tensor.Dense)(nil)}, "input 1 is a *tensor.Dense, want a *tensor.Dense that is not nil"},
		{add, []gorgonia.Value{good, gorgonia.NewF32(1)}, "input 1 is a *gorgonia.F32"},
		{add, []gorgonia.Value{good, dense(make([]float64, 8), 1, 2, 4)}, "input 1 has dtype float64, want float32"},
		{add, []gorgonia.Value{good, view.(*tensor.Dense)}, "is a view or column-major"},
		{add, []gorgonia.Value{good, transposed}, "is a view or column-major"},
		{add, []gorgonia.Value{good, dense(make([]float32, 8), 2, 4)}, "input 1 has shape (2, 4), want 3 dimensions"},
		{add, []gorgonia.Value{good, dense(make([]float32, 4), 1, 1, 4)}, "Add"},
		{sparse, columns(7, 7), ""},
		{sparse, columns(7, 8), "word 1 of columns sets keys beyond the last of 3"},
		{sparse, columns(7), "columns (1, 1, 1, 1), want (1, 1, 2, 1)"},
		{topk, []gorgonia.Value{dense(make([]float32, 6), 1, 1, 2, 3)}, ""},
		{topk, []gorgonia.Value{dense(make([]float32, 6), 1, 1, 3, 2)}, "GroupTopK"},
	} {
		v, err := c.op.Do(c.in...)
		if c.want == "" {
			if err != nil {
				t.Errorf("%v: %v", c.op, err)
			}
			continue
		}
		if err == nil || v != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v of %v: got %v, %v, want an error with %q", c.op, c.in, v, err, c.want)
		}
		if !errors.Is(err, op.ErrValue) && !errors.Is(err, op.ErrShape) && !errors.Is(err, op.ErrInternal) {
			t.Errorf("%v wraps no error of the package", err)
		}
	}
}

// TestApplyNil: an operator that is nil is an error.
func TestApplyNil(t *testing.T) {
	x := input(gorgonia.NewGraph(), "x", dense(make([]float32, 8), 1, 2, 4))
	for _, in := range [][]*gorgonia.Node{nil, {x}, {nil}} {
		if n, err := op.Apply(nil, in...); n != nil || !errors.Is(err, op.ErrValue) || !strings.Contains(err.Error(), "the operator is nil") {
			t.Errorf("of %v: %v, %v", in, n, err)
		}
	}
}

// TestUnknownPrecision: operators whose constructors return no error refuse a weight of an
// unknown precision where they are applied.
func TestUnknownPrecision(t *testing.T) {
	w := must(op.NewWeightFloat32(3, 4, make([]float32, 12)))(t)
	w.Precision = 99
	g := gorgonia.NewGraph()
	ids, rows := input(g, "ids", dense(make([]int32, 2), 1, 2)), input(g, "rows", dense(make([]int32, 2), 2))
	x := input(g, "x", dense(make([]float32, 8), 1, 2, 4))
	for _, err := range []error{
		func() error { _, err := op.Apply(op.NewEmbed("e", w), ids); return err }(),
		func() error { _, err := op.Apply(op.NewLMHead("h", w), x, rows); return err }(),
	} {
		if !errors.Is(err, op.ErrValue) || !strings.Contains(err.Error(), "want auto, float32, bfloat16, int16 or int8") {
			t.Errorf("%v, want ErrValue", err)
		}
	}
}

// TestKernelPanicBecomesError: a panic below an operator would end the process,
// because the tape machine calls operators on a goroutine of its own.
func TestKernelPanicBecomesError(t *testing.T) {
	broken := op.Weight{Rows: 3, Cols: 4, DType: op.F32, Data: make([]byte, 5)} // made without NewWeight
	g := gorgonia.NewGraph()
	x := input(g, "x", dense(make([]float32, 8), 1, 2, 4))
	must(op.Apply(must(op.NewLinear("proj", op.Projection{Weight: broken}))(t), x))(t)
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	err := vm.RunAll()
	if err == nil || !strings.Contains(err.Error(), op.ErrInternal.Error()) || !strings.Contains(err.Error(), "Linear{proj}") {
		t.Errorf("got %v, want an error that names the operator", err)
	}
	_, err = op.NewEmbed("wte", broken).Do(dense([]int32{2}, 1, 1))
	if !errors.Is(err, op.ErrInternal) {
		t.Errorf("got %v, want ErrInternal", err)
	}
}
