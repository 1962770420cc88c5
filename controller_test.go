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
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

const (
	denseStep = pulsecol.Dense
	refresh   = pulsecol.Refresh
	reuse     = pulsecol.Reuse
)

var small = kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 40, HeadDim: 4}

// TestModesOfAGeneration checks the mode of each step while SetDense and Invalidate are
// called. The schedule refreshes at 1, 4, 7 and 10 of 10.
func TestModesOfAGeneration(t *testing.T) {
	type do = func(*pulsecol.Controller)
	off := func(c *pulsecol.Controller) { c.SetDense(true) }
	on := func(c *pulsecol.Controller) { c.SetDense(false) }
	drop := func(c *pulsecol.Controller) { c.Invalidate() }
	both := func(a, b do) do { return func(c *pulsecol.Controller) { a(c); b(c) } }
	for _, c := range []struct {
		name   string
		before map[int]do // what happens before a step
		want   []pulsecol.Mode
	}{
		{"undisturbed", nil, []pulsecol.Mode{refresh, reuse, reuse, refresh, reuse, reuse, refresh, reuse, reuse, refresh}},
		{"off for a reuse", map[int]do{2: off, 3: on},
			[]pulsecol.Mode{refresh, denseStep, reuse, refresh, reuse, reuse, refresh, reuse, reuse, refresh}},
		{"off over a refresh", map[int]do{3: off, 6: on}, // step 6 refreshes instead of step 4
			[]pulsecol.Mode{refresh, reuse, denseStep, denseStep, denseStep, refresh, refresh, reuse, reuse, refresh}},
		{"off over a refresh, on at one", map[int]do{4: off, 7: on},
			[]pulsecol.Mode{refresh, reuse, reuse, denseStep, denseStep, denseStep, refresh, reuse, reuse, refresh}},
		{"off from the start", map[int]do{1: off, 3: on},
			[]pulsecol.Mode{denseStep, denseStep, refresh, refresh, reuse, reuse, refresh, reuse, reuse, refresh}},
		{"off twice", map[int]do{2: off, 3: on, 4: off, 5: on},
			[]pulsecol.Mode{refresh, denseStep, reuse, denseStep, refresh, reuse, refresh, reuse, reuse, refresh}},
		{"off to the end", map[int]do{2: off},
			slices.Concat([]pulsecol.Mode{refresh}, slices.Repeat([]pulsecol.Mode{denseStep}, 9))},
		{"off and on between steps", map[int]do{5: both(off, on)},
			[]pulsecol.Mode{refresh, reuse, reuse, refresh, reuse, reuse, refresh, reuse, reuse, refresh}},
		{"invalidated", map[int]do{3: drop, 6: drop},
			[]pulsecol.Mode{refresh, reuse, refresh, refresh, reuse, refresh, refresh, reuse, reuse, refresh}},
		{"invalidated before a scheduled refresh", map[int]do{4: drop},
			[]pulsecol.Mode{refresh, reuse, reuse, refresh, reuse, reuse, refresh, reuse, reuse, refresh}},
		{"invalidated while off", map[int]do{2: both(off, drop), 3: on},
			[]pulsecol.Mode{refresh, denseStep, refresh, refresh, reuse, reuse, refresh, reuse, reuse, refresh}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := attncase.Seeded(1, small)
			r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 4}}, 2, nil)
			r.start(10)
			var got []pulsecol.Mode
			var refreshes []int
			for step := 1; step <= 10; step++ {
				if do := c.before[step]; do != nil {
					do(r.ctl)
				}
				r.step(a, r.ctl.Mode())
				got = append(got, r.ctl.LastMode())
				if r.ctl.LastMode() == refresh {
					refreshes = append(refreshes, step)
				}
				if done, total := r.ctl.Step(); done != step || total != 10 {
					t.Errorf("after step %d: Step is %d of %d", step, done, total)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("modes (-want +got):\n%s", diff)
			}
			stats := r.ctl.Stats()
			if diff := cmp.Diff(refreshes, stats.RefreshSteps); diff != "" {
				t.Errorf("Stats.RefreshSteps (-want +got):\n%s", diff)
			}
			if stats.Steps != 10 || stats.Dense+stats.Refreshes+stats.Reuses != 10 || stats.Refreshes != len(refreshes) {
				t.Errorf("%+v", stats)
			}
			if got := r.ctl.Mode(); got != denseStep {
				t.Errorf("with no step left Mode is %v, want dense", got)
			}
		})
	}
}

