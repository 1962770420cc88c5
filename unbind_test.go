package pulsecol_test

import (
	"fmt"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/tol"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// unbind calls UnbindAllNonInputs and allocates tensors from the memory that Gorgonia
// reclaimed.
func unbind(g *gorgonia.ExprGraph) (others []*tensor.Dense) {
	g.UnbindAllNonInputs()
	for range 256 {
		others = append(others, tensor.New(tensor.WithShape(3), tensor.WithBacking([]uint64{1, 2, 3})))
	}
	return others
}

// TestUnbindAllNonInputs: the values of all nodes may be dropped at any point between
// steps. Later steps give the results of an undisturbed run, and do not write to tensors
// that are made of reclaimed memory.
func TestUnbindAllNonInputs(t *testing.T) {
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}} // 1, 4 of 4
	for _, planned := range []bool{false, true} {
		for _, off := range []bool{false, true} { // dense steps
			t.Run(fmt.Sprintf("workspace=%v-dense=%v", planned, off), func(t *testing.T) {
				a := attncase.Seeded(1, small)
				cfg, modes := cfg, []pulsecol.Mode{refresh, reuse, reuse, refresh}
				if off {
					cfg.Schedule, modes = pulsecol.AlwaysDense{}, []pulsecol.Mode{denseStep, denseStep, denseStep, denseStep}
				}
				calm, r := newRig(t, a, cfg, 3, nil), newRig(t, a, cfg, 3, nil)
				if planned {
					r.plan()
				}
				var others []*tensor.Dense
				drop := func() { others = append(others, unbind(r.g)...) }
				for range 2 {
					drop() // before Start
					calm.start(len(modes))
					r.start(len(modes))
					drop() // after it
					for i, mode := range modes {
						a := attncase.Seeded(uint64(i), small)
						want := calm.step(a, mode)
						tol.SameBits(t, fmt.Sprint("step ", i+1), r.step(a, mode), want)
						drop() // after Reset
					}
					// Between RunAll and Reset.
					calm.start(len(modes))
					r.start(len(modes))
					for i := range 2 {
						want := calm.step(a, modes[i])
						r.let(a)
						if err := r.m.RunAll(); err != nil {
							t.Fatal(err)
						}
						drop()
						r.m.Reset()
						tol.SameBits(t, fmt.Sprint("step ", i+1, " without Reset"), r.values(), want)
					}
				}
				for _, o := range others {
					if o.Dtype() != tensor.Uint64 || o.Shape()[0] != 3 || o.Uint64s()[2] != 3 {
						t.Fatalf("a tensor made afterwards became %v of %v", o.Shape(), o.Dtype())
					}
				}
			})
		}
	}
}
