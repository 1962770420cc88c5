package exec

import (
	"testing"

	"github.com/pulsecol/pulsecol/internal/memplan"
)

// TestLayerMemory: graphs of one controller share the memory of their layers, each buffer as
// large as the largest graph needs it, and the transient part of the largest.
func TestLayerMemory(t *testing.T) {
	plan := func(scratch int64, buffers map[string]int64) *Plan {
		b := newBuilder(t)
		o := &fake{name: "layer", gpu: true, plan: func(r *Run) error {
			for _, key := range []string{"keys", "values", "lists"} {
				if bytes, ok := buffers[key]; ok {
					r.OfLayer(key, bytes)
				}
			}
			r.Scratch(scratch, Activations)
			return r.Keep("kept", 8, Activations)
		}}
		b.add(o, b.input("x", 4))
		return b.plan(Options{Modes: []Mode{Dense, Reuse}})
	}
	large := plan(5000, map[string]int64{"keys": 3000, "values": 1})
	small := plan(100, map[string]int64{"keys": 1000, "lists": 600})
	if got, want := large.GPU.Layers, memplan.Round(3000)+memplan.Round(1); got != want || large.GPU.Of(Cache) != want {
		t.Errorf("layers take %d bytes, %d of them caches, want %d", got, large.GPU.Of(Cache), want)
	}
	both := Shared([]*Plan{large, small})
	want := Arena{
		Persistent: 2 * memplan.Round(8), Transient: memplan.Round(5000),
		Layers: memplan.Round(3000) + memplan.Round(1) + memplan.Round(600),
	}
	if both.Persistent != want.Persistent || both.Transient != want.Transient || both.Layers != want.Layers {
		t.Errorf("together %+v, want %+v", both, want)
	}
	if got := both.Of(Activations); got != want.Persistent+want.Transient {
		t.Errorf("%d bytes of activations, want %d", got, want.Persistent+want.Transient)
	}
}

// TestReader: a result knows the operator that reads it, if that is one.
func TestReader(t *testing.T) {
	b := newBuilder(t)
	once, twice, last := &fake{name: "once"}, &fake{name: "twice"}, &fake{name: "last"}
	other := &fake{name: "other"}
	x := b.add(twice, b.add(once, b.input("x", 4)))
	b.add(last, x)
	b.add(other, x)
	b.plan(Options{})
	for f, want := range map[*fake]Planned{once: twice, twice: nil, last: nil} {
		if got := f.at.Reader(); got != want {
			t.Errorf("%v is read by %v, want %v", f, got, want)
		}
	}
}
