package outside_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// counts is what a run has compared.
type counts struct {
	drawn         map[string]int // generations by pattern, schedule and kind of graph
	steps, tables int
	values, loose int // values with a bound above 1 % of the largest of their kind
}

// TestGenerations draws generations and holds every step to the reference. A failure
// names its seed: repeat it with -run 'TestGenerations/seed=N$' and, for a seed of a whole
// run, PULSECOL_OUTSIDE.
func TestGenerations(t *testing.T) {
	n := wholeRun()
	if n == 0 {
		n = cases(1600)
	}
	c := &counts{drawn: map[string]int{}}
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { generate(t, uint64(seed), c) })
	}
	t.Logf("%d generations, %d steps, %d column tables, %d values, of these %d with a bound above 1 %%", n, c.steps, c.tables, c.values, c.loose)
	for _, name := range slices.Sorted(maps.Keys(c.drawn)) {
		t.Logf("%5d %s", c.drawn[name], name)
	}
	if 5*c.loose > c.values {
		t.Errorf("%d of %d values have a bound above 1 %%", c.loose, c.values)
	}
}

// run is a generation in progress and what it should be.
type run struct {
	*model
	m       *pulsecol.Machine
	pattern pattern
	course  course
	total   int
	counts  *counts

	tables   []*pulsecol.ColumnTable // by layer, nil before the first refresh
	replaced []bool                  // by layer: the latest refresh had a table before it
	old      []*pulsecol.ColumnTable // that table
	modes    [3]int
	at       []int   // steps that refreshed
	every    int     // refreshes since the controller was made
	base     []array // by layer, the share kept in the first reuse
	drift    array   // lost share by batch row and group, of the latest reuse
}

func generate(t *testing.T, seed uint64, c *counts) {
	r := rand.New(rand.NewPCG(seed, 0))
	s, layers, total := drawShape(r), pick(r, 1, 1, 2, 3), 1+r.IntN(8)
	if r.IntN(8) == 0 {
		s.batch, s.heads = 1, s.kvHeads*7
		s.n = 1 + r.IntN(12)
	}
	p, sched := drawPattern(t, r, s, layers), drawSchedule(r, total)
	cfg := pulsecol.Config{
		Sparsity: drawSparsity(r, s.n), GroupSize: p.group, Pattern: p.Pattern, Schedule: sched.Schedule,
		Scale: pick(r, 0, 0, 0.5, 1, 3), Threads: r.IntN(4), Device: pulsecol.CPU,
	}
	if _, fixed := p.Pattern.(pulsecol.Fixed); fixed && sched.adaptive != nil {
		if _, err := pulsecol.NewController(cfg); !errors.Is(err, pulsecol.ErrConfig) {
			t.Fatalf("fixed columns and an adaptive schedule: %v", err)
		}
		cfg.Schedule, sched = pulsecol.Always{}, schedule{pulsecol.Always{}, func(int, int) pulsecol.Mode { return pulsecol.Refresh }, nil}
	}
	ctl := must(pulsecol.NewController(cfg))(t)
	m := drawModel(t, r, ctl, s, layers)
	g := &run{
		model: m, pattern: p, total: total, counts: c,
		course: course{schedule: sched, never: cfg.Sparsity == 0, fixed: p.fixed, stale: true},
		tables: make([]*pulsecol.ColumnTable, layers), old: make([]*pulsecol.ColumnTable, layers), replaced: make([]bool, layers),
	}
	c.drawn[fmt.Sprintf("pattern %T", p.Pattern)]++
	c.drawn[fmt.Sprintf("schedule %T", sched.Schedule)]++
	c.drawn["graph "+m.kind]++
	if m.mask != nil {
		c.drawn["padded"]++
	}
	defer func() {
		if t.Failed() {
			t.Logf("%s, %d layers, %d steps, %s, padded %v, %+v", m.shape, layers, total, m.kind, m.mask != nil, cfg)
		}
	}()
	if r.IntN(3) == 0 {
		c.drawn["workspace"]++
		if err := op.NewWorkspace().Plan(m.g, ctl.Modes()); err != nil {
			t.Fatal(err)
		}
	}
	if r.IntN(4) == 0 {
		c.drawn["attached"]++
		g.m = must(pulsecol.Attach(gorgonia.NewTapeMachine(m.g), ctl))(t)
	} else {
		g.m = must(pulsecol.NewMachine(m.g, ctl))(t)
	}
	defer g.m.Close()
	for round := range pick(r, 1, 1, 2) {
		g.start(t)
		for range total - round*r.IntN(total) { // the second may be broken off
			if g.step(t); t.Failed() {
				return
			}
		}
	}
}

func (g *run) start(t *testing.T) {
	if err := g.ctl.Start(g.total); err != nil {
		t.Fatal(err)
	}
	g.course.stale, g.course.due, g.course.refreshes = true, false, 0
	g.modes, g.at, g.base, g.drift = [3]int{}, nil, nil, array{}
	clear(g.tables)
}

