package graph_test

import (
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestUnbindAllNonInputs: under a workspace, the values of a model's nodes may be
// dropped between steps, and Gorgonia may reuse their tensors.
func TestUnbindAllNonInputs(t *testing.T) {
	run := func(drop, planned bool) (out [][]float32) {
		g := gorgonia.NewGraph()
		ctl := newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 2, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}})
		logits := llada.build(t, g, ctl, 3, 6, 1, 2, 3, 6, 6, 6)
		m := must(pulsecol.NewMachine(g, ctl))(t)
		defer m.Close()
		if planned {
			if err := op.NewWorkspace().Plan(g, ctl.Modes(), logits); err != nil {
				t.Fatal(err)
			}
		}
		var others []*tensor.Dense
		unbind := func() {
			if !drop {
				return
			}
			g.UnbindAllNonInputs()
			for range 256 {
				others = append(others, tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{7})))
			}
		}
		unbind()
		if err := ctl.Start(6); err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			unbind()
			ctl.SetDense(i == 3)
			if err := m.RunAll(); err != nil {
				t.Fatal(err)
			}
			out = append(out, slices.Clone(logits.Value().Data().([]float32)))
			if i%2 == 0 {
				unbind() // before Reset
			}
			m.Reset()
		}
		for _, o := range others {
			if o.Dtype() != tensor.Float64 || o.Float64s()[0] != 7 {
				t.Fatalf("a tensor made afterwards became %v of %v", o.Shape(), o.Dtype())
			}
		}
		return out
	}
	for _, planned := range []bool{false, true} {
		want, got := run(false, planned), run(true, planned)
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("workspace %v, step %d: %v, want %v", planned, i+1, got[i], want[i])
			}
		}
	}
}
