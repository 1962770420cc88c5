package pulsecol_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

var cachedShape = kernel.Shape{Batch: 1, Heads: 4, KVHeads: 2, Len: 12, HeadDim: 8}

// startCached returns a layer in the middle of a generation: the first block is active.
func startCached(t *testing.T, cfg pulsecol.Config) *cacheRig {
	t.Helper()
	r := newCacheRig(t, cfg, cachedShape, nil)
	if err := r.ctl.Start(20); err != nil {
		t.Fatal(err)
	}
	r.setBlock(4, 8)
	return r
}

func (r *cacheRig) setBlock(first, end int) {
	r.t.Helper()
	if err := r.ctl.SetBlock(pulsecol.Block{Len: r.shape.Len, First: first, End: end}); err != nil {
		r.t.Fatal(err)
	}
}

// run runs the next step on inputs that depend on its number alone.
func (r *cacheRig) run() ([]float32, error) {
	done, _ := r.ctl.Step()
	return r.step(r.inputs(attncase.Rand(uint64(done)), r.ctl.Pass().Rows))
}

func (r *cacheRig) mustRun() []float32 {
	r.t.Helper()
	return must(r.run())(r.t)
}

func TestCacheConfigs(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  pulsecol.Config
		want string
	}{
		"unknown cache":     {pulsecol.Config{Cache: 3}, "Cache is Cache(3), want none, prefix or dual"},
		"negative":          {pulsecol.Config{Cache: pulsecol.DualCache, PrefillEvery: -1}, "PrefillEvery is -1, want at least 1"},
		"prefills for none": {pulsecol.Config{PrefillEvery: 2}, "PrefillEvery is 2, which needs a Cache"},
		"adaptive":          {pulsecol.Config{Cache: pulsecol.DualCache, Schedule: pulsecol.Adaptive{}}, "measures drift over all rows"},
		"sparsed":           {pulsecol.Config{Cache: pulsecol.PrefixCache, Pattern: pulsecol.SparseD{}}, "Pattern sparsed blocks of 128 has no columns for the rows of a block"},
		"on a GPU":          {pulsecol.Config{Cache: pulsecol.DualCache, Device: pulsecol.CUDA}, "Device is cuda, but"},
	} {
		if _, err := pulsecol.NewController(c.cfg); !errors.Is(err, pulsecol.ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
	ctl := must(pulsecol.NewController(pulsecol.Config{Cache: pulsecol.DualCache}))(t)
	if got := ctl.Config().Device; got != pulsecol.CPU {
		t.Errorf("the device of a cache is %v, want cpu", got)
	}
}

func TestSetBlockErrors(t *testing.T) {
	plain := newController(t, pulsecol.Config{})
	if err := plain.Start(1); err != nil {
		t.Fatal(err)
	}
	if err := plain.SetBlock(pulsecol.Block{Len: 4, End: 4}); !errors.Is(err, pulsecol.ErrConfig) {
		t.Errorf("without a cache: %v", err)
	}
	ctl := newController(t, pulsecol.Config{Cache: pulsecol.DualCache})
	if err := ctl.SetBlock(pulsecol.Block{Len: 4, End: 4}); !errors.Is(err, pulsecol.ErrNotStarted) {
		t.Errorf("before Start: %v", err)
	}
	if err := ctl.Start(4); err != nil {
		t.Fatal(err)
	}
	for _, b := range []pulsecol.Block{{Len: 4, First: -1, End: 2}, {Len: 4, First: 2, End: 2}, {Len: 4, First: 3, End: 5}, {}} {
		if err := ctl.SetBlock(b); err == nil || !strings.Contains(err.Error(), "want at least one within") {
			t.Errorf("%+v: error %v", b, err)
		}
	}
	if p := ctl.Pass(); p != (pulsecol.Pass{}) {
		t.Errorf("without a block the next step is %+v", p)
	}
	if err := ctl.SetBlock(pulsecol.Block{Len: 4, End: 2}); err != nil {
		t.Fatal(err)
	}
	if err := ctl.SetBlock(pulsecol.Block{Len: 5, End: 2}); err == nil || !strings.Contains(err.Error(), "a sequence of 5 tokens, want 4") {
		t.Errorf("another length: %v", err)
	}
	if err := ctl.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ctl.SetBlock(pulsecol.Block{Len: 4, End: 2}); !errors.Is(err, pulsecol.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCachedAttentionErrors(t *testing.T) {
	cached, plain := newController(t, pulsecol.Config{Cache: pulsecol.DualCache}), newController(t, pulsecol.Config{})
	attention := func(ctl *pulsecol.Controller, opts ...pulsecol.AttentionOption) error {
		q, k, v, _ := qkv(gorgonia.NewGraph(), &kernel.Operands{Shape: cachedShape})
		_, err := pulsecol.Attention(q, k, v, ctl.Layer(0), opts...)
		return err
	}
	for name, c := range map[string]struct {
		err      error
		sentinel error
		want     string
	}{
		"no option":  {attention(cached), pulsecol.ErrConfig, "Attention has no option WithCache"},
		"no cache":   {attention(plain, pulsecol.WithCache(12)), pulsecol.ErrConfig, "under a Config with Cache none"},
		"too short":  {attention(cached, pulsecol.WithCache(11)), op.ErrShape, "WithCache(11) for 12 rows of q"},
		"negative":   {attention(cached, pulsecol.WithCache(-1)), op.ErrShape, "WithCache(-1)"},
		"raw":        {second(op.NewKVCache("x", op.CachedKeys, op.AttentionParams{Cached: 4})), op.ErrValue, "need a controller"},
		"raw, of 0":  {second(op.NewKVCache("x", op.CachedKeys, op.AttentionParams{})), op.ErrValue, "Cached is 0"},
		"raw, of -1": {second(op.NewScoreCollect("x", op.AttentionParams{Cached: -1})), op.ErrValue, "Cached is -1 tokens"},
	} {
		if !errors.Is(c.err, c.sentinel) || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: error %v, want %v with %q", name, c.err, c.sentinel, c.want)
		}
	}
	// A second attention of the layer in one graph.
	q, k, v, _ := qkv(gorgonia.NewGraph(), &kernel.Operands{Shape: cachedShape})
	must(pulsecol.Attention(q, k, v, cached.Layer(1), pulsecol.WithCache(12)))(t)
	if _, err := pulsecol.Attention(q, v, k, cached.Layer(1), pulsecol.WithCache(12)); err == nil || !strings.Contains(err.Error(), "already has its attention") {
		t.Errorf("a second attention in the graph: %v", err)
	}
}

// TestCachedSteps: what a step with a cache refuses, and that it may be run after that.
func TestCachedSteps(t *testing.T) {
	r := newCacheRig(t, pulsecol.Config{Cache: pulsecol.DualCache, Sparsity: 0.5, GroupSize: 4, PrefillEvery: 1}, cachedShape, nil)
	whole := r.graph(12)
	if err := r.ctl.Start(20); err != nil {
		t.Fatal(err)
	}
	if err := whole.machine.RunAll(); !errors.Is(err, pulsecol.ErrNoBlock) {
		t.Errorf("a step without a block: %v", err)
	}
	r.setBlock(4, 8)
	r.mustRun()
	if err := whole.machine.RunAll(); !errors.Is(err, op.ErrValue) || !strings.Contains(err.Error(), "the graph computes 12 rows, the step (block) 4 from 4 on") {
		t.Errorf("a block step in the graph of all rows: %v", err)
	}
	whole.machine.Reset()
	r.setBlock(4, 8) // again: nothing changes
	if p := r.ctl.Pass(); p.Kind != pulsecol.BlockStep {
		t.Errorf("the next step is %+v, want a block step", p)
	}
	r.mustRun()
	s := r.ctl.Stats()
	if s.Prefills != 1 || s.Commits != 0 || s.BlockSteps != 1 || s.Steps != 2 {
		t.Errorf("stats %+v", s)
	}
	if want := int64(4 * 2 * 2 * 12 * 8); s.Layers[0].Cache < want {
		t.Errorf("the layer's cache takes %d bytes, want at least %d", s.Layers[0].Cache, want)
	}
	if _, err := pulsecol.NewMachine(r.graphOf(12), r.ctl); !errors.Is(err, pulsecol.ErrAttached) {
		t.Errorf("a second machine of a graph: %v", err)
	}
	if _, err := op.Grad(gorgonia.Must(gorgonia.Sum(whole.y)), whole.q); !errors.Is(err, op.ErrNoGradient) {
		t.Errorf("a gradient through a cache: %v", err)
	}
}

func (r *cacheRig) graphOf(rows int) *gorgonia.ExprGraph { return r.graph(rows).y.Graph() }

// TestStoppedCachedSteps: a step that was stopped, of any kind, is run again with the same
// result.
func TestStoppedCachedSteps(t *testing.T) {
	cfg := pulsecol.Config{Cache: pulsecol.DualCache, Sparsity: 0.5, GroupSize: 4}
	straight := startCached(t, cfg)
	var stop func() // called when keys and values are stored and columns selected
	cfg.Observer = observe(func(pulsecol.Observation) {
		if stop != nil {
			stop()
		}
	})
	stopped := startCached(t, cfg)
	for step := range 9 {
		if step == 3 || step == 6 {
			straight.setBlock(4+step/3*2, 8+step/3*2)
			stopped.setBlock(4+step/3*2, 8+step/3*2)
		}
		pass := stopped.ctl.Pass()
		stopped.ctx, stop = context.WithCancel(t.Context())
		if _, err := stopped.run(); !errors.Is(err, context.Canceled) {
			t.Fatalf("step %d: %v", step, err)
		}
		if again := stopped.ctl.Pass(); again != pass {
			t.Fatalf("step %d is %+v after it was stopped, before %+v", step, again, pass)
		}
		stopped.ctx, stop = t.Context(), nil
		tol.SameBits(t, "output", stopped.mustRun(), straight.mustRun())
	}
}

// observe is an Observer that ignores the layer.
type observe func(pulsecol.Observation)

func (f observe) Observe(o pulsecol.Observation) { f(o) }

// TestCacheEqualsNone: a prefill before every step is the same as no cache, bit for bit, and
// a cache with every key kept is the same as one with full attention.
func TestCacheEqualsNone(t *testing.T) {
	for _, sparsity := range []float64{0, 0.5} {
		cfg := pulsecol.Config{Sparsity: sparsity, GroupSize: 4, Schedule: pulsecol.Always{}}
		a := attncase.Seeded(0, cachedShape)
		plain := newRig(t, a, cfg, 1, nil)
		plain.start(20)
		cfg.Cache = pulsecol.DualCache
		cached := startCached(t, cfg)
		for range 4 {
			cached.ctl.Invalidate()
			mode := cached.ctl.Mode()
			done, _ := cached.ctl.Step()
			a.Q, a.K, a.V = cached.inputs(attncase.Rand(uint64(done)), cachedShape.Len)
			tol.SameBits(t, "output", cached.mustRun(), plain.step(a, mode))
		}
	}
	full, all := startCached(t, pulsecol.Config{Cache: pulsecol.PrefixCache}), startCached(t, pulsecol.Config{Cache: pulsecol.PrefixCache, Sparsity: 1e-17, GroupSize: 4})
	for range 4 {
		want := full.mustRun()
		tol.ClosePlain(t, all.mustRun(), want, want)
	}
}