// step runs a step and holds what it leaves to the reference.
func (g *run) step(t *testing.T) {
	done, total := g.ctl.Step()
	g.disturb(t)
	want := g.course.mode(done+1, total, g.ctl.Drift())
	if got := g.ctl.Mode(); got != want {
		t.Fatalf("step %d of %d: will be %v, want %v", done+1, total, got, want)
	}
	if err := g.m.Step(); err != nil {
		t.Fatalf("step %d of %d, %v: %v", done+1, total, want, err)
	}
	if got := g.ctl.LastMode(); got != want {
		t.Fatalf("step %d of %d was %v, want %v", done+1, total, got, want)
	}
	g.course.done(done+1, total, want)
	g.modes[want]++
	if want == pulsecol.Refresh {
		g.at, g.every, g.base = append(g.at, done+1), g.every+1, nil
		g.drift = array{}
	}
	g.counts.steps++
	var lost []array
	for l, s := range g.sites {
		a := s.operands()
		g.columns(t, l, a, want)
		if t.Failed() {
			return
		}
		see := all
		if want == pulsecol.Reuse {
			see = g.sees(l)
		}
		y := a.attention(see)
		g.compare(t, fmt.Sprintf("step %d of %d, %v, layer %d", done+1, total, want, l), &s, y)
		if g.course.adaptive != nil && want == pulsecol.Reuse {
			lost = append(lost, a.kept(g.tables[l].Group, see))
		}
	}
	if lost != nil {
		g.measure(lost)
	}
	g.checkDrift(t)
	g.stats(t)
}

// disturb changes the inputs, and now and then what the controller does next.
func (g *run) disturb(t *testing.T) {
	for _, x := range g.inputs {
		for range 1 + len(x)/8 {
			i := g.r.IntN(len(x))
			x[i] = x[g.r.IntN(len(x))] * float32(pick(g.r, 1, -1, 0.5))
		}
	}
	if g.r.IntN(8) == 0 {
		g.course.dense = !g.course.dense
		g.ctl.SetDense(g.course.dense)
	}
	if g.r.IntN(12) == 0 {
		g.course.due = true
		g.ctl.Invalidate()
	}
	if g.r.IntN(12) == 0 { // a step that does not begin does not count
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.m.StepContext(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("a step of a context that is done: %v", err)
		}
	}
}

// compare holds the values of a layer to what attention y makes of them.
func (g *run) compare(t *testing.T, where string, s *site, y array) {
	perToken := func(i int) int { // [batch, heads, n, dim]
		return i/(g.shape.heads*g.shape.n*g.shape.dim)*g.shape.n + i/g.shape.dim%g.shape.n
	}
	if s.finish != nil {
		y = s.finish(y)
		features := len(y.v) / (g.shape.batch * g.shape.n)
		perToken = func(i int) int { return i / features }
	}
	g.within(t, where, y, s.got(), s.only, perToken)
	if s.after != nil {
		want, got := s.after()
		features := len(want.v) / (g.shape.batch * g.shape.n)
		g.within(t, where+", feed-forward", want, got, s.only, func(i int) int { return i / features })
	}
}

func (g *run) within(t *testing.T, where string, want array, got []float32, only []int32, token func(int) int) {
	t.Helper()
	if len(got) != len(want.v) {
		t.Errorf("%s: %d values, want %d", where, len(got), len(want.v))
		return
	}
	largest := 0.0
	for _, v := range want.v {
		largest = max(largest, math.Abs(v))
	}
	for i, v := range want.v {
		at := token(i)
		if g.mask != nil && g.mask[at] == 0 || only != nil && !slices.Contains(only, int32(at)) {
			continue
		}
		g.counts.values++
		if want.e[i] > 0.01*largest+tiny*4 {
			g.counts.loose++
		}
		if d := math.Abs(float64(got[i]) - v); !(d <= want.e[i]) {
			t.Errorf("%s: value %d of token %d is %g, want %g ± %.2g", where, i, at, got[i], v, want.e[i])
			return
		}
	}
}

// stats compares the controller's counts.
func (g *run) stats(t *testing.T) {
	t.Helper()
	s := g.ctl.Stats()
	if [3]int{s.Dense, s.Refreshes, s.Reuses} != g.modes || s.Steps != g.modes[0]+g.modes[1]+g.modes[2] || !slices.Equal(s.RefreshSteps, g.at) {
		t.Errorf("stats %+v, want modes %v, refreshes %v", s, g.modes, g.at)
	}
	if len(s.Layers) != len(g.sites) {
		t.Fatalf("stats of %d layers, want %d", len(s.Layers), len(g.sites))
	}
	var bytes int64
	for l, got := range s.Layers {
		bytes += got.Bytes
		if got.Refreshes != g.every {
			t.Errorf("layer %d: %d refreshes, want %d", l, got.Refreshes, g.every)
		}
		if g.tables[l] == nil || g.course.fixed {
			continue
		}
		density, churn := pairs(g.tables[l], nil), 0.0
		if g.replaced[l] {
			churn = pairs(g.tables[l], g.old[l]) / density
		}
		if math.Abs(got.Density-density) > 1e-12 || math.Abs(got.Churn-churn) > 1e-12 {
			t.Errorf("layer %d: density %g, churn %g, want %g, %g", l, got.Density, got.Churn, density, churn)
		}
	}
	if _, fixed := g.pattern.Pattern.(pulsecol.Fixed); !fixed && g.tables[0] != nil && bytes != g.ctl.ColumnBytes(g.g) {
		t.Errorf("column tables take %d bytes, %d were expected", bytes, g.ctl.ColumnBytes(g.g))
	}
}

// pairs is the share of query-key pairs that a table keeps and without does not.
func pairs(t, without *pulsecol.ColumnTable) float64 {
	kept := 0
	for b := range t.Batch {
		for h := range t.Heads {
			for u := range t.Groups() {
				queries := min(t.Group, t.Len-u*t.Group)
				for _, j := range t.Keys(b, h, u) {
					if without == nil || !slices.Contains(without.Keys(b, h, u), j) {
						kept += queries
					}
				}
			}
		}
	}
	return float64(kept) / float64(t.Batch*t.Heads*t.Len*t.Len)
}
