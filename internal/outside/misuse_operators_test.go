package outside_test

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// refuses gives an operator every wrong node in place of each input, too few and too many
// inputs, and then the right ones. Those of any may have other sizes.
func (m *misuse) refuses(o gorgonia.Op, any []int, right ...*gorgonia.Node) {
	m.Helper()
	g := right[0].Graph()
	for i := range right {
		for name, n := range nodes(g, right[i]) {
			if name == "another graph" && len(right) == 1 || name == "another size" && slices.Contains(any, i) {
				continue // is as good
			}
			in := slices.Clone(right)
			in[i] = n
			m.fails(fmt.Sprintf("%v: input %d is %s", o, i, name), func() error { return second(op.Apply(o, in...)) }, op.ErrShape)
		}
	}
	m.fails(fmt.Sprint(o, ": no inputs"), func() error { return second(op.Apply(o)) }, op.ErrShape)
	m.fails(fmt.Sprint(o, ": an input too many"), func() error { return second(op.Apply(o, append(slices.Clone(right), right[0])...)) }, op.ErrShape)
	var y *gorgonia.Node
	m.works(fmt.Sprint(o), func() (err error) {
		y, err = op.Apply(o, right...)
		return err
	})
	if y == nil {
		return
	}
	// Machines of others hand it what they like.
	for name, values := range map[string][]gorgonia.Value{
		"nothing": nil, "nil": make([]gorgonia.Value, len(right)), "numbers": slices.Repeat([]gorgonia.Value{gorgonia.NewF32(1)}, len(right)),
		"float64":      slices.Repeat([]gorgonia.Value{tensor.New(tensor.WithShape(1, 2, 4, 4), tensor.Of(tensor.Float64))}, len(right)),
		"vectors":      slices.Repeat([]gorgonia.Value{newTensor(make([]float32, 2), 2)}, len(right)),
		"a nil tensor": slices.Repeat([]gorgonia.Value{(*tensor.Dense)(nil)}, len(right)),
	} {
		m.fails(fmt.Sprintf("%v: run on %s", o, name), func() error { return second(o.Do(values...)) })
	}
	m.does(fmt.Sprint(o, ": sizes"), func() { o.InferShape() })
	m.fails(fmt.Sprint(o, ": shape of nothing"), func() error { return second(o.InferShape(nil)) })
	if out, ok := y.Type().(gorgonia.TensorType); ok && out.Of == tensor.Float32 {
		m.does(fmt.Sprint(o, ": gradient"), func() {
			op.Grad(gorgonia.Must(gorgonia.Sum(y)), right[0])
		})
	}
}

// badParams are parameters of attention with one thing wrong.
func badParams() map[string]op.AttentionParams {
	bad := map[string]op.AttentionParams{
		"group":            {Group: -1},
		"precision":        {Precision: 99},
		"kind":             {Selection: op.Selection{Kind: 99}},
		"sparsity":         {Selection: op.Selection{Sparsity: 1}},
		"no block":         {Selection: op.Selection{Kind: op.SelectBlocks}},
		"block":            {Selection: op.Selection{Kind: op.SelectBlocks, Block: -1}},
		"no SparseD block": {Selection: op.Selection{Kind: op.SelectSparseD}},
		"SparseD's group":  {Group: 2, Selection: op.Selection{Kind: op.SelectSparseD, Block: 3}},
		"generation":       {Group: 3, Selection: op.Selection{Kind: op.SelectSparseD, Block: 3, Generation: -1}},
		"static":           {Selection: op.Selection{Kind: op.SelectStatic}},
		"fixed":            {Selection: op.Selection{Kind: op.SelectFixed}},
		"reach":            {Selection: op.Selection{Reach: math.MinInt}},
	}
	for i, x := range wrong {
		bad[fmt.Sprint("scale ", i)] = op.AttentionParams{Scale: x}
		bad[fmt.Sprint("sparsity ", i)] = op.AttentionParams{Selection: op.Selection{Sparsity: x}}
		bad[fmt.Sprint("score scale ", i)] = op.AttentionParams{Selection: op.Selection{ScoreScale: x}}
		bad[fmt.Sprint("sinks ", i)] = op.AttentionParams{Selection: op.Selection{SinkFraction: x}}
	}
	return bad
}

func (m *misuse) params(make func(op.AttentionParams) error) {
	m.Helper()
	for name, p := range badParams() {
		m.fails(name, func() error { return make(p) }, op.ErrValue)
	}
}