// TestDenseStepsUseFreshInputs: with SetDense a step is full attention on its own inputs;
// without it the next step uses the columns of the last refresh.
func TestDenseStepsUseFreshInputs(t *testing.T) {
	a, b := attncase.Seeded(1, small), attncase.Seeded(2, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	r.start(4)
	r.step(a, refresh)
	table := r.table(0)
	r.ctl.SetDense(true)
	checkAttention(t, r.step(b, denseStep), b, nil)
	r.ctl.SetDense(false)
	checkAttention(t, r.step(b, reuse), b, table)
	r.ctl.Invalidate()
	checkAttention(t, r.step(b, refresh), b, nil)
	if slices.Equal(table.Bits, r.table(0).Bits) {
		t.Error("a refresh on other inputs kept every column")
	}
}

// TestStart: a new generation counts from 1 and has no columns of the last one.
func TestStart(t *testing.T) {
	a, b := attncase.Seeded(1, small), attncase.Seeded(2, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: refreshOnce}, 1, nil)
	if got := r.ctl.Mode(); got != denseStep {
		t.Errorf("before Start Mode is %v, want dense", got)
	}
	if err := r.m.Step(); !errors.Is(err, pulsecol.ErrNotStarted) {
		t.Errorf("a step before Start: %v", err)
	}
	for _, n := range []int{0, -1} {
		if err := r.ctl.Start(n); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d steps, want at least 1", n)) {
			t.Errorf("Start(%d): %v", n, err)
		}
	}
	r.start(2)
	r.step(a, refresh)
	r.step(a, reuse)
	if err := r.ctl.Start(-1); err == nil {
		t.Error("Start(-1): no error")
	}
	if done, total := r.ctl.Step(); done != 2 || total != 2 {
		t.Errorf("a refused Start changed the count to %d of %d", done, total)
	}
	for range 2 {
		if err := r.m.Step(); !errors.Is(err, pulsecol.ErrFinished) || !strings.Contains(err.Error(), "2 of 2") {
			t.Errorf("a step after the last: %v", err)
		}
	}

	r.ctl.Invalidate() // of the finished generation
	r.start(3)
	if _, err := r.ctl.Columns(0); !errors.Is(err, pulsecol.ErrStale) {
		t.Errorf("columns of the last generation: %v", err)
	}
	if s := r.ctl.Stats(); s.Steps != 0 || s.Refreshes != 0 || len(s.RefreshSteps) != 0 || s.Layers[0].Refreshes != 1 {
		t.Errorf("after Start: %+v", s)
	}
	r.step(b, refresh)
	checkAttention(t, r.step(b, reuse), b, r.table(0))
	if s := r.ctl.Stats(); s.Layers[0].Refreshes != 2 || s.Layers[0].Churn != 0 {
		t.Errorf("the first refresh of a generation replaces nothing: %+v", s.Layers[0])
	}
	r.start(1) // in the middle of a generation
	r.step(a, refresh)

	r.ctl.SetDense(true)
	for range 2 { // which outlasts a generation
		r.start(2)
		r.step(a, denseStep)
		r.step(a, denseStep)
	}
	r.ctl.SetDense(false)
	r.start(2)
	r.step(a, refresh)
	r.step(a, reuse)
}

// TestStats compares the numbers with counts from tables and modes.
func TestStats(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 100, HeadDim: 8}
	a, b := attncase.Seeded(1, s), attncase.Seeded(2, s)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.7, GroupSize: 16, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}}, 2, nil)
	planned := r.ctl.ColumnBytes(r.g)
	r.start(4)
	r.step(a, refresh)
	first := must(r.ctl.Columns(0))(t)
	r.step(a, reuse)
	r.step(a, reuse)
	r.step(b, refresh)
	second := must(r.ctl.Columns(0))(t)
	stats := r.ctl.Stats()
	if stats.Steps != 4 || stats.Dense != 0 || stats.Refreshes != 2 || stats.Reuses != 2 || !slices.Equal(stats.RefreshSteps, []int{1, 4}) {
		t.Errorf("%+v", stats)
	}
	if len(stats.Layers) != 2 {
		t.Fatalf("%d layers, want 2", len(stats.Layers))
	}
	kept, replaced := 0, 0 // pairs of queries and keys
	for b := range s.Batch {
		for h := range s.Heads {
			for u := range second.Groups() {
				queries := min((u+1)*16, s.Len) - u*16
				before := first.Keys(b, h, u)
				for _, j := range second.Keys(b, h, u) {
					kept += queries
					if !slices.Contains(before, j) {
						replaced += queries
					}
				}
			}
		}
	}
	l := stats.Layers[0]
	if want := float64(kept) / float64(s.Batch*s.Heads*s.Len*s.Len); l.Density != want || want != 0.3 {
		t.Errorf("density %v, want %v and 0.3", l.Density, want)
	}
	if want := float64(replaced) / float64(kept); l.Churn != want || want == 0 {
		t.Errorf("churn %v, want %v", l.Churn, want)
	}
	bytes := 4 * int64(s.Batch*s.Heads*7*4) // 7 groups, 4 words
	if l.Bytes != bytes || planned != 2*bytes {
		t.Errorf("%d bytes a layer, planned %d for both, want %d a layer", l.Bytes, planned, bytes)
	}
	if l.Refreshes != 2 || l.Seconds[refresh] <= 0 || l.Seconds[reuse] <= 0 || l.Seconds[denseStep] != 0 {
		t.Errorf("%+v", l)
	}
	stats.RefreshSteps[0] = 99
	if got := r.ctl.Stats().RefreshSteps[0]; got != 1 {
		t.Error("Stats hands out the controller's own slice")
	}
}

