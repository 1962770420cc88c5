package outside_test

import (
	"fmt"
	"math"
	"slices"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// builds gives a builder every wrong node in place of each input. Those of any may have
// other sizes.
func (m *misuse) builds(any []int, right []*gorgonia.Node, build func(in []*gorgonia.Node) (*gorgonia.Node, error)) {
	m.Helper()
	for i := range right {
		for name, n := range nodes(right[0].Graph(), right[i]) {
			if name == "another graph" && len(right) == 1 || name == "another size" && slices.Contains(any, i) {
				continue // is as good
			}
			in := slices.Clone(right)
			in[i] = n
			m.fails(fmt.Sprintf("input %d is %s", i, name), func() error { return second(build(in)) }, op.ErrShape)
		}
	}
	m.works("right inputs", func() error { return second(build(right)) })
}

// block is a block of 4 features, 2 heads of 2 and a controller's layer for it.
func (m *misuse) block() (b *graph.Block, x, positions *gorgonia.Node, l *pulsecol.Layer) {
	p := func(path string) graph.Projection { return graph.Projection{Path: path, Weight: weight(4, 4)} }
	n := func(path string) graph.Norm { return graph.Norm{Path: path, Weight: []float32{1, 1, 1, 1}, Eps: 1e-5} }
	g := gorgonia.NewGraph()
	ctl := must(pulsecol.NewController(sparse()))(m)
	return &graph.Block{
		Path: "b", Heads: 2, KVHeads: 2, HeadDim: 2, Theta: 1e4,
		AttentionNorm: n("n"), Q: p("q"), K: p("k"), V: p("v"), Out: p("o"),
		FeedForwardNorm: n("f"), Gate: p("g"), Up: p("u"), Down: p("d"),
	}, floatInput(g, "x", 1, 4, 4), intInput(g, "positions", 1, 4), ctl.Layer(0)
}

// blocks changes a block in every way that is wrong.
func (m *misuse) blocks(attention, feedForward bool, build func(b *graph.Block, x, positions *gorgonia.Node, l *pulsecol.Layer) error) {
	m.Helper()
	for name, change := range map[string]func(*graph.Block){
		"heads 0": func(b *graph.Block) { b.Heads = 0 }, "heads -1": func(b *graph.Block) { b.Heads = -1 },
		"huge heads": func(b *graph.Block) { b.Heads = math.MaxInt }, "KV heads 0": func(b *graph.Block) { b.KVHeads = 0 },
		"three KV heads": func(b *graph.Block) { b.KVHeads = 3; b.K.Weight, b.V.Weight = weight(6, 4), weight(6, 4) },
		"dim 0":          func(b *graph.Block) { b.HeadDim = 0 }, "dim -2": func(b *graph.Block) { b.HeadDim = -2 },
		"odd dim": func(b *graph.Block) { b.Heads, b.KVHeads, b.HeadDim = 4, 4, 1 }, "theta": func(b *graph.Block) { b.Theta = math.NaN() },
		"no theta": func(b *graph.Block) { b.Theta = 0 }, "norm": func(b *graph.Block) { b.AttentionNorm.Weight = nil },
		"no Q": func(b *graph.Block) { b.Q = graph.Projection{} }, "Q": func(b *graph.Block) { b.Q.Weight = weight(6, 4) },
		"K": func(b *graph.Block) { b.K.Weight = weight(4, 5) }, "V's bias": func(b *graph.Block) { b.V.Bias = []float32{1} },
		"out": func(b *graph.Block) { b.Out.Weight = weight(5, 4) }, "a zero block": func(b *graph.Block) { *b = graph.Block{} },
	} {
		if !attention && name != "a zero block" {
			continue
		}
		b, x, positions, l := m.block()
		change(b)
		m.fails(name, func() error { return build(b, x, positions, l) })
	}
	for name, change := range map[string]func(*graph.Block){
		"feed-forward norm": func(b *graph.Block) { b.FeedForwardNorm.Weight = make([]float32, 5) },
		"gate":              func(b *graph.Block) { b.Gate.Weight = weight(5, 4) }, "up": func(b *graph.Block) { b.Up = graph.Projection{} },
		"down": func(b *graph.Block) { b.Down.Weight = weight(4, 7) }, "down's bias": func(b *graph.Block) { b.Down.Bias = []float32{} },
	} {
		if feedForward {
			b, x, positions, l := m.block()
			change(b)
			m.fails(name, func() error { return build(b, x, positions, l) }, op.ErrShape)
		}
	}
	m.fails("a nil block", func() error {
		_, x, positions, l := m.block()
		return build(nil, x, positions, l)
	})
	b, right, _, _ := m.block()
	for name, x := range nodes(right.Graph(), right) {
		if name != "another graph" || attention { // feed-forward has no other input
			_, _, positions, l := m.block()
			m.fails("x is "+name, func() error { return build(b, x, positions, l) }, op.ErrShape)
		}
	}
	if attention {
		b, x, positions, l := m.block()
		for name, n := range nodes(x.Graph(), positions) {
			m.fails("positions are "+name, func() error { return build(b, x, n, l) }, op.ErrShape)
		}
		m.fails("no layer", func() error { return build(b, x, positions, nil) })
		m.works("a right block", func() error { return build(b, x, positions, l) })
		m.fails("its layer twice", func() error { return build(b, x, positions, l) })
	}
}

var _ = misuses(map[string]func(*misuse){
	"graph.Add": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.builds(nil, []*gorgonia.Node{floatInput(g, "x", 1, 2, 3), floatInput(g, "y", 1, 2, 3)}, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.Add("a", in[0], in[1])
		})
	},
	"graph.Linear": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.builds(nil, []*gorgonia.Node{floatInput(g, "x", 1, 2, 4)}, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.Linear(in[0], graph.Projection{Path: "p", Weight: weight(3, 4)})
		})
		m.fails("no projection", func() error { return second(graph.Linear(floatInput(g, "x", 1, 2, 4))) }, op.ErrShape)
	},
	"graph.AddLinear": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.builds(nil, []*gorgonia.Node{floatInput(g, "r", 1, 2, 3), floatInput(g, "x", 1, 2, 4)}, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.AddLinear(in[0], in[1], graph.Projection{Path: "p", Weight: weight(3, 4)})
		})
		m.fails("no projection", func() error { return second(graph.AddLinear(nil, nil)) }, op.ErrShape)
	},
	"graph.SwiGLU": func(m *misuse) {
		g := gorgonia.NewGraph()
		p := graph.Projection{Path: "p", Weight: weight(3, 4)}
		m.builds(nil, []*gorgonia.Node{floatInput(g, "x", 1, 2, 4)}, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.SwiGLU(in[0], p, p)
		})
		m.fails("zero projections", func() error {
			return second(graph.SwiGLU(floatInput(g, "x", 1, 2, 4), graph.Projection{}, graph.Projection{}))
		})
	},
	"graph.RMSNorm": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.builds(nil, []*gorgonia.Node{floatInput(g, "x", 1, 2, 4)}, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.RMSNorm(in[0], graph.Norm{Path: "n", Weight: []float32{1, 1, 1, 1}})
		})
		m.fails("a zero norm", func() error { return second(graph.RMSNorm(floatInput(g, "x", 1, 2, 4), graph.Norm{})) }, op.ErrShape)
	},
	"graph.RoPE": func(m *misuse) {
		g := gorgonia.NewGraph()
		right := []*gorgonia.Node{floatInput(g, "x", 1, 2, 8), intInput(g, "at", 1, 2)}
		m.builds([]int{0}, right, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.RoPE("r", in[0], in[1], op.Heads{Count: 2, Dim: 4}, 1e4)
		})
		m.fails("no heads", func() error { return second(graph.RoPE("r", right[0], right[1], op.Heads{}, 1e4)) }, op.ErrShape)
		m.fails("theta", func() error {
			return second(graph.RoPE("r", right[0], right[1], op.Heads{Count: 2, Dim: 4}, math.NaN()))
		}, op.ErrValue)
	},
	"graph.SplitHeads": func(m *misuse) {
		g := gorgonia.NewGraph()
		right := []*gorgonia.Node{floatInput(g, "x", 1, 2, 8)}
		m.builds([]int{0}, right, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.SplitHeads("s", in[0], op.Heads{Count: 2, Dim: 4})
		})
		m.fails("no heads", func() error { return second(graph.SplitHeads("s", right[0], op.Heads{})) }, op.ErrShape)
		m.fails("heads too many", func() error { return second(graph.SplitHeads("s", right[0], op.Heads{Count: 3, Dim: 4})) }, op.ErrShape)
	},
	"graph.MergeHeads": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.builds([]int{0}, []*gorgonia.Node{floatInput(g, "x", 1, 2, 4, 4)}, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.MergeHeads("m", in[0])
		})
	},
	"graph.GatherRows": func(m *misuse) {
		g := gorgonia.NewGraph()
		m.builds([]int{0, 1}, []*gorgonia.Node{floatInput(g, "x", 1, 2, 4), intInput(g, "rows", 2)}, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.GatherRows("r", in[0], in[1])
		})
	},
	"graph.Logits": func(m *misuse) {
		g := gorgonia.NewGraph()
		right := []*gorgonia.Node{floatInput(g, "x", 1, 2, 4), intInput(g, "rows", 2)}
		m.builds(nil, right, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
			return graph.Logits("l", in[0], in[1], weight(3, 4))
		})
		m.fails("a zero head", func() error { return second(graph.Logits("l", right[0], right[1], op.Weight{})) }, op.ErrShape)
	},
	"graph.Embed": func(m *misuse) {
		right := []*gorgonia.Node{intInput(gorgonia.NewGraph(), "ids", 1, 4)}
		for _, device := range []pulsecol.Device{pulsecol.Auto, pulsecol.CPU, 99} {
			right[0] = intInput(gorgonia.NewGraph(), "ids", 1, 4)
			m.builds(nil, right, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				return graph.Embed("e", in[0], weight(3, 4), device)
			})
		}
		m.does("on a GPU", func() { graph.Embed("e", right[0], weight(3, 4), pulsecol.CUDA) })
		m.fails("no ids on a GPU", func() error { return second(graph.Embed("e", nil, weight(3, 4), pulsecol.CUDA)) })
		m.fails("precision", func() error {
			w := weight(3, 4)
			w.Precision = 99
			return second(graph.Embed("e", right[0], w, pulsecol.CPU))
		}, op.ErrValue)
	},
	"graph.Check": func(m *misuse) {
		m.fails("nil", func() error { return graph.Check(nil) }, op.ErrGraph)
		m.works("empty", func() error { return graph.Check(gorgonia.NewGraph()) })
	},
	"graph.Block.Attention": func(m *misuse) {
		m.blocks(true, false, func(b *graph.Block, x, positions *gorgonia.Node, l *pulsecol.Layer) error {
			return second(b.Attention(x, positions, nil, l))
		})
		b, x, positions, l := m.block()
		for name, n := range nodes(x.Graph(), intInput(x.Graph(), "rows", 3)) {
			if n != nil {
				m.fails("rows are "+name, func() error { return second(b.Attention(x, positions, n, l)) }, op.ErrShape)
			}
		}
	},
	"graph.Block.FeedForward": func(m *misuse) {
		m.blocks(false, true, func(b *graph.Block, x, positions *gorgonia.Node, l *pulsecol.Layer) error {
			return second(b.FeedForward(x, l))
		})
		b, x, _, _ := m.block()
		m.works("no layer", func() error { return second(b.FeedForward(x, nil)) })
	},
	"graph.Block.Build": func(m *misuse) {
		m.blocks(true, true, func(b *graph.Block, x, positions *gorgonia.Node, l *pulsecol.Layer) error {
			return second(b.Build(x, positions, l))
		})
	},
})
