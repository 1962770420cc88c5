package graph_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/procgroup"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestCollectives splits two linear layers over ranks, as tensor parallelism does: each rank has a
// part of the first's outputs and of the second's inputs.
func TestCollectives(t *testing.T) {
	const tokens, features, hidden, size = 6, 10, 12, 3
	x := attncase.Normal(attncase.Rand(1), tokens*features, 1)
	up := attncase.Normal(attncase.Rand(2), hidden*features, 1)
	down := attncase.Normal(attncase.Rand(3), features*hidden, 1)

	// The same in float64, and the sum of the products' sizes for the bound of rounding.
	middle, want := make([]float64, tokens*hidden), make([]float64, tokens*features)
	bound := 0.0
	for i := range tokens {
		middleSize := make([]float64, hidden)
		for h := range hidden {
			for f := range features {
				p := float64(x[i*features+f]) * float64(up[h*features+f])
				middle[i*hidden+h] += p
				middleSize[h] += math.Abs(p)
			}
		}
		for f := range features {
			total := 0.0
			for h := range hidden {
				want[i*features+f] += middle[i*hidden+h] * float64(down[f*hidden+h])
				total += middleSize[h] * math.Abs(float64(down[f*hidden+h]))
			}
			bound = max(bound, total)
		}
	}
	bound *= (features + hidden + size) * tol.ULP

	listener := "127.0.0.1:" + strconv.Itoa(20000+rand.IntN(9000)) // below the ports of clients
	var ranks sync.WaitGroup
	for rank := range size {
		ranks.Go(func() {
			group, err := procgroup.Join(t.Context(), procgroup.Place{Rank: rank, Size: size, Address: listener}, procgroup.Options{})
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			sum, parts, err := splitLayers(group, tokens, features, hidden, x, up, down)
			if err := group.Close(err); err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			tol.CloseAbs(t, sum, want, bound)
			tol.SameBits(t, "sum in parts", parts, sum)
		})
	}
	ranks.Wait()
}

// splitLayers returns the sum of all ranks' parts of two layers, in one collective and in two.
func splitLayers(ranks op.Ranks, tokens, features, hidden int, x, up, down []float32) (sum, parts []float32, err error) {
	n := hidden / ranks.Size()
	first := ranks.Rank() * n
	downPart := make([]float32, 0, features*n) // columns of down
	for f := range features {
		downPart = append(downPart, down[f*hidden+first:][:n]...)
	}
	upWeight, err := op.NewWeightFloat32(n, features, up[first*features:][:n*features])
	if err != nil {
		return nil, nil, err
	}
	downWeight, err := op.NewWeightFloat32(features, n, downPart)
	if err != nil {
		return nil, nil, err
	}
	g := gorgonia.NewGraph()
	node := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithName("x"), gorgonia.WithShape(1, tokens, features),
		gorgonia.WithValue(tensor.New(tensor.WithShape(1, tokens, features), tensor.WithBacking(x))))
	h, err := graph.Linear(node, graph.Projection{Path: "up", Weight: upWeight})
	if err != nil {
		return nil, nil, err
	}
	y, err := graph.Linear(h, graph.Projection{Path: "down", Weight: downWeight})
	if err != nil {
		return nil, nil, err
	}
	whole, err := graph.AllReduce("sum", y, ranks)
	if err != nil {
		return nil, nil, err
	}
	part, err := graph.ReduceScatter("scatter", y, 1, ranks)
	if err != nil {
		return nil, nil, err
	}
	gathered, err := graph.AllGather("gather", part, 1, ranks)
	if err != nil {
		return nil, nil, err
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return nil, nil, err
	}
	return whole.Value().Data().([]float32), gathered.Value().Data().([]float32), nil
}

// TestCollectiveInputs: errors of inputs.
func TestCollectiveInputs(t *testing.T) {
	scalar := gorgonia.NewScalar(gorgonia.NewGraph(), tensor.Float32, gorgonia.WithName("s"))
	for _, x := range []*gorgonia.Node{nil, scalar} {
		if _, err := graph.AllReduce("sum", x, nil); !errors.Is(err, op.ErrShape) {
			t.Errorf("%v: %v", x, err)
		}
	}
}