// TestModesAndColumnBytes: modes and bytes of column tables, by configuration.
func TestModesAndColumnBytes(t *testing.T) {
	a := attncase.Seeded(1, kernel.Shape{Batch: 3, Heads: 2, KVHeads: 1, Len: 40, HeadDim: 4}) // 5 groups of 8, 2 words
	for _, c := range []struct {
		cfg   pulsecol.Config
		modes []pulsecol.Mode
		bytes int64
	}{
		{pulsecol.Config{}, []pulsecol.Mode{denseStep}, 0},
		{pulsecol.Config{Sparsity: 0.5, Schedule: pulsecol.AlwaysDense{}}, []pulsecol.Mode{denseStep}, 0},
		{pulsecol.Config{Sparsity: 0.5}, []pulsecol.Mode{denseStep, refresh, reuse}, 4 * 3 * 2 * 5 * 2},
		{pulsecol.Config{Sparsity: 0.5, Pattern: pulsecol.SlidingWindow{}}, []pulsecol.Mode{denseStep, reuse}, 4 * 5 * 2}, // one row for all
	} {
		c.cfg.GroupSize = 8
		r := newRig(t, a, c.cfg, 1, nil)
		if modes, bytes := r.ctl.Modes(), r.ctl.ColumnBytes(r.g); !slices.Equal(modes, c.modes) || bytes != c.bytes {
			t.Errorf("%+v: %v, %d; want %v, %d", c.cfg, modes, bytes, c.modes, c.bytes)
		}
		r.start(1)
		r.let(a)
		if err := r.m.Step(); err != nil {
			t.Fatal(err)
		}
		if got := r.ctl.Stats().Layers[0].Bytes; got != c.bytes {
			t.Errorf("%+v: holds %d bytes, planned %d", c.cfg, got, c.bytes)
		}
	}
}

// TestColumnsErrors: a table that is not there is an error.
func TestColumnsErrors(t *testing.T) {
	r := newRig(t, attncase.Seeded(1, small), pulsecol.Config{Sparsity: 0.5}, 2, nil)
	for _, layer := range []int{-1, 2} {
		if _, err := r.ctl.Columns(layer); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("layer %d, want 0 to 1", layer)) {
			t.Errorf("layer %d: %v", layer, err)
		}
	}
	if _, err := r.ctl.Columns(1); !errors.Is(err, pulsecol.ErrStale) || !strings.Contains(err.Error(), "pulsecol.layers.1.attention") {
		t.Errorf("before a refresh: %v", err)
	}
	if _, err := newController(t, pulsecol.Config{}).Columns(0); err == nil {
		t.Error("a controller without layers: no error")
	}
}

