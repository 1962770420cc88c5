package op_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ulp is the largest relative error of rounding to float32.
const ulp = 1.0 / (1 << 24)

// closeTo fails the test unless got is as close to want as float32 allows: within
// twice the error of the same calculation as plain loops in float32, and a few
// roundings of the largest value.
func closeTo[W tol.Float](t *testing.T, got, plain []float32, want []W) {
	t.Helper()
	tol.CloseAbs(t, got, want, bound(plain, want))
}

func bound[W tol.Float](plain []float32, want []W) float64 {
	largest := 0.0
	for _, w := range want {
		largest = max(largest, math.Abs(float64(w)))
	}
	off, _ := tol.MaxAbs(plain, want)
	return 2*off + 16*ulp*largest
}

// sameBits fails the test unless got is want bit for bit.
func sameBits(t *testing.T, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("[%d] is %v, want exactly %v", i, got[i], want[i])
		}
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// normal returns n normally distributed numbers.
func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// randomOperands returns attention inputs of a shape with the default scale.
func randomOperands(seed uint64, s kernel.Shape) *kernel.Operands {
	r := newRand(seed)
	return &kernel.Operands{
		Shape: s, Scale: float32(1 / math.Sqrt(float64(s.HeadDim))),
		Q: normal(r, s.Batch*s.Heads*s.Len*s.HeadDim),
		K: normal(r, s.Batch*s.KVHeads*s.Len*s.HeadDim),
		V: normal(r, s.Batch*s.KVHeads*s.Len*s.HeadDim),
	}
}

// padLeft marks the first pad positions of each batch row as padding.
func padLeft(a *kernel.Operands, pad ...int) {
	a.Valid = make([]float32, a.Batch*a.Len)
	for b := range a.Batch {
		for i := range a.Len {
			if i >= pad[b] {
				a.Valid[b*a.Len+i] = 1
			}
		}
	}
}

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
