package outside_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// site is an attention layer in a graph: what it works on in a step, what is computed from
// it, and what the graph has there.
type site struct {
	operands func() *operands
	finish   func(attention array) array // to the node that is read, nil for attention's own
	got      func() []float32            // [batch, heads, n, dim], or [batch, n, features] after finish
	after    func() (want array, got []float32)
	only     []int32 // tokens b*n+i that are read; nil for all
}

// model is a graph with attention layers.
type model struct {
	t       testing.TB
	r       *rand.Rand
	g       *gorgonia.ExprGraph
	ctl     *pulsecol.Controller
	shape   shape
	mask    []float32
	opts    []pulsecol.AttentionOption
	sites   []site
	inputs  [][]float32 // that change between steps
	kind    string
	scale   float64
	padding *gorgonia.Node
}

// read returns what a node has after a step.
func read(n *gorgonia.Node) func() []float32 {
	v := new(gorgonia.Value)
	gorgonia.Read(n, v)
	return func() []float32 { return floats(*v) }
}

func floats(v gorgonia.Value) []float32 {
	if x, ok := v.Data().(float32); ok {
		return []float32{x}
	}
	return v.Data().([]float32)
}

// of returns the operands in arrays.
func (m *model) of(q, k, v array) *operands {
	s := m.shape
	return &operands{s.batch, s.heads, s.kvHeads, s.n, s.dim, q, k, v, m.mask, m.scale}
}

func (m *model) kvShape() []int {
	return []int{m.shape.batch, m.shape.kvHeads, m.shape.n, m.shape.dim}
}

func (m *model) qShape() []int {
	return []int{m.shape.batch, m.shape.heads, m.shape.n, m.shape.dim}
}

// input is a random input of the graph that changes between steps.
func (m *model) input(name string, shape ...int) (*gorgonia.Node, []float32) {
	size := 1
	for _, d := range shape {
		size *= d
	}
	x := drawValues(m.r, size)
	m.inputs = append(m.inputs, x)
	return input(m.g, name, x, shape...), x
}

// drawModel adds layers attention layers to a new graph, in one of four ways.
func drawModel(t testing.TB, r *rand.Rand, ctl *pulsecol.Controller, s shape, layers int) *model {
	m := &model{t: t, r: r, g: gorgonia.NewGraph(), ctl: ctl, shape: s, scale: ctl.Config().Scale}
	if r.IntN(3) == 0 {
		m.mask = drawMask(r, s.batch, s.n)
		m.padding = input(m.g, "mask", m.mask, s.batch, s.n)
		m.opts = append(m.opts, pulsecol.WithPaddingMask(m.padding))
	}
	if r.IntN(4) == 0 {
		m.opts = append(m.opts, nil) // an option that there is not
	}
	switch r.IntN(6) {
	case 0, 1:
		m.apart(layers)
	case 2, 3:
		m.chained(layers)
	case 4:
		m.blocks(layers)
	default:
		m.encoder(layers)
	}
	return m
}

// apart has inputs of its own for every layer.
func (m *model) apart(layers int) {
	m.kind = "inputs"
	for l := range layers {
		q, qx := m.input(fmt.Sprint("q", l), m.qShape()...)
		k, kx := m.input(fmt.Sprint("k", l), m.kvShape()...)
		v, vx := m.input(fmt.Sprint("v", l), m.kvShape()...)
		opts, only := m.opts, []int32(nil)
		if m.r.IntN(4) == 0 {
			m.kind = "rows"
			for range 1 + m.r.IntN(3) {
				only = append(only, int32(m.r.IntN(m.shape.batch*m.shape.n)))
			}
			rows := append(append([]int32{-1}, only...), -1)
			opts = append(opts[:len(opts):len(opts)], pulsecol.WithRows(input(m.g, fmt.Sprint("rows", l), rows, len(rows))))
		}
		y := must(pulsecol.Attention(q, k, v, m.ctl.Layer(l), opts...))(m.t)
		m.sites = append(m.sites, site{
			operands: func() *operands { return m.of(exact(qx), exact(kx), exact(vx)) },
			got:      read(y), only: only,
		})
	}
}

