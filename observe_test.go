package pulsecol_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
)

// watcher is an observer that copies its observations.
type watcher struct{ seen []pulsecol.Observation }

func (w *watcher) Observe(o pulsecol.Observation) {
	if o.Columns != nil {
		c := *o.Columns
		c.Bits = slices.Clone(c.Bits)
		o.Columns = &c
	}
	if o.BlockColumns != nil {
		c := *o.BlockColumns
		c.Bits = slices.Clone(c.Bits)
		o.BlockColumns = &c
	}
	o.Q, o.K, o.Valid = slices.Clone(o.Q), slices.Clone(o.K), slices.Clone(o.Valid)
	w.seen = append(w.seen, o)
}

// TestObserve: in every mode each layer reports its own inputs and its column table
// of that step, with padding, grouped queries and a short last group.
func TestObserve(t *testing.T) {
	for _, s := range shapes() {
		for _, padded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v padded %t", s, padded), func(t *testing.T) {
				a, b := attncase.Seeded(1, s.Shape), attncase.Seeded(2, s.Shape)
				if padded {
					attncase.PadLeft(a, slices.Repeat([]int{s.Len / 2}, s.Batch)...)
					b.Valid = a.Valid
				}
				const layers, total = 2, 5
				var w watcher
				cfg := pulsecol.Config{Sparsity: s.Sparsity, GroupSize: s.Group, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}, Observer: &w}
				r := newRig(t, a, cfg, layers, nil)
				r.start(total)
				for step, c := range []struct {
					mode pulsecol.Mode
					in   *kernel.Operands
				}{{pulsecol.Dense, a}, {pulsecol.Refresh, a}, {pulsecol.Reuse, b}, {pulsecol.Dense, b}, {pulsecol.Refresh, b}} {
					r.ctl.SetDense(c.mode == pulsecol.Dense)
					w.seen = nil
					r.step(c.in, c.mode)
					if len(w.seen) != layers {
						t.Fatalf("step %d: %d observations, want %d", step+1, len(w.seen), layers)
					}
					for i, o := range w.seen {
						if o.Layer != i || o.Step != step+1 || o.Total != total || o.Mode != c.mode {
							t.Errorf("step %d, layer %d: observed as layer %d, step %d of %d, %v", step+1, i, o.Layer, o.Step, o.Total, o.Mode)
						}
						if got := (kernel.Shape{Batch: o.Batch, Heads: o.Heads, KVHeads: o.KVHeads, Len: o.Len, HeadDim: o.HeadDim}); got != s.Shape {
							t.Errorf("shape %+v, want %+v", got, s.Shape)
						}
						if o.Scale != float64(a.Scale) || !slices.Equal(o.Valid, c.in.Valid) {
							t.Errorf("scale %v and mask %v, want %v and %v", o.Scale, o.Valid, a.Scale, c.in.Valid)
						}
						if i == 0 {
							tol.SameBits(t, "queries", o.Q, c.in.Q)
						}
						tol.SameBits(t, "keys", o.K, c.in.K)
						if step == 0 {
							if o.Columns != nil {
								t.Errorf("columns before the first refresh: %+v", o.Columns)
							}
							continue
						}
						want := must(r.ctl.Columns(i))(t)
						if diff := cmp.Diff(want, o.Columns); diff != "" {
							t.Errorf("step %d, layer %d: columns (-want +got):\n%s", step+1, i, diff)
						}
					}
				}
			})
		}
	}
}

// TestObserveQueriesOfTheLayer: a layer reports its own queries, here the output of the
// previous layer.
func TestObserveQueriesOfTheLayer(t *testing.T) {
	a := attncase.Seeded(1, small)
	var w watcher
	r := newRig(t, a, pulsecol.Config{Observer: &w}, 2, nil)
	r.start(1)
	r.step(a, pulsecol.Dense)
	one := newRig(t, a, pulsecol.Config{}, 1, nil)
	one.start(1)
	tol.SameBits(t, "queries of layer 1", w.seen[1].Q, one.step(a, pulsecol.Dense))
}

// moody is an observer that panics while it is angry.
type moody struct{ angry bool }

func (m *moody) Observe(pulsecol.Observation) {
	if m.angry {
		panic("not now")
	}
}

// TestObserverPanics: the step fails and does not count; the next one runs.
func TestObserverPanics(t *testing.T) {
	a := attncase.Seeded(1, small)
	o := moody{angry: true}
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, Observer: &o}, 1, nil)
	r.start(2)
	r.let(a)
	if err := r.m.Step(); !errors.Is(err, op.ErrInternal) || !strings.Contains(err.Error(), "not now") {
		t.Errorf("got %v", err)
	}
	o.angry = false
	r.step(a, pulsecol.Refresh)
	if done, _ := r.ctl.Step(); done != 1 {
		t.Errorf("%d steps are done, want 1", done)
	}
}
