package exec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/memplan"
	"gorgonia.org/gorgonia"
)

// TestOrder: operators run in the plan's order, each once, in modes that are planned. A run
// may start over.
func TestOrder(t *testing.T) {
	b := newBuilder(t)
	fakes := []*fake{{name: "a"}, {name: "b"}, {name: "c"}}
	n := b.input("x", 4)
	for _, f := range fakes {
		n = b.add(f, n)
	}
	b.plan(Options{Modes: []Mode{Dense, Reuse}})
	start := func(i int, m Mode) error { _, err := fakes[i].at.Start(m); return err }
	for _, c := range []struct {
		order []int
		fails int // index of the first that fails; -1 for none
	}{
		{[]int{0, 1, 2, 0, 1, 2}, -1}, {[]int{0, 2}, 1}, {[]int{0, 1, 1}, 2}, {[]int{0, 1, 0, 1, 2}, -1}, {[]int{0, 1, 2, 1}, 3}, {[]int{0, 0, 2}, 2},
	} {
		for at, i := range c.order {
			err := start(i, []Mode{Dense, Reuse}[at%2])
			if got, want := errors.Is(err, ErrPlan), at == c.fails; got != want {
				t.Errorf("%v: operator %d, run %d: error %v", c.order, i, at, err)
			}
		}
	}
	if err := start(0, Refresh); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), "refresh") {
		t.Errorf("a mode that is not planned: %v", err)
	}
	if _, err := new(Placement).Start(Dense); !errors.Is(err, ErrPlan) {
		t.Errorf("without a plan: %v", err)
	}
}

// TestCursor: a run gets its slots in order, of the kind and size it asks for.
func TestCursor(t *testing.T) {
	b := newBuilder(t)
	f := &fake{name: "f", plan: func(r *Run) error {
		r.Scratch(100, Activations)
		r.Spare(1)
		return resultIfPlanned(r)
	}}
	b.add(&fake{name: "reader"}, b.add(f, b.input("x", 4)))
	b.plan(Options{})
	c, err := f.at.Start(Dense)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		kind  Kind
		bytes int64
	}{{KindResult, 16}, {KindScratch, 101}} {
		if _, err := c.Next(bad.kind, bad.bytes); !errors.Is(err, ErrPlan) {
			t.Errorf("%d bytes of %v: %v", bad.bytes, bad.kind, err)
		}
	}
	for _, want := range []struct {
		kind  Kind
		bytes int64
	}{{KindScratch, 100}, {KindSpare, 1}, {KindResult, 16}} {
		if !c.Is(want.kind) {
			t.Errorf("the next slot is no %v", want.kind)
		}
		if s, err := c.Next(want.kind, want.bytes); err != nil || s.Bytes() != want.bytes || s.Persistent() {
			t.Errorf("%v: %+v, %v", want, s, err)
		}
	}
	if _, err := c.Next(KindScratch, 1); !errors.Is(err, ErrPlan) || c.Is(KindScratch) {
		t.Errorf("after the last slot: %v", err)
	}
}