// chained makes the queries, keys and values of each layer from those before and from its
// result, with Gorgonia's operators.
func (m *model) chained(layers int) {
	m.kind = "chained"
	q, _ := m.input("q", m.qShape()...)
	k, _ := m.input("k", m.kvShape()...)
	v, _ := m.input("v", m.kvShape()...)
	for l := range layers {
		y := must(pulsecol.Attention(q, k, v, m.ctl.Layer(l), m.opts...))(m.t)
		qx, kx, vx := read(q), read(k), read(v)
		m.sites = append(m.sites, site{
			operands: func() *operands { return m.of(exact(qx()), exact(kx()), exact(vx())) },
			got:      read(y),
		})
		q = must(gorgonia.Tanh(must(gorgonia.Add(y, q))(m.t)))(m.t)
		if m.shape.heads == m.shape.kvHeads {
			k = must(gorgonia.Sub(y, k))(m.t)
		} else {
			w, _ := m.input(fmt.Sprint("w", l), m.kvShape()...)
			k = must(gorgonia.HadamardProd(k, w))(m.t)
		}
		v = must(gorgonia.Neg(v))(m.t)
	}
}

// finite replaces the large values of an input by those that a layer has.
func (m *model) tokens(features int) (*gorgonia.Node, []float32) {
	x := normal(m.r, m.shape.batch*m.shape.n*features, pick(m.r, 0.5, 1, 3))
	m.inputs = append(m.inputs, x)
	return input(m.g, "x", x, m.shape.batch, m.shape.n, features), x
}

func (m *model) norm(path string, features int) graph.Norm {
	w := normal(m.r, features, 0.3)
	for i := range w {
		w[i]++
	}
	return graph.Norm{Path: path, Weight: w, Eps: pick(m.r, 1e-5, 1e-6, 1e-2)}
}

func (m *model) projection(path string, rows, cols int) (graph.Projection, *matrix) {
	w, plain := drawWeight(m.t, m.r, rows, cols)
	return graph.Projection{Path: path, Weight: w, Bias: plain.bias}, plain
}

// positions are those of the tokens, from anywhere.
func (m *model) positions() (*gorgonia.Node, []int32) {
	x := make([]int32, m.shape.batch*m.shape.n)
	from := m.r.IntN(1000)
	for i := range x {
		x[i] = int32(from + i%m.shape.n)
	}
	return input(m.g, "positions", x, m.shape.batch, m.shape.n), x
}

