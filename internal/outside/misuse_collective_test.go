package outside_test

import (
	"errors"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// falseRanks is a group of the caller whose collectives do nothing but return an error.
type falseRanks struct {
	rank, size int
	err        error
}

func (r *falseRanks) Rank() int                                        { return r.rank }
func (r *falseRanks) Size() int                                        { return r.size }
func (r *falseRanks) ID() (id [128]byte)                               { return id }
func (r *falseRanks) AllGather(string, []float32, []float32) error     { return r.err }
func (r *falseRanks) AllReduce(string, []float32) error                { return r.err }
func (r *falseRanks) ReduceScatter(string, []float32, []float32) error { return r.err }

// slicedRanks is a group that cannot be compared.
type slicedRanks struct {
	falseRanks *falseRanks
	names      []string
}

func (r slicedRanks) Rank() int                                        { return r.falseRanks.rank }
func (r slicedRanks) Size() int                                        { return r.falseRanks.size }
func (r slicedRanks) ID() (id [128]byte)                               { return id }
func (r slicedRanks) AllGather(string, []float32, []float32) error     { return nil }
func (r slicedRanks) AllReduce(string, []float32) error                { return nil }
func (r slicedRanks) ReduceScatter(string, []float32, []float32) error { return nil }

// badRanks are groups that there cannot be.
func badRanks() map[string]op.Ranks {
	bad := map[string]op.Ranks{
		"a nil pointer":      (*falseRanks)(nil),
		"rank 2 of 2":        &falseRanks{rank: 2, size: 2},
		"rank -1 of 2":       &falseRanks{rank: -1, size: 2},
		"cannot be compared": slicedRanks{falseRanks: &falseRanks{size: 2}},
		"nil in a group":     slicedRanks{},
	}
	for _, size := range numbers {
		if size < 1 {
			bad[fmt.Sprint(size, " ranks")] = &falseRanks{size: size}
		}
	}
	return bad
}

// errLost is the error of a group.
var errLost = errors.New("rank 1 is lost")

// collectives makes collectives of groups, dimensions and axes that there cannot be. Those
// without an axis ignore it.
func collectives(of func(path string, dims, axis int, ranks op.Ranks) (gorgonia.Op, error), hasAxis bool) func(*misuse) {
	return func(m *misuse) {
		for name, ranks := range badRanks() {
			m.fails(name, func() error { return second(of("c", 2, 0, ranks)) }, op.ErrValue)
		}
		for _, x := range append(numbers, 5) {
			m.fails(fmt.Sprint(x, " dimensions"), func() error { return second(of("c", x, 0, nil)) }, op.ErrValue)
			if x != 0 && hasAxis {
				m.fails(fmt.Sprint("axis ", x), func() error { return second(of("c", 2, x, nil)) }, op.ErrValue)
			}
		}
		if hasAxis {
			m.fails("axis 2 of 2", func() error { return second(of("c", 2, 2, nil)) }, op.ErrValue)
		}
		lost := &falseRanks{size: 2, err: errLost}
		for _, ranks := range []op.Ranks{nil, lost} {
			g := gorgonia.NewGraph()
			m.refuses(must(of("c", 2, 1, ranks))(m), []int{0}, floatInput(g, "x", 2, 4))
		}
		for axis := range 2 { // parts that are contiguous, and that are not
			m.fails("a lost rank", func() error { return second(must(of("c", 2, axis, lost))(m).Do(newTensor(make([]float32, 8), 2, 4))) }, errLost)
		}
		m.fails("another group under the same path", func() error {
			x := floatInput(gorgonia.NewGraph(), "x", 2, 4)
			m.works("a group", func() error { return second(op.Apply(must(of("c", 2, 0, lost))(m), x)) })
			return second(op.Apply(must(of("c", 2, 0, &falseRanks{size: 2}))(m), x))
		}, op.ErrMerged)
	}
}

// builtCollectives gives a builder wrong nodes, groups and axes.
func builtCollectives(build func(x *gorgonia.Node, axis int, ranks op.Ranks) (*gorgonia.Node, error), hasAxis bool) func(*misuse) {
	return func(m *misuse) {
		g := gorgonia.NewGraph()
		x := floatInput(g, "x", 2, 4)
		for name, n := range nodes(g, x) {
			switch name {
			case "another graph", "another size", "another rank", "a vector": // are as good
				m.works(name, func() error { return second(build(n, 0, nil)) })
			default:
				m.fails("x is "+name, func() error { return second(build(n, 0, nil)) }, op.ErrShape)
			}
		}
		m.fails("five dimensions", func() error { return second(build(floatInput(g, "five", 1, 1, 1, 1, 1), 0, nil)) }, op.ErrValue)
		for name, ranks := range badRanks() {
			m.fails(name, func() error { return second(build(floatInput(gorgonia.NewGraph(), "x", 2, 4), 0, ranks)) }, op.ErrValue)
		}
		for _, axis := range []int{-1, 2, math.MinInt, math.MaxInt} {
			if hasAxis {
				m.fails(fmt.Sprint("axis ", axis), func() error { return second(build(x, axis, nil)) }, op.ErrValue)
			}
		}
		m.works("right", func() error {
			return second(build(floatInput(gorgonia.NewGraph(), "x", 2, 4), 0, &falseRanks{size: 2}))
		})
	}
}

var _ = misuses(map[string]func(*misuse){
	"op.NewAllGather": func(m *misuse) {
		collectives(op.NewAllGather, true)(m)
		for _, size := range []int{math.MaxInt, math.MaxInt / 8, 1 << 61} {
			m.fails(fmt.Sprint(size, " ranks"), func() error {
				return second(op.Apply(must(op.NewAllGather("g", 2, 1, &falseRanks{size: size}))(m), floatInput(gorgonia.NewGraph(), "x", 2, 4)))
			}, op.ErrShape)
		}
	},
	"op.NewAllReduce": collectives(func(path string, dims, _ int, ranks op.Ranks) (gorgonia.Op, error) {
		return op.NewAllReduce(path, dims, ranks)
	}, false),
	"op.NewReduceScatter": func(m *misuse) {
		collectives(op.NewReduceScatter, true)(m)
		for _, size := range []int{3, 5, math.MaxInt} {
			m.fails(fmt.Sprint(size, " ranks"), func() error {
				return second(op.Apply(must(op.NewReduceScatter("s", 2, 1, &falseRanks{size: size}))(m), floatInput(gorgonia.NewGraph(), "x", 2, 4)))
			}, op.ErrShape)
		}
	},
	"graph.AllGather": builtCollectives(func(x *gorgonia.Node, axis int, ranks op.Ranks) (*gorgonia.Node, error) {
		return graph.AllGather("g", x, axis, ranks)
	}, true),
	"graph.AllReduce": builtCollectives(func(x *gorgonia.Node, _ int, ranks op.Ranks) (*gorgonia.Node, error) {
		return graph.AllReduce("r", x, ranks)
	}, false),
	"graph.ReduceScatter": builtCollectives(func(x *gorgonia.Node, axis int, ranks op.Ranks) (*gorgonia.Node, error) {
		return graph.ReduceScatter("s", x, axis, ranks)
	}, true),
})