// TestInPlace: a result takes the memory of an input only if both are planned and nothing
// reads the input later.
func TestInPlace(t *testing.T) {
	for name, c := range map[string]struct {
		build func(b *builder, f *fake) (keep []*gorgonia.Node)
		want  Kind
	}{
		"last reader": {func(b *builder, f *fake) []*gorgonia.Node {
			b.add(&fake{name: "end"}, b.add(f, b.add(&fake{name: "a"}, b.input("x", 4))))
			return nil
		}, KindInPlace},
		"read later": {func(b *builder, f *fake) []*gorgonia.Node {
			a := b.add(&fake{name: "a"}, b.input("x", 4))
			b.add(&fake{name: "end"}, b.add(f, a), a)
			return nil
		}, KindResult},
		"read twice": {func(b *builder, f *fake) []*gorgonia.Node {
			a := b.add(&fake{name: "a"}, b.input("x", 4))
			b.add(&fake{name: "end"}, b.add(f, a, a))
			return nil
		}, KindResult},
		"a graph input": {func(b *builder, f *fake) []*gorgonia.Node {
			b.add(&fake{name: "end"}, b.add(f, b.input("x", 4)))
			return nil
		}, KindResult},
		"kept": {func(b *builder, f *fake) []*gorgonia.Node {
			n := b.add(f, b.add(&fake{name: "a"}, b.input("x", 4)))
			b.add(&fake{name: "end"}, n)
			return []*gorgonia.Node{n}
		}, KindResult},
		"of another device": {func(b *builder, f *fake) []*gorgonia.Node {
			b.add(&fake{name: "end"}, b.add(f, b.add(&fake{name: "a", gpu: true}, b.input("x", 4))))
			return nil
		}, KindResult},
	} {
		t.Run(name, func(t *testing.T) {
			b, f := newBuilder(t), &fake{name: "f", plan: inPlaceIfPossible}
			b.plan(Options{Keep: c.build(b, f)})
			if got := f.kinds(Dense); !slices.Equal(got, []Kind{c.want}) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	b := newBuilder(t)
	a, f := &fake{name: "a"}, &fake{name: "f", plan: inPlaceIfPossible}
	b.add(&fake{name: "end"}, b.add(f, b.add(a, b.input("x", 4))))
	b.plan(Options{})
	if got, want := f.offset(Dense, 0), a.offset(Dense, 0); got != want {
		t.Errorf("in place at %d, the input is at %d", got, want)
	}
}

// TestWhoseResult: the plan places results that only operators of one device read.
func TestWhoseResult(t *testing.T) {
	b := newBuilder(t)
	x := b.input("x", 4)
	cpu, gpu, last, foreign, shared := &fake{name: "cpu"}, &fake{name: "gpu", gpu: true}, &fake{name: "last"}, &fake{name: "foreign"}, &fake{name: "shared"}
	onGPU := b.add(&fake{name: "end", gpu: true}, b.add(gpu, x))
	b.add(last, b.add(cpu, x), onGPU)
	b.must(gorgonia.Tanh(b.add(foreign, x)))
	twice := b.add(shared, x)
	b.add(&fake{name: "reader"}, b.must(gorgonia.ApplyOp(shared, twice))) // the operator is at two nodes
	p := b.plan(Options{})
	for f, want := range map[*fake]bool{cpu: true, gpu: true, last: false, foreign: false, shared: false} {
		if got := f.at.PlannedResult(); got != want {
			t.Errorf("%v: planned %v, want %v", f, got, want)
		}
	}
	if onGPU.Op().(*fake).at.PlannedResult() {
		t.Error("a GPU's result that the host reads is planned")
	}
	if p.Host.Bytes() != memplan.Alignment || p.GPU.Bytes() != memplan.Alignment {
		t.Errorf("%d bytes on the host and %d on the GPU, want one small buffer each", p.Host.Bytes(), p.GPU.Bytes())
	}
	b = newBuilder(t)
	f := &fake{name: "f"}
	b.add(&fake{name: "end"}, b.add(f, b.input("x", 4)))
	if p := b.plan(Options{MachineResults: true}); f.at.PlannedResult() || p.Host.Bytes() != 0 {
		t.Errorf("MachineResults: planned %v, %d bytes", f.at.PlannedResult(), p.Host.Bytes())
	}
}

// TestKept: kept results and keys have one place for all modes, in the persistent part.
func TestKept(t *testing.T) {
	b := newBuilder(t)
	key := "key"
	keep := func(r *Run) error {
		if err := r.Keep(key, 1000, Columns); err != nil {
			return err
		}
		return resultIfPlanned(r)
	}
	first, second := &fake{name: "first", plan: keep}, &fake{name: "second", plan: keep}
	out := b.add(second, b.add(first, b.input("x", 4)))
	p := b.plan(Options{Modes: []Mode{Dense, Refresh, Reuse}, Keep: []*gorgonia.Node{out}})
	if !second.at.KeptResult() || first.at.KeptResult() {
		t.Error("the wrong result is kept")
	}
	at := first.at.slots[Dense][0]
	for _, f := range []*fake{first, second} {
		for m := range modes {
			s := f.at.slots[m][0]
			got, _ := s.Offset()
			want, _ := at.Offset()
			if !s.Persistent() || s.Key() != any(key) || got != want {
				t.Errorf("%v, %v: %+v at %d, want %d", f, Mode(m), s, got, want)
			}
			if r := second.at.slots[m][1]; !r.Persistent() || second.offset(Mode(m), 1) == want {
				t.Errorf("%v: the kept result is at %d", Mode(m), second.offset(Mode(m), 1))
			}
		}
	}
	if want := memplan.Round(1000) + memplan.Round(16); p.Host.Persistent != want || p.Host.Of(Columns) != memplan.Round(1000) {
		t.Errorf("%d persistent bytes, %d of them columns, want %d and %d", p.Host.Persistent, p.Host.Of(Columns), want, memplan.Round(1000))
	}
	b = newBuilder(t)
	sized := func(bytes int64) func(r *Run) error {
		return func(r *Run) error { return r.Keep(key, bytes, Activations) }
	}
	b.add(&fake{name: "b", plan: sized(8)}, b.add(&fake{name: "a", plan: sized(4)}, b.input("x", 4)))
	if _, err := New(b.g, Options{Modes: []Mode{Dense}}); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), "8 bytes for key, before 4") {
		t.Errorf("two sizes of one key: %v", err)
	}
}

// TestHandoff: memory that one operator hands to another is not overwritten between them. It
// becomes the other's result, or ends with Drop.
func TestHandoff(t *testing.T) {
	for _, adopt := range []bool{true, false} {
		b := newBuilder(t)
		x := b.input("x", 64)
		give := &fake{name: "give", plan: func(r *Run) error {
			if err := r.Handoff("y", 256, Activations); err != nil {
				return err
			}
			return resultIfPlanned(r)
		}}
		between := &fake{name: "between"}
		take := &fake{name: "take", plan: func(r *Run) error {
			if adopt {
				r.Adopt("y")
				return nil
			}
			r.Drop("y")
			return resultIfPlanned(r)
		}}
		after := &fake{name: "after"}
		n := b.add(take, b.add(between, b.add(give, x)))
		b.add(&fake{name: "end"}, b.add(after, n), n)
		b.plan(Options{})
		at := give.offset(Dense, 0)
		for what, other := range map[string]int64{"its own result": give.offset(Dense, 1), "a result between": between.offset(Dense, 0)} {
			if other == at {
				t.Errorf("adopt %v: %s is in memory that was handed off", adopt, what)
			}
		}
		if overlaps := after.offset(Dense, 0) == at; overlaps && adopt {
			t.Error("what was adopted is overwritten before its last reader")
		}
		if !adopt && take.offset(Dense, 0) == at {
			t.Error("a result is in memory that is dropped at the same time")
		}
	}
	b := newBuilder(t)
	twice := &fake{name: "twice", plan: func(r *Run) error {
		return errors.Join(r.Handoff("y", 4, Scores), r.Handoff("y", 4, Scores))
	}}
	b.add(twice, b.input("x", 4))
	if _, err := New(b.g, Options{Modes: []Mode{Dense}}); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), "two buffers for y") {
		t.Errorf("two under one key: %v", err)
	}
}