// blocks is a stack of graph.Block.
func (m *model) blocks(layers int) {
	m.kind = "blocks"
	s := m.shape
	s.dim += s.dim % 2
	m.shape = s
	features, inner, theta := 1+m.r.IntN(24), 1+m.r.IntN(40), pick(m.r, 1e4, 5e5, 10)
	positions, at := m.positions()
	x, data := m.tokens(features)
	in := func() []float32 { return data }
	for l := range layers {
		path := fmt.Sprintf("blocks.%d", l)
		b := &graph.Block{Path: path, Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.dim, Theta: theta}
		b.AttentionNorm, b.FeedForwardNorm = m.norm(path+".norm", features), m.norm(path+".ffnorm", features)
		var q, k, v, out, gate, up, down *matrix
		b.Q, q = m.projection(path+".q", s.heads*s.dim, features)
		b.K, k = m.projection(path+".k", s.kvHeads*s.dim, features)
		b.V, v = m.projection(path+".v", s.kvHeads*s.dim, features)
		b.Out, out = m.projection(path+".out", features, s.heads*s.dim)
		b.Gate, gate = m.projection(path+".gate", inner, features)
		b.Up, up = m.projection(path+".up", inner, features)
		b.Down, down = m.projection(path+".down", features, inner)
		h := must(b.Attention(x, positions, nil, m.ctl.Layer(l), m.opts...))(m.t)
		y := must(b.FeedForward(h, m.ctl.Layer(l)))(m.t)
		before, half, got := in, read(h), read(y)
		m.sites = append(m.sites, site{
			operands: func() *operands {
				n := rmsNorm(exact(before()), b.AttentionNorm.Weight, b.AttentionNorm.Eps)
				return m.of(
					rope(splitHeads(q.linear(n), s.batch, s.n, 0, s.heads, s.dim), at, s.batch, s.heads, s.n, s.dim, theta),
					rope(splitHeads(k.linear(n), s.batch, s.n, 0, s.kvHeads, s.dim), at, s.batch, s.kvHeads, s.n, s.dim, theta),
					splitHeads(v.linear(n), s.batch, s.n, 0, s.kvHeads, s.dim))
			},
			finish: func(a array) array {
				return add(exact(before()), out.linear(mergeHeads(a, s.batch, s.heads, s.n, s.dim)))
			},
			got: half,
			after: func() (array, []float32) {
				n := rmsNorm(exact(half()), b.FeedForwardNorm.Weight, b.FeedForwardNorm.Eps)
				return add(exact(half()), down.linear(swiGLU(n, gate, up))), got()
			},
		})
		x, in = y, got
	}
}

// encoder is layers made by hand: projections and residuals of Gorgonia's operators, heads
// of package graph.
func (m *model) encoder(layers int) {
	m.kind = "encoder"
	s := m.shape
	features := 1 + m.r.IntN(24)
	x, data := m.tokens(features)
	in := func() []float32 { return data }
	for l := range layers {
		weight := func(name string, rows, cols int) (*gorgonia.Node, *matrix) { // [cols, rows], as Mul takes it
			w := &matrix{rows: rows, cols: cols, w: normal(m.r, rows*cols, 0.3)}
			turned := make([]float32, len(w.w))
			for i := range turned {
				turned[i] = w.w[i%rows*cols+i/rows]
			}
			return input(m.g, fmt.Sprint(name, l), turned, cols, rows), w
		}
		mul := func(x, w *gorgonia.Node, to int) *gorgonia.Node {
			flat := must(gorgonia.Reshape(x, []int{s.batch * s.n, x.Shape()[2]}))(m.t)
			return must(gorgonia.Reshape(must(gorgonia.Mul(flat, w))(m.t), []int{s.batch, s.n, to}))(m.t)
		}
		node, qkv := weight("qkv", (s.heads+2*s.kvHeads)*s.dim, features)
		outNode, out := weight("out", features, s.heads*s.dim)
		all := mul(x, node, qkv.rows)
		var parts [3]*gorgonia.Node
		first := [4]int{0, s.heads, s.heads + s.kvHeads, s.heads + 2*s.kvHeads}
		for i := range parts {
			h := op.Heads{First: first[i], Count: first[i+1] - first[i], Dim: s.dim}
			parts[i] = must(graph.SplitHeads(fmt.Sprint("split", i, ".", l), all, h))(m.t)
		}
		y := must(pulsecol.Attention(parts[0], parts[1], parts[2], m.ctl.Layer(l), m.opts...))(m.t)
		y = must(gorgonia.Add(x, mul(must(graph.MergeHeads(fmt.Sprint("merge", l), y))(m.t), outNode, features)))(m.t)
		before, got := in, read(y)
		m.sites = append(m.sites, site{
			operands: func() *operands {
				x := qkv.linear(exact(before()))
				var p [3]array
				for i := range p {
					p[i] = splitHeads(x, s.batch, s.n, first[i], first[i+1]-first[i], s.dim)
				}
				return m.of(p[0], p[1], p[2])
			},
			finish: func(a array) array {
				return add(exact(before()), out.linear(mergeHeads(a, s.batch, s.heads, s.n, s.dim)))
			},
			got: got,
		})
		x, in = y, got
	}
}
