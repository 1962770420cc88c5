package op_test

import (
	"fmt"
	"testing"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// qkv returns the operands as tensors: q, k, v and the padding mask, if any.
func qkv(a *kernel.Operands) []*tensor.Dense {
	kv := []int{a.Batch, a.KVHeads, a.Len, a.HeadDim}
	ts := []*tensor.Dense{dense(a.Q, a.Batch, a.Heads, a.Len, a.HeadDim), dense(a.K, kv...), dense(a.V, kv...)}
	if a.Valid != nil {
		ts = append(ts, dense(a.Valid, a.Batch, a.Len))
	}
	return ts
}

// dense returns a tensor around a copy of data.
func dense[E any](data []E, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(append([]E{}, data...)))
}

// input adds an input node that holds t.
func input(g *gorgonia.ExprGraph, name string, t *tensor.Dense) *gorgonia.Node {
	return gorgonia.NewTensor(g, t.Dtype(), t.Dims(), gorgonia.WithShape(t.Shape()...), gorgonia.WithName(name), gorgonia.WithValue(t))
}

// inputs adds an input node for each tensor.
func inputs(g *gorgonia.ExprGraph, ts []*tensor.Dense) []*gorgonia.Node {
	ns := make([]*gorgonia.Node, len(ts))
	for i, t := range ts {
		ns[i] = input(g, fmt.Sprintf("in%d", i), t)
	}
	return ns
}

// must returns v and fails the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// run is the result of one operator on a tape machine.
func run(t testing.TB, o gorgonia.Op, in ...*tensor.Dense) *tensor.Dense {
	t.Helper()
	return must(tryRun(o, in...))(t)
}

func tryRun(o gorgonia.Op, in ...*tensor.Dense) (*tensor.Dense, error) {
	g := gorgonia.NewGraph()
	n, err := op.Apply(o, inputs(g, in)...)
	if err != nil {
		return nil, err
	}
	var out gorgonia.Value
	gorgonia.Read(n, &out)
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return nil, err
	}
	return out.(*tensor.Dense), nil
}

func float32s(t *tensor.Dense) []float32 { return t.Data().([]float32) }
func uint32s(t *tensor.Dense) []uint32   { return t.Data().([]uint32) }

// keySets lists the keys of each row of a bitmap over n keys.
func keySets(bits []uint32, n int) [][]int {
	words := kernel.Words(n)
	sets := make([][]int, len(bits)/words)
	for r := range sets {
		for j := range n {
			if bits[r*words+j/32]>>(j%32)&1 != 0 {
				sets[r] = append(sets[r], j)
			}
		}
	}
	return sets
}
