package outside_test

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// sums is an operator of others, of a type that cannot be compared.
type sums struct {
	gorgonia.Op
	axes []int
}

var _ = misuses(map[string]func(*misuse){
	"op.Apply": func(m *misuse) {
		g := gorgonia.NewGraph()
		x := floatInput(g, "x", 1, 4, 4)
		m.fails("nil operator", func() error { return second(op.Apply(nil, x)) })
		m.fails("nil operator, no inputs", func() error { return second(op.Apply(nil)) })
		if err := m.call("an operator around nil", func() error { return second(op.Apply(sums{axes: []int{1}}, x)) }); err == nil {
			m.Error("an operator around nil: no error")
		}
		m.fails("nil input", func() error { return second(op.Apply(op.NewAdd("a"), x, nil)) }, op.ErrShape)
		m.fails("two graphs", func() error {
			return second(op.Apply(op.NewAdd("a"), x, floatInput(gorgonia.NewGraph(), "y", 1, 4, 4)))
		}, op.ErrShape)
		m.fails("no graph", func() error { return second(op.Apply(op.NewAdd("a"), new(gorgonia.Node), new(gorgonia.Node))) })
		m.works("a norm", func() error { return second(op.Apply(op.NewRMSNorm("n", []float32{1, 1, 1, 1}, 1e-5), x)) })
		m.fails("another norm of its name", func() error {
			return second(op.Apply(op.NewRMSNorm("n", []float32{2, 1, 1, 1}, 1e-5), x))
		}, op.ErrMerged)
	},
	"op.AttentionParams.In": func(m *misuse) {
		m.does("no state", func() {
			p := op.AttentionParams{Group: 2}.In(nil)
			m.works("a pure operator", func() error { return second(op.NewScoreCollect("s", p)) })
		})
	},
	"op.Check": func(m *misuse) {
		m.fails("nil", func() error { return op.Check(nil) }, op.ErrGraph)
		m.works("an empty graph", func() error { return op.Check(gorgonia.NewGraph()) })
		m.does("a zero graph", func() { op.Check(new(gorgonia.ExprGraph)) })
		g := gorgonia.NewGraph()
		gorgonia.NewTensor(g, tensor.Float32, 2, gorgonia.WithShape(2, 2))
		m.fails("an input without a name", func() error { return op.Check(g) }, op.ErrGraph)
		b := m.layer(sparse())
		m.works("a layer", func() error { return op.Check(b.g) })
	},
	"op.Grad": func(m *misuse) {
		g := gorgonia.NewGraph()
		x := floatInput(g, "x", 2, 2)
		cost := gorgonia.Must(gorgonia.Sum(x))
		m.fails("nothing", func() error { return second(op.Grad(nil)) })
		m.fails("nil cost", func() error { return second(op.Grad(nil, x)) })
		m.fails("nil input", func() error { return second(op.Grad(cost, nil)) })
		m.fails("a zero node", func() error { return second(op.Grad(cost, new(gorgonia.Node))) })
		m.fails("a cost that is no number", func() error { return second(op.Grad(x, x)) })
		m.fails("another graph", func() error { return second(op.Grad(cost, floatInput(gorgonia.NewGraph(), "y", 2, 2))) })
		m.fails("an input that does not count", func() error { return second(op.Grad(cost, floatInput(g, "y", 2, 2))) }, op.ErrNoGradient)
		m.fails("a statement", func() error { return second(op.Grad(gorgonia.Read(x, new(gorgonia.Value)), x)) })
	},
	"op.NewScoreCollect": func(m *misuse) {
		m.params(func(p op.AttentionParams) error { return second(op.NewScoreCollect("s", p)) })
		b := m.inputs()
		m.refuses(must(op.NewScoreCollect("s", op.AttentionParams{Group: 2}))(m), nil, b.q, b.k, b.v)
		m.refuses(must(op.NewScoreCollect("s", op.AttentionParams{Group: 2, Masked: true}))(m), nil, b.q, b.k, b.v, floatInput(b.g, "mask", 1, 4))
	},
	"op.NewGroupTopK": func(m *misuse) {
		m.params(func(p op.AttentionParams) error { return second(op.NewGroupTopK("t", 4, p)) })
		for _, n := range []int{0, -1, math.MinInt} {
			m.fails(fmt.Sprint(n, " tokens"), func() error { return second(op.NewGroupTopK("t", n, op.AttentionParams{})) }, op.ErrShape)
		}
		g := gorgonia.NewGraph()
		scores := floatInput(g, "scores", 1, 2, 2, 4)
		o := must(op.NewGroupTopK("t", 4, op.AttentionParams{Group: 2}))(m)
		m.refuses(o, nil, scores)
		m.fails("scores of 5", func() error { return second(op.Apply(o, floatInput(g, "scores5", 1, 2, 2, 5))) }, op.ErrShape)
		m.fails("a huge sequence", func() error {
			return second(op.Apply(must(op.NewGroupTopK("t", math.MaxInt, op.AttentionParams{Group: 2}))(m), scores))
		}, op.ErrShape)
		m.refuses(must(op.NewGroupTopK("m", 4, op.AttentionParams{Group: 2, Masked: true}))(m), nil, scores, floatInput(g, "mask", 1, 4))
	},
	"op.NewColumnSparseAttn": func(m *misuse) {
		m.params(func(p op.AttentionParams) error { return second(op.NewColumnSparseAttn("c", p)) })
		b := m.inputs()
		columns := input(b.g, "columns", []uint32{1, 2, 4, 8}, 1, 2, 2, 1)
		m.refuses(must(op.NewColumnSparseAttn("c", op.AttentionParams{Group: 2}))(m), nil, b.q, b.k, b.v, columns)
		m.refuses(must(op.NewColumnSparseAttn("r", op.AttentionParams{Group: 2, Rows: true, Masked: true}))(m), nil,
			b.q, b.k, b.v, columns, intInput(b.g, "rows", 3), floatInput(b.g, "mask", 1, 4))
		b = m.inputs()
		m.fails("keys that there are not", func() error {
			return runOp(must(op.NewColumnSparseAttn("c", op.AttentionParams{Group: 2}))(m), b.q, b.k, b.v, input(b.g, "columns", []uint32{1, 2, 4, math.MaxUint32}, 1, 2, 2, 1))
		})
	},
	"op.NewDenseAttn": func(m *misuse) {
		for _, x := range wrong {
			m.fails(fmt.Sprint("scale ", x), func() error { return second(op.NewDenseAttn("d", x, false)) }, op.ErrValue)
		}
		b := m.inputs()
		m.refuses(must(op.NewDenseAttn("d", 0, false))(m), nil, b.q, b.k, b.v)
		m.refuses(must(op.NewDenseAttn("d", 1, true))(m), nil, b.q, b.k, b.v, floatInput(b.g, "mask", 1, 4))
	},
	"op.NewAdd": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewAdd("a"), nil, floatInput(g, "x", 1, 2, 3), floatInput(g, "y", 1, 2, 3))
		m.refuses(op.NewAdd(""), nil, floatInput(g, "x", 1, 2, 3), floatInput(g, "y", 1, 2, 3))
	},
	"op.NewMergeHeads": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewMergeHeads("h"), []int{0}, floatInput(g, "x", 1, 2, 4, 4))
	},
	"op.NewGatherRows": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewGatherRows("r"), []int{0, 1}, floatInput(g, "x", 1, 4, 4), intInput(g, "rows", 3))
		for _, row := range []int32{4, math.MaxInt32} {
			g := gorgonia.NewGraph()
			err := m.call("a row", func() error {
				return runOp(op.NewGatherRows("r"), floatInput(g, "x", 1, 4, 4), input(g, "rows", []int32{row}, 1))
			})
			if err == nil {
				m.Errorf("row %d: no error", row)
			}
		}
	},
	"op.NewSplitHeads": func(m *misuse) {
		m.heads(func(h op.Heads) (gorgonia.Op, error) { return op.NewSplitHeads("s", h) }, nil)
	},
	"op.NewRoPE": func(m *misuse) {
		m.heads(func(h op.Heads) (gorgonia.Op, error) { return op.NewRoPE("r", h, 1e4) }, []int{1, 4})
		m.fails("an odd dimension", func() error { return second(op.NewRoPE("r", op.Heads{Count: 1, Dim: 3}, 1e4)) }, op.ErrShape)
		for _, theta := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
			m.fails(fmt.Sprint("theta ", theta), func() error { return second(op.NewRoPE("r", op.Heads{Count: 1, Dim: 4}, theta)) }, op.ErrValue)
		}
	},
	"op.NewRMSNorm": func(m *misuse) {
		g := gorgonia.NewGraph()
		x := floatInput(g, "x", 1, 4, 4)
		m.refuses(op.NewRMSNorm("n", []float32{1, 1, 1, 1}, 1e-5), nil, x)
		for name, w := range map[string][]float32{"nil": nil, "empty": {}, "long": make([]float32, 5)} {
			m.fails(name, func() error { return second(op.Apply(op.NewRMSNorm("n", w, 1e-5), x)) }, op.ErrShape)
		}
		for _, eps := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1)} {
			g := gorgonia.NewGraph()
			m.does(fmt.Sprint("eps ", eps), func() { runOp(op.NewRMSNorm("n", []float32{1, 1, 1, 1}, eps), floatInput(g, "x", 1, 4, 4)) })
		}
	},
	"op.NewEmbed": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewEmbed("e", weight(3, 4)), nil, intInput(g, "ids", 1, 4))
		for name, w := range badWeights() {
			g := gorgonia.NewGraph()
			m.fails(name, func() error { return runOp(op.NewEmbed("e", w), intInput(g, "ids", 1, 4)) })
		}
		for _, id := range []int32{-1, 3, math.MaxInt32, math.MinInt32} {
			g := gorgonia.NewGraph()
			if err := m.call("an id", func() error { return runOp(op.NewEmbed("e", weight(3, 4)), input(g, "ids", []int32{id}, 1, 1)) }); err == nil {
				m.Errorf("id %d: no error", id)
			}
		}
	},
	"op.NewLMHead": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewLMHead("h", weight(3, 4)), nil, floatInput(g, "x", 1, 2, 4), intInput(g, "rows", 2))
		m.weights(func(w op.Weight) error {
			g := gorgonia.NewGraph()
			return runOp(op.NewLMHead("h", w), floatInput(g, "x", 1, 2, 4), intInput(g, "rows", 2))
		})
	},
	"op.NewLinear":    linears(op.NewLinear, 1),
	"op.NewAddLinear": linears(op.NewAddLinear, 2),
	"op.NewSwiGLU": func(m *misuse) {
		g := gorgonia.NewGraph()
		right := op.Projection{Weight: weight(3, 4)}
		m.refuses(must(op.NewSwiGLU("s", right, right))(m), nil, floatInput(g, "x", 1, 2, 4))
		m.fails("another shape", func() error { return second(op.NewSwiGLU("s", right, op.Projection{Weight: weight(4, 3)})) }, op.ErrShape)
		m.fails("another bias", func() error {
			return second(op.NewSwiGLU("s", right, op.Projection{Weight: right.Weight, Bias: []float32{1}}))
		}, op.ErrShape)
		m.weights(func(w op.Weight) error {
			o, err := op.NewSwiGLU("s", op.Projection{Weight: w}, op.Projection{Weight: w})
			if err != nil {
				return err
			}
			return runOp(o, floatInput(gorgonia.NewGraph(), "x", 1, 2, 4))
		})
	},
	"op.NewWeight": func(m *misuse) {
		for name, w := range badWeights() {
			if name != "precision" && name != "zero" {
				m.fails(name, func() error { return second(op.NewWeight(w.Rows, w.Cols, w.DType, w.Data)) })
			}
		}
		for _, rows := range numbers {
			for _, cols := range numbers {
				m.does("sizes", func() {
					if w, err := op.NewWeight(rows, cols, op.F32, make([]byte, 8)); err == nil {
						m.Errorf("a weight of %d x %d of 8 bytes: %v", rows, cols, w.Rows)
					}
				})
			}
		}
	},
	"op.NewWeightFloat32": func(m *misuse) {
		for _, rows := range numbers {
			for _, cols := range numbers {
				m.does("sizes", func() {
					if _, err := op.NewWeightFloat32(rows, cols, []float32{1}); err == nil {
						m.Errorf("a weight of %d x %d of one number", rows, cols)
					}
				})
			}
		}
		m.does("nil", func() { op.NewWeightFloat32(0, 0, nil) })
	},
	"op.NewWorkspace": func(m *misuse) {
		m.is("empty", func() any { return op.NewWorkspace().Bytes() }, 0)
	},
	"op.Workspace.Bytes": func(m *misuse) {
		m.is("a zero workspace", func() any { return new(op.Workspace).Bytes() }, 0)
	},
	"op.Workspace.Free": func(m *misuse) {
		m.does("a zero workspace", new(op.Workspace).Free)
		w := op.NewWorkspace()
		b := m.layer(sparse())
		m.works("plan", func() error { return w.Plan(b.g, b.ctl.Modes()) })
		machine := m.machine(b)
		m.works("start", func() error { return b.ctl.Start(3) })
		for range 3 { // between steps
			m.works("step", machine.Step)
			m.does("free", w.Free)
			m.does("free, twice", w.Free)
		}
		m.works("close", machine.Close)
	},
	"op.Workspace.Forget": func(m *misuse) {
		w := new(op.Workspace)
		m.does("a zero workspace", func() { w.Forget(nil) })
		w = op.NewWorkspace()
		b := m.layer(sparse())
		m.does("an unknown graph", func() { w.Forget(b.g) })
		m.works("plan", func() error { return w.Plan(b.g, b.ctl.Modes()) })
		m.does("twice", func() { w.Forget(b.g); w.Forget(b.g) })
		m.is("forgotten", func() any { return w.Bytes() }, 0)
	},
	"op.Workspace.Plan": func(m *misuse) {
		for name, w := range map[string]*op.Workspace{"new": op.NewWorkspace(), "zero": new(op.Workspace)} {
			b := m.layer(sparse())
			m.fails(name+", nil", func() error { return w.Plan(nil, nil) })
			m.does(name+", an empty graph", func() { w.Plan(gorgonia.NewGraph(), nil) })
			m.does(name+", a zero graph", func() { w.Plan(new(gorgonia.ExprGraph), nil) })
			m.fails(name+", a mode that is none", func() error { return w.Plan(b.g, []op.Mode{99}) })
			m.fails(name+", nil to keep", func() error { return w.Plan(b.g, b.ctl.Modes(), nil) })
			m.fails(name+", another graph's", func() error { return w.Plan(b.g, b.ctl.Modes(), m.inputs().q) })
			m.works(name+", a layer", func() error { return w.Plan(b.g, b.ctl.Modes(), b.y) })
			m.does(name+", twice", func() { w.Plan(b.g, b.ctl.Modes()) })
			machine := m.machine(b)
			m.works("start", func() error { return b.ctl.Start(2) })
			m.works("step", machine.Step)
			m.works("close", machine.Close)
		}
	},
})