// TestSpare: spare memory exists only where the arena is large enough without it.
func TestSpare(t *testing.T) {
	for _, c := range []struct {
		other, spare int64
		want         bool
	}{{1 << 20, 1 << 16, true}, {1 << 16, 1 << 20, false}} {
		b := newBuilder(t)
		f := &fake{name: "f", plan: func(r *Run) error { r.Spare(c.spare); return nil }}
		large := &fake{name: "large", plan: func(r *Run) error { r.Scratch(c.other, Activations); return nil }}
		b.add(large, b.add(f, b.input("x", 4)))
		p := b.plan(Options{})
		if got := f.offset(Dense, 0) >= 0; got != c.want || p.Host.Transient != c.other {
			t.Errorf("%d bytes and %d of another: %v, in an arena of %d", c.spare, c.other, got, p.Host.Transient)
		}
	}
}

// TestAfter: buffers for the time after the step do not overlap one another, and may overlap
// all buffers of the step.
func TestAfter(t *testing.T) {
	b := newBuilder(t)
	after := func(key string) func(r *Run) error {
		return func(r *Run) error {
			r.Scratch(4096, Activations)
			return r.After(key, 2048)
		}
	}
	f, g := &fake{name: "f", plan: after("a")}, &fake{name: "g", plan: after("b")}
	b.add(g, b.add(f, b.input("x", 4)))
	p := b.plan(Options{})
	if at, other := f.offset(Dense, 1), g.offset(Dense, 1); at == other || p.Host.Transient != 4096 {
		t.Errorf("at %d and %d of %d bytes, want them in the 4096 of the scratch", at, other, p.Host.Transient)
	}
}

