package op

import (
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/chewxy/hm"
	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestPlanAmongGorgoniasOperators: a graph may have operators of Gorgonia that contain
// slices, and so cannot be keys of maps, before, between and after those of this package.
// Its results equal those without a workspace.
func TestPlanAmongGorgoniasOperators(t *testing.T) {
	shape := tensor.Shape{1, 4, 4}
	column := func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Reshape(x, tensor.Shape{1, 4, 4, 1}) }
	for name, foreign := range map[string]func(x *gorgonia.Node) (*gorgonia.Node, error){
		"Reshape": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			x, err := column(x)
			if err != nil {
				return nil, err
			}
			return gorgonia.Reshape(x, shape)
		},
		"Transpose": func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Transpose(x, 0, 2, 1) },
		"Sum": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			x, err := column(x)
			if err != nil {
				return nil, err
			}
			return gorgonia.Sum(x, 3)
		},
		"Mean": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			x, err := column(x)
			if err != nil {
				return nil, err
			}
			return gorgonia.Mean(x, 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(ws *Workspace) (out [][]float32) {
				g := gorgonia.NewGraph()
				x := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(shape...), gorgonia.WithName("x"))
				var step exec.Step
				add := func(n *gorgonia.Node, err error) *gorgonia.Node {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
					return n
				}
				y := add(foreign(x))
				y = add(Apply(NewAdd("first"), y, y))
				y = add(Apply(NewAdd("second"), y, y))
				y = add(foreign(y))
				y = add(Apply(NewAdd("third"), y, x))
				y = add(Apply(NewAdd("fourth"), y, y))
				y = add(foreign(y))
				var v gorgonia.Value
				gorgonia.Read(y, &v)
				if ws != nil {
					add(nil, ws.Plan(g, []Mode{Dense}))
				}
				step.Bind(g)
				if err := Check(g); err != nil {
					t.Fatal(err)
				}
				vm := gorgonia.NewTapeMachine(g)
				defer vm.Close()
				for i := range 3 {
					data := make([]float32, 16)
					for j := range data {
						data[j] = float32((i + 1) * j)
					}
					if err := gorgonia.Let(x, wrap(data, shape...)); err != nil {
						t.Fatal(err)
					}
					if err := vm.RunAll(); err != nil {
						t.Fatal(err)
					}
					vm.Reset()
					out = append(out, slices.Clone(v.Data().([]float32)))
				}
				return out
			}
			ws := NewWorkspace()
			want, got := run(nil), run(ws)
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("run %d: %v, want %v", i+1, got[i], want[i])
				}
			}
			if name != "Transpose" && !slices.Equal(want[0], []float32{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150}) {
				t.Errorf("2(4x+x) is %v", want[0])
			}
			if ws.Bytes() == 0 {
				t.Error("the workspace holds nothing")
			}
		})
	}
}

// incomparable is an operator of a type on which == panics.
type incomparable struct{ axes []int }

func (incomparable) Arity() int { return 1 }
func (incomparable) Type() hm.Type {
	a := hm.TypeVariable('a')
	return hm.NewFnType(a, a)
}
func (incomparable) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape).Clone(), nil
}
func (incomparable) Do(in ...gorgonia.Value) (gorgonia.Value, error) { return in[0], nil }
func (incomparable) ReturnsPtr() bool                                { return true }
func (incomparable) CallsExtern() bool                               { return false }
func (incomparable) OverwritesInput() int                            { return -1 }
func (o incomparable) WriteHash(h hash.Hash)                         { fmt.Fprint(h, "incomparable", o.axes) }
func (o incomparable) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}
func (incomparable) String() string { return "incomparable" }

// TestApplyIncomparable: Apply takes any operator, as gorgonia.ApplyOp does.
func TestApplyIncomparable(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(1, 1, 2), gorgonia.WithName("x"))
	for range 2 {
		if _, err := Apply(incomparable{axes: []int{1}}, x); err != nil {
			t.Error(err)
		}
	}
}

// TestKeptResultAfterUnbind: a kept result is a *tensor.Dense, as values of nodes are,
// and another one after Gorgonia took back the first.
func TestKeptResultAfterUnbind(t *testing.T) {
	s := stackShape{blocks: 2, batch: 1, n: 6, heads: 2, kvHeads: 1, dim: 4, hidden: 8, group: 2}
	ws := NewWorkspace()
	st := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(st *stack) { st.plan(t, ws) })
	calm := newStack(t, s, func(o planned) gorgonia.Op { return o }, func(*stack) {})
	x := make([]float32, inputSize(s))
	var others []*tensor.Dense
	for i, m := range []Mode{Refresh, Reuse, Dense, Reuse, Refresh} {
		x[i] = float32(i + 1)
		if got, want := st.run(t, m, x), calm.run(t, m, x); !slices.Equal(got, want) {
			t.Errorf("step %d: %v, want %v", i+1, got, want)
		}
		if _, ok := st.out.Value().(*tensor.Dense); !ok {
			t.Errorf("the kept result is a %T", st.out.Value())
		}
		st.g.UnbindAllNonInputs()
		for range 128 {
			others = append(others, tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{7, 8})))
		}
	}
	for _, o := range others {
		if !slices.Equal(o.Float32s(), []float32{7, 8}) {
			t.Fatalf("a tensor made afterwards became %v", o)
		}
	}
}
