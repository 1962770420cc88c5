package op

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// stack is a transformer of some blocks built from the operators of this package.
type stack struct {
	g      *gorgonia.ExprGraph
	x      *gorgonia.Node
	out    *gorgonia.Node // [B*N, V] logits
	vm     gorgonia.VM
	step   exec.Step
	states []*exec.State
}

type stackShape struct{ blocks, batch, n, heads, kvHeads, dim, hidden, group int }

// newStack builds and compiles a stack. wrap is applied to each operator, and plan is called
// before compiling.
func newStack(t testing.TB, s stackShape, wrap func(planned) gorgonia.Op, plan func(*stack)) *stack {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	vector := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64() / 2)
		}
		return v
	}
	matrix := func(rows, cols int) Weight {
		w, err := NewWeightFloat32(rows, cols, vector(rows*cols))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	add := func(o gorgonia.Op, err error, in ...*gorgonia.Node) *gorgonia.Node {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		n, err := Apply(wrap(o.(planned)), in...)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	st := &stack{g: gorgonia.NewGraph()}
	features := s.heads * s.dim
	st.x = gorgonia.NewTensor(st.g, tensor.Float32, 3, gorgonia.WithShape(s.batch, s.n, features), gorgonia.WithName("x"))
	at := make([]int32, s.batch*s.n)
	for i := range at {
		at[i] = int32(i % s.n)
	}
	positions := gorgonia.NewMatrix(st.g, tensor.Int32, gorgonia.WithShape(s.batch, s.n), gorgonia.WithName("positions"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(s.batch, s.n), tensor.WithBacking(at))))
	rows := make([]int32, s.batch*s.n)
	for i := range rows {
		rows[i] = int32(i)
	}
	selected := gorgonia.NewVector(st.g, tensor.Int32, gorgonia.WithShape(len(rows)), gorgonia.WithName("rows"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(len(rows)), tensor.WithBacking(rows))))

	projection := func(rows, cols int) Projection { return Projection{Weight: matrix(rows, cols)} }
	x := st.x
	for i := range s.blocks {
		path := func(name string) string { return fmt.Sprintf("%d.%s", i, name) }
		state := exec.NewState(path("attention"), &st.step)
		st.states = append(st.states, state)
		p := AttentionParams{Group: s.group, Selection: Selection{Sparsity: 0.6}}.In(state)
		norm := add(NewRMSNorm(path("norm1"), vector(features), 1e-5), nil, x)
		linear, err := NewLinear(path("qkv"), projection(features, features), projection(s.kvHeads*s.dim, features), projection(s.kvHeads*s.dim, features))
		qkv := add(linear, err, norm)
		rope := func(name string, first, count int) *gorgonia.Node {
			o, err := NewRoPE(path(name+".rope"), Heads{First: first, Count: count, Dim: s.dim}, 1e4)
			return add(o, err, qkv, positions)
		}
		q, k := rope("q", 0, s.heads), rope("k", s.heads, s.kvHeads)
		split, err := NewSplitHeads(path("v.heads"), Heads{First: s.heads + s.kvHeads, Count: s.kvHeads, Dim: s.dim})
		v := add(split, err, qkv)
		collect, err := NewScoreCollect(path("attention"), p)
		scores := add(collect, err, q, k, v)
		topK, err := NewGroupTopK(path("attention"), s.n, p)
		columns := add(topK, err, scores)
		attend, err := NewColumnSparseAttn(path("attention"), p)
		a := add(NewMergeHeads(path("merge")), nil, add(attend, err, q, k, v, columns))
		out, err := NewLinear(path("out"), projection(features, features))
		x = add(NewAdd(path("residual1")), nil, x, add(out, err, a))
		norm = add(NewRMSNorm(path("norm2"), vector(features), 1e-5), nil, x)
		act, err := NewSwiGLU(path("act"), projection(s.hidden, features), projection(s.hidden, features))
		h := add(act, err, norm)
		down, err := NewAddLinear(path("down"), projection(features, s.hidden))
		x = add(down, err, h, x)
	}
	// One operator reads x twice, and another after it.
	x = add(NewAdd("thrice"), nil, add(NewAdd("twice"), nil, x, x), x)
	st.out = add(NewLMHead("head", matrix(5, features)), nil, add(NewGatherRows("rows"), nil, x, selected), selected)
	plan(st)
	if err := Check(st.g); err != nil {
		t.Fatal(err)
	}
	st.vm = gorgonia.NewTapeMachine(st.g)
	t.Cleanup(func() { st.vm.Close() })
	return st
}

// run does one step and returns a copy of the logits.
func (st *stack) run(t *testing.T, m Mode, x []float32) []float32 {
	t.Helper()
	if err := gorgonia.Let(st.x, wrap(slices.Clone(x), st.x.Shape()...)); err != nil {
		t.Fatal(err)
	}
	st.step.Begin(context.Background(), m)
	err := st.vm.RunAll()
	st.step.End()
	if err != nil {
		t.Fatal(err)
	}
	out := slices.Clone(st.out.Value().Data().([]float32))
	st.vm.Reset()
	return out
}

// plan plans the stack's graph with its logits kept.
func (st *stack) plan(t testing.TB, ws *Workspace) {
	t.Helper()
	if err := ws.Plan(st.g, allModes, st.out); err != nil {
		t.Fatal(err)
	}
}

func inputSize(s stackShape) int { return s.batch * s.n * s.heads * s.dim }
