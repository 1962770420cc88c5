package outside_test

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// trainedProjection is a projection of 4 features to 3.
func trainedProjection() graph.Projection {
	return graph.Projection{Path: "p", Weight: weight(3, 4), Bias: make([]float32, 3)}
}

// adapts gives something wrong adapters.
func (m *misuse) adapts(adapt func(g *gorgonia.ExprGraph, rank int, scale float64) (gorgonia.Nodes, error)) {
	g := gorgonia.NewGraph()
	m.fails("nil graph", func() error { return second(adapt(nil, 1, 1)) }, op.ErrValue)
	for _, rank := range []int{0, -1, 5, math.MaxInt, math.MinInt} {
		m.fails(fmt.Sprint("rank ", rank), func() error { return second(adapt(g, rank, 1)) }, op.ErrValue)
	}
	for _, scale := range []float64{0, math.NaN(), math.Inf(1), math.Inf(-1)} {
		m.fails(fmt.Sprint("scale ", scale), func() error { return second(adapt(g, 1, scale)) }, op.ErrValue)
	}
	m.works("rank 2", func() error { return second(adapt(g, 2, -1)) })
}

var _ = misuses(map[string]func(*misuse){
	"op.NewTrainedLinear": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewTrainedLinear("l", 1), nil, floatInput(g, "x", 1, 2, 4), floatInput(g, "w", 3, 4))
		for _, scale := range []float64{0, math.NaN(), math.Inf(1)} {
			g := gorgonia.NewGraph()
			m.does(fmt.Sprint("scale ", scale), func() {
				runOp(op.NewTrainedLinear("l", scale), floatInput(g, "x", 1, 2, 4), floatInput(g, "w", 3, 4))
			})
		}
	},
	"op.NewTrainedRMSNorm": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewTrainedRMSNorm("n", 1e-5), nil, floatInput(g, "x", 1, 4, 4), floatInput(g, "w", 4))
		for _, eps := range []float64{-1, math.NaN(), math.Inf(1)} {
			g := gorgonia.NewGraph()
			m.does(fmt.Sprint("eps ", eps), func() {
				runOp(op.NewTrainedRMSNorm("n", eps), floatInput(g, "x", 1, 4, 4), floatInput(g, "w", 4))
			})
		}
	},
	"op.NewTrainedEmbed": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewTrainedEmbed("e"), []int{1}, intInput(g, "ids", 1, 4), floatInput(g, "table", 3, 4))
		for _, id := range []int32{-1, 3, math.MaxInt32, math.MinInt32} {
			g := gorgonia.NewGraph()
			err := m.call("an id", func() error {
				return runOp(op.NewTrainedEmbed("e"), input(g, "ids", []int32{id}, 1, 1), floatInput(g, "table", 3, 4))
			})
			if err == nil {
				m.Errorf("id %d: no error", id)
			}
		}
	},
	"op.NewTrainedLMHead": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewTrainedLMHead("h"), nil, floatInput(g, "x", 1, 2, 4), intInput(g, "rows", 2), floatInput(g, "w", 3, 4))
	},
	"op.NewAddBias": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewAddBias("b"), nil, floatInput(g, "x", 1, 2, 4), floatInput(g, "bias", 4))
	},
	"op.NewGate": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewGate("g"), nil, floatInput(g, "gate", 1, 2, 4), floatInput(g, "up", 1, 2, 4))
	},
	"op.NewCrossEntropy": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.refuses(op.NewCrossEntropy("c"), []int{0}, floatInput(g, "logits", 2, 4), intInput(g, "targets", 2))
		for _, target := range []int32{4, math.MaxInt32} {
			g := gorgonia.NewGraph()
			err := m.call("a target", func() error {
				return runOp(op.NewCrossEntropy("c"), floatInput(g, "logits", 1, 4), input(g, "targets", []int32{target}, 1))
			})
			if err == nil {
				m.Errorf("target %d: no error", target)
			}
		}
	},
	"graph.CrossEntropy": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.builds([]int{0}, []*gorgonia.Node{floatInput(g, "logits", 2, 4), intInput(g, "targets", 2)}, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.CrossEntropy("c", in[0], in[1])
		})
	},
	"graph.TrainedEmbed": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.builds([]int{1}, []*gorgonia.Node{intInput(g, "ids", 1, 4), floatInput(g, "table", 3, 4)}, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.TrainedEmbed("e", in[0], in[1])
		})
	},
	"graph.TrainedLogits": func(m *misuse) {
		g := gorgonia.NewGraph()
		right := []*gorgonia.Node{floatInput(g, "x", 1, 2, 4), intInput(g, "rows", 2), floatInput(g, "w", 3, 4)}
		m.builds(nil, right, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.TrainedLogits("l", in[0], in[1], in[2])
		})
	},
	"graph.Parameter": func(m *misuse) {
		for name, w := range badWeights() {
			if name != "precision" {
				m.fails(name, func() error { return second(graph.Parameter(gorgonia.NewGraph(), "w", w)) })
			}
		}
		m.fails("nil graph", func() error { return second(graph.Parameter(nil, "w", weight(3, 4))) })
	},
	"graph.Projection.Train": func(m *misuse) {
		p := trainedProjection()
		m.fails("nil graph", func() error { return second(p.Train(nil)) })
		m.fails("a zero projection", func() error { return second(new(graph.Projection).Train(gorgonia.NewGraph())) })
		m.works("right", func() error { return second(p.Train(gorgonia.NewGraph())) })
	},
	"graph.Projection.Adapt": func(m *misuse) {
		m.adapts(func(g *gorgonia.ExprGraph, rank int, scale float64) (gorgonia.Nodes, error) {
			p := trainedProjection()
			return p.Adapt(g, rank, scale, 1)
		})
		m.fails("a zero projection", func() error { return second(new(graph.Projection).Adapt(gorgonia.NewGraph(), 1, 1, 1)) })
	},
	"graph.Norm.Train": func(m *misuse) {
		n := graph.Norm{Path: "n", Weight: []float32{1}}
		m.fails("nil graph", func() error { return second(n.Train(nil)) })
		m.fails("a zero norm", func() error { return second(new(graph.Norm).Train(gorgonia.NewGraph())) })
	},
	"graph.Block.Train": func(m *misuse) {
		b, x, positions, l := m.block()
		m.fails("nil graph", func() error { return second(b.Train(nil)) })
		m.fails("a nil block", func() error { return second((*graph.Block)(nil).Train(x.Graph())) })
		m.fails("a zero block", func() error { return second(new(graph.Block).Train(x.Graph())) })
		m.works("right", func() error { return second(b.Train(x.Graph())) })
		m.works("build", func() error { return second(b.Build(x, positions, l)) })
		other, x, positions, l := m.block()
		m.works("nodes of another graph", func() error { return second(other.Train(gorgonia.NewGraph())) })
		m.fails("build in another graph", func() error { return second(other.Build(x, positions, l)) })
	},
	"graph.Block.Adapt": func(m *misuse) {
		m.adapts(func(g *gorgonia.ExprGraph, rank int, scale float64) (gorgonia.Nodes, error) {
			b, _, _, _ := m.block()
			return b.Adapt(g, rank, scale, 1)
		})
		m.fails("a nil block", func() error { return second((*graph.Block)(nil).Adapt(gorgonia.NewGraph(), 1, 1, 1)) })
	},
})