// TestCustomSchedule: the controller follows a schedule that a user defines. A mode that
// does not exist is an error of the step, not a panic.
func TestCustomSchedule(t *testing.T) {
	a := attncase.Seeded(1, small)
	modes := []pulsecol.Mode{reuse, denseStep, reuse, refresh, 3, reuse}
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Schedule: custom(func(step, total int) pulsecol.Mode {
		if total != 6 {
			t.Errorf("the schedule got a total of %d steps, want 6", total)
		}
		return modes[step-1]
	})}, 1, nil)
	r.start(6)
	for _, want := range []pulsecol.Mode{refresh, denseStep, reuse, refresh} { // no reuse without columns
		r.step(a, want)
	}
	for _, bad := range []pulsecol.Mode{3, 200} {
		modes[4] = bad
		err := r.m.Step()
		if !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(err.Error(), fmt.Sprintf("Mode(%d) for step 5 of 6", bad)) {
			t.Errorf("mode %d: %v", bad, err)
		}
	}
	all := modes
	modes = modes[:4] // the schedule panics
	if err := r.m.Step(); !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(err.Error(), "panics in step 5 of 6") || r.ctl.Mode() != denseStep {
		t.Errorf("a schedule that panics: %v, the next mode is %v", err, r.ctl.Mode())
	}
	r.ctl.SetDense(true)
	r.step(a, denseStep) // which may have been a refresh
	r.ctl.SetDense(false)
	modes = all
	r.step(a, refresh) // the refused steps did not count and changed nothing
}

// TestControllerClose: everything after Close is ErrClosed, a second Close is fine.
func TestControllerClose(t *testing.T) {
	a := attncase.Seeded(1, small)
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5}, 1, nil)
	r.start(3)
	r.step(a, refresh)
	for range 2 {
		if err := r.ctl.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	q, k, v, _ := qkv(gorgonia.NewGraph(), a)
	for name, err := range map[string]error{
		"a step":    r.m.RunAll(),
		"Start":     r.ctl.Start(2),
		"Attach":    second(pulsecol.Attach(gorgonia.NewTapeMachine(r.g), r.ctl)),
		"Attention": second(pulsecol.Attention(q, k, v, r.ctl.Layer(1))),
	} {
		if !errors.Is(err, pulsecol.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
	if _, err := r.ctl.Columns(0); !errors.Is(err, pulsecol.ErrStale) {
		t.Errorf("columns: %v, want ErrStale", err)
	}
	if got := r.ctl.Stats().Layers[0].Bytes; got != 0 {
		t.Errorf("a closed controller holds %d bytes", got)
	}
}

// TestLayerIdentity: the same index is the same layer, and layers of two controllers with
// different names stay separate in one graph.
func TestLayerIdentity(t *testing.T) {
	a := attncase.Seeded(1, small)
	one := newController(t, pulsecol.Config{Sparsity: 0.5})
	if one.Layer(2) != one.Layer(2) || one.Layer(1) == one.Layer(2) {
		t.Error("Layer(i) is not a function of i")
	}
	g := gorgonia.NewGraph()
	q, k, v, _ := qkv(g, a)
	first := must(pulsecol.Attention(q, k, v, one.Layer(0)))(t)

	sameName := newController(t, pulsecol.Config{Sparsity: 0.5})
	before := len(g.AllNodes())
	if y, err := pulsecol.Attention(q, k, v, sameName.Layer(0)); !errors.Is(err, op.ErrMerged) {
		t.Errorf("two controllers of one name on the same inputs: %v, %v; want ErrMerged", y, err)
	}
	if got := len(g.AllNodes()); got != before {
		t.Errorf("the refused layer left %d nodes", got-before)
	}
	named := newController(t, pulsecol.Config{Sparsity: 0.5, Name: "second"})
	other := must(pulsecol.Attention(q, k, v, named.Layer(0)))(t)
	sibling := must(pulsecol.Attention(q, k, v, one.Layer(1)))(t)
	if other == first || sibling == first || other == sibling {
		t.Error("layers of different names were merged")
	}
	if got := len(g.AllNodes()); got != before+6 {
		t.Errorf("two more layers added %d nodes, want 6", got-before)
	}
	if got := other.Op().(fmt.Stringer).String(); !strings.Contains(got, "second.layers.0.attention") {
		t.Errorf("the operator is called %s", got)
	}
}

func TestColumnTableKeysOutsideTheTable(t *testing.T) {
	table := pulsecol.ColumnTable{Batch: 1, Heads: 1, Len: 4, Group: 2, Bits: []uint32{0b0011, 0b1100}}
	if got := table.Keys(3, 5, 1); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("a table that serves all rows and heads: %v, want [2 3]", got)
	}
	table = pulsecol.ColumnTable{Batch: 2, Heads: 2, Len: 4, Group: 4, Bits: []uint32{1, 2, 4, 8}}
	for _, at := range [][3]int{{2, 0, 0}, {0, 2, 0}, {0, 0, 1}, {-1, 0, 0}, {0, -1, 0}, {0, 0, -1}} {
		if got := table.Keys(at[0], at[1], at[2]); got != nil {
			t.Errorf("Keys%v = %v, want nil", at, got)
		}
	}
}
