package exec

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// TestLayerModes: what a layer does in each mode of a step, in runs, in plans and alone. The
// slots of a plan are those of the step's mode.
func TestLayerModes(t *testing.T) {
	for _, c := range []struct {
		name                  string
		refreshes, unchanging bool
		want                  []Mode // in dense, refresh and reuse steps
	}{
		{"refreshes", true, false, []Mode{Dense, Refresh, Reuse}},
		{"unchanging", false, true, []Mode{Dense, Reuse, Reuse}},
		{"dense", false, false, []Mode{Dense, Dense, Dense}},
	} {
		var step Step
		s := NewState(c.name, &step)
		if got := s.ModeIn(Refresh); got != Refresh {
			t.Errorf("%s, before Follow: %v", c.name, got)
		}
		s.Follow(c.refreshes, c.unchanging)
		var planned []Mode
		f := &fake{name: "f", layer: s, plan: func(r *Run) error {
			planned = append(planned, r.Mode)
			r.Scratch(int64(1000*(1+int(r.Mode))), Activations)
			return r.After("a", 64)
		}}
		b := newBuilder(t)
		b.add(f, b.input("x", 4))
		steps := []Mode{Dense, Refresh, Reuse}
		b.plan(Options{Modes: steps})
		if !slices.Equal(planned, c.want) {
			t.Errorf("%s is planned in %v, want %v", c.name, planned, c.want)
		}
		for i, mode := range steps {
			step.Begin(context.Background(), mode)
			got, err := s.Begin(f, CollectScores)
			step.End()
			if err != nil || got != c.want[i] {
				t.Errorf("%s in a %v step: %v, %v; want %v", c.name, mode, got, err, c.want[i])
			}
			f.at.plan.ran = 0
			cursor, err := f.at.Start(mode)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cursor.Next(KindScratch, int64(1000*(1+int(c.want[i])))); err != nil {
				t.Errorf("%s in a %v step: %v", c.name, mode, err)
			}
			if slot, err := cursor.Next(KindAfter, 64); err != nil {
				t.Errorf("%s in a %v step: %v", c.name, mode, err)
			} else if _, ok := slot.Offset(); !ok {
				t.Errorf("%s in a %v step has no memory for the time after it", c.name, mode)
			}
			planned = nil
			if _, _, err := Alone(f, mode, nil); err != nil || !slices.Equal(planned, c.want[i:i+1]) {
				t.Errorf("%s alone in a %v step: %v, %v", c.name, mode, planned, err)
			}
		}
	}
	if got := (*State)(nil).ModeIn(Refresh); got != Refresh {
		t.Errorf("without a layer: %v", got)
	}
	if got := fmt.Sprint((*State)(nil).Selected(Selection{Sparsity: 0.5}).Sparsity); got != "0.5" {
		t.Errorf("without a layer the sparsity is %s", got)
	}
}
