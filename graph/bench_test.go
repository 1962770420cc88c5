package graph_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// BenchmarkBlock is a step of a block of 512 features, 8 heads and 1,024 tokens: forward alone,
// and with the gradients of all weights or of adapters of rank 8, in a Workspace.
func BenchmarkBlock(b *testing.B) {
	const n, d, f, heads = 1024, 512, 1408, 8
	r := attncase.Rand(1)
	projection := func(name string, out, in int) graph.Projection {
		return graph.Projection{Path: name, Weight: must(op.NewWeightFloat32(out, in, attncase.Normal(r, out*in, 1/math.Sqrt(float64(in)))))(b)}
	}
	at, ones := make([]int32, n), make([]float32, d)
	for i := range at {
		at[i] = int32(i)
	}
	for i := range ones {
		ones[i] = 1
	}
	for name, prepare := range map[string]func(*graph.Block, *gorgonia.ExprGraph) (gorgonia.Nodes, error){
		"forward": nil,
		"weights": func(block *graph.Block, g *gorgonia.ExprGraph) (gorgonia.Nodes, error) { return block.Train(g) },
		"adapters": func(block *graph.Block, g *gorgonia.ExprGraph) (gorgonia.Nodes, error) {
			return block.Adapt(g, 8, 1, 1)
		},
	} {
		for _, sparsity := range []float64{0, 0.8} {
			b.Run(fmt.Sprintf("%s/sparsity%g", name, sparsity), func(b *testing.B) {
				g := gorgonia.NewGraph()
				ctl := newController(b, pulsecol.Config{Sparsity: sparsity, Schedule: pulsecol.Every{Steps: 1 << 30}})
				block := &graph.Block{
					Path: "block", Heads: heads, KVHeads: heads, HeadDim: d / heads, Theta: 1e4,
					AttentionNorm: graph.Norm{Path: "norm1", Weight: ones, Eps: 1e-5}, FeedForwardNorm: graph.Norm{Path: "norm2", Weight: ones, Eps: 1e-5},
					Q: projection("q", d, d), K: projection("k", d, d), V: projection("v", d, d), Out: projection("out", d, d),
					Gate: projection("gate", f, d), Up: projection("up", f, d), Down: projection("down", d, f),
				}
				var params gorgonia.Nodes
				if prepare != nil {
					params = must(prepare(block, g))(b)
				}
				y := must(block.Build(variable(g, "x", attncase.Normal(r, n*d, 1), 1, n, d), variable(g, "positions", at, 1, n), ctl.Layer(0)))(b)
				cost := must(gorgonia.Sum(y))(b)
				if params != nil {
					must(op.Grad(cost, params...))(b)
				}
				ws := op.NewWorkspace()
				if err := ws.Plan(g, ctl.Modes()); err != nil {
					b.Fatal(err)
				}
				m := must(pulsecol.NewMachine(g, ctl))(b)
				defer m.Close()
				if err := ctl.StartEndless(); err != nil {
					b.Fatal(err)
				}
				if err := m.Step(); err != nil { // a refresh
					b.Fatal(err)
				}
				for b.Loop() {
					if err := m.Step(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(ws.Bytes())/1e6, "planned-MB")
			})
		}
	}
}