// TestAlone: an operator without a plan has its transient memory in one piece, and finds
// memory that it keeps or hands off by its key.
func TestAlone(t *testing.T) {
	given := []any{"value 0", 1}
	f := &fake{name: "f", plan: func(r *Run) error {
		for i, want := range given {
			if note, _, _ := r.Input(i); note != want {
				return fmt.Errorf("input %d is %v", i, note)
			}
		}
		if r.Planned() || r.Arity() != 2 {
			return fmt.Errorf("planned %v, %d inputs", r.Planned(), r.Arity())
		}
		r.Scratch(300, Activations)
		r.Adopt("nothing")
		return errors.Join(r.Keep("k", 8, Columns), r.Handoff("h", 16, Scores), r.After("a", 32))
	}}
	at, transient, err := Alone(f, Refresh, given)
	if err != nil {
		t.Fatal(err)
	}
	if transient != memplan.Round(300) {
		t.Errorf("%d bytes, want those of the scratch", transient)
	}
	c, err := at.Start(Refresh)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		kind  Kind
		bytes int64
		key   any
	}{{KindScratch, 300, nil}, {KindKept, 8, "k"}, {KindHandoff, 16, "h"}, {KindAfter, 32, "a"}} {
		s, err := c.Next(want.kind, want.bytes)
		if err != nil || s.Key() != want.key || s.Persistent() != (want.key != nil) {
			t.Errorf("%v: %+v, %v", want, s, err)
		}
	}
	if _, err := at.Start(Dense); !errors.Is(err, ErrPlan) {
		t.Errorf("another mode: %v", err)
	}
	f.plan = func(*Run) error { return errors.New("cannot") }
	if _, _, err := Alone(f, Dense, nil); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), "f: memory plan: cannot") {
		t.Errorf("an operator that fails: %v", err)
	}
}

// TestPlanMode: a plan has the mode of its attention layers, Dense without any; the
// operators of no step follow it.
func TestPlanMode(t *testing.T) {
	b := newBuilder(t)
	f := &fake{name: "f"}
	clock := &fake{name: "clock", mode: func() (Mode, bool) { return Reuse, true }}
	n := b.add(f, b.input("x", 4))
	if p := b.plan(Options{}); p.Mode() != Dense || ModeOf(f) != Dense {
		t.Errorf("without a layer: %v", p.Mode())
	}
	b.add(clock, n)
	if p := b.plan(Options{Modes: []Mode{Dense, Reuse}}); p.Mode() != Reuse || ModeOf(f) != Reuse || ModeOf(clock) != Reuse {
		t.Errorf("with a layer in a reuse step: %v, %v", p.Mode(), ModeOf(f))
	}
}

// TestPlanErrors: what a plan cannot be made of is an error that says what.
func TestPlanErrors(t *testing.T) {
	g, other := gorgonia.NewGraph(), gorgonia.NewGraph()
	node := func(g *gorgonia.ExprGraph, name string) *gorgonia.Node {
		return gorgonia.NewVector(g, gorgonia.Float32, gorgonia.WithShape(2), gorgonia.WithName(name))
	}
	x, foreign := node(g, "x"), node(other, "y")
	for want, c := range map[string]struct {
		g *gorgonia.ExprGraph
		o Options
	}{
		"the graph is nil":          {nil, Options{}},
		"Mode(7), want dense":       {g, Options{Modes: []Mode{Dense, 7}}},
		"node 1 to keep is nil":     {g, Options{Keep: []*gorgonia.Node{x, nil}}},
		"node 0 to keep is float32": {g, Options{Keep: []*gorgonia.Node{foreign}}},
	} {
		if p, err := New(c.g, c.o); p != nil || !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", p, err, want)
		}
	}
	if _, err := New(g, Options{Modes: []Mode{Dense}, Keep: []*gorgonia.Node{x}}); err != nil {
		t.Error(err)
	}
}