// weight is a weight of ones.
func weight(rows, cols int) op.Weight {
	w, err := op.NewWeightFloat32(rows, cols, slices.Repeat([]float32{1}, rows*cols))
	if err != nil {
		panic(err)
	}
	return w
}

// badWeights are weights that a program may make without NewWeight.
func badWeights() map[string]op.Weight {
	return map[string]op.Weight{
		"zero":      {},
		"no data":   {Rows: 3, Cols: 4},
		"short":     {Rows: 3, Cols: 4, Data: make([]byte, 47)},
		"negative":  {Rows: -3, Cols: -4, Data: make([]byte, 48)},
		"huge":      {Rows: math.MaxInt, Cols: 4, Data: make([]byte, 48)},
		"dtype":     {Rows: 3, Cols: 4, DType: 99, Data: make([]byte, 48)},
		"precision": {Rows: 3, Cols: 4, Precision: 99, Data: make([]byte, 48)},
	}
}

// runs builds an operator on inputs and runs it.
func runOp(o gorgonia.Op, in ...*gorgonia.Node) error {
	if _, err := op.Apply(o, in...); err != nil {
		return err
	}
	vm := gorgonia.NewTapeMachine(in[0].Graph())
	defer vm.Close()
	return vm.RunAll()
}

// heads makes operators of heads that there cannot be, with positions of a shape if they
// take any.
func (m *misuse) heads(make func(op.Heads) (gorgonia.Op, error), positions []int) {
	m.Helper()
	for _, x := range numbers {
		if x < 0 {
			m.fails(fmt.Sprint("first ", x), func() error { return second(make(op.Heads{First: x, Count: 1, Dim: 4})) }, op.ErrShape)
		}
		if x < 1 {
			m.fails(fmt.Sprint("count ", x), func() error { return second(make(op.Heads{Count: x, Dim: 4})) }, op.ErrShape)
			m.fails(fmt.Sprint("dim ", x), func() error { return second(make(op.Heads{Count: 1, Dim: x})) }, op.ErrShape)
		}
	}
	g := gorgonia.NewGraph()
	right := []*gorgonia.Node{floatInput(g, "x", 1, 4, 8)}
	if positions != nil {
		right = append(right, intInput(g, "positions", positions...))
	}
	m.refuses(must(make(op.Heads{First: 1, Count: 1, Dim: 4}))(m), nil, right...)
	for _, h := range []op.Heads{{First: 2, Count: 1, Dim: 4}, {Count: 3, Dim: 4}, {Count: math.MaxInt, Dim: 4}, {First: math.MaxInt, Count: 1, Dim: 4}, {First: math.MaxInt, Count: math.MaxInt, Dim: 1 << 62}} {
		m.fails(fmt.Sprintf("%+v of 8 features", h), func() error {
			o, err := make(h)
			if err != nil {
				return err
			}
			return second(op.Apply(o, right...))
		}, op.ErrShape)
	}
}

// weights makes and runs operators of wrong weights.
func (m *misuse) weights(run func(op.Weight) error) {
	m.Helper()
	for name, w := range badWeights() {
		if err := m.call(name, func() error { return run(w) }); err == nil {
			m.Errorf("a weight, %s: no error", name)
		} else if errors.Is(err, op.ErrInternal) {
			m.Errorf("a weight, %s: %v", name, err)
		}
	}
}

func linears(make func(string, ...op.Projection) (gorgonia.Op, error), inputs int) func(*misuse) {
	return func(m *misuse) {
		g := gorgonia.NewGraph()
		right := []*gorgonia.Node{floatInput(g, "x", 1, 2, 4), floatInput(g, "residual", 1, 2, 3)}[:inputs]
		m.refuses(must(make("l", op.Projection{Weight: weight(3, 4)}))(m), nil, right...)
		m.fails("none", func() error { return second(make("l")) }, op.ErrShape)
		m.fails("other columns", func() error {
			return second(make("l", op.Projection{Weight: weight(3, 4)}, op.Projection{Weight: weight(3, 5)}))
		}, op.ErrShape)
		m.fails("another bias", func() error { return second(make("l", op.Projection{Weight: weight(3, 4), Bias: []float32{1}})) }, op.ErrShape)
		m.weights(func(w op.Weight) error {
			o, err := make("l", op.Projection{Weight: w})
			if err != nil {
				return err
			}
			g := gorgonia.NewGraph()
			in := []*gorgonia.Node{floatInput(g, "x", 1, 2, 4), floatInput(g, "residual", 1, 2, 3)}[:inputs]
			return runOp(o, in...)
		})
	}
}
