package main

import (
	"context"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/workgroup"
)

// openGolden opens a model of the golden files and its sampler with 16 tokens in two blocks.
func openGolden(t *testing.T, name string) (*openModel, sampler) {
	t.Helper()
	dir := golden.Dir(t, name)
	m, err := (&modelFlag{Model: &dir}).open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	tokens, block, alg := 16, 8, "entropy"
	return m, m.sampler(&samplerFlags{GenLength: &tokens, MaxNewTokens: &tokens, BlockLength: &block, Alg: &alg})
}

var sessionConfigs = []pulsecol.Config{
	{},
	{Sparsity: 0.5, GroupSize: 4, Schedule: pulsecol.Uniform{Refreshes: 3}},
	{Sparsity: 0.5, GroupSize: 4, Cache: pulsecol.DualCache, PrefillEvery: 1},
	{Cache: pulsecol.PrefixCache},
}

// TestSessionPool: generations in the pool's sessions have the tokens that they have in a
// session of their own, whatever a session did before, and a pool has as many sessions as
// generations at once.
func TestSessionPool(t *testing.T) {
	for _, name := range []string{"llada", "dream"} {
		m, s := openGolden(t, name)
		pool := sessionPool{m: m}
		for round := range 3 {
			for i, cfg := range sessionConfigs {
				cfg.Device = pulsecol.CPU
				prompt := randomTokens(5+7*((round+i)%3), m.config(), uint64(round))
				want, err := s.generate(context.Background(), prompt, cfg, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := pool.generate(context.Background(), s, cfg, prompt)
				if err != nil || !slices.Equal(got.OutputIDs, want.OutputIDs) {
					t.Errorf("%s, round %d, configuration %d: %v, %v, want %v", name, round, i, got, err, want.OutputIDs)
				}
				if len(pool.idle) != 1 {
					t.Fatalf("%d sessions, want 1", len(pool.idle))
				}
			}
		}
		var together workgroup.Group
		for i := range 2 * len(sessionConfigs) {
			cfg := sessionConfigs[i%len(sessionConfigs)]
			cfg.Device, cfg.Threads = pulsecol.CPU, 1
			together.Go(func() {
				got, err := pool.generate(context.Background(), s, cfg, randomTokens(9, m.config(), 1))
				want, alone := s.generate(context.Background(), randomTokens(9, m.config(), 1), cfg, nil)
				if err != nil || alone != nil || !slices.Equal(got.OutputIDs, want.OutputIDs) {
					t.Errorf("%s, configuration %d with others: %v, %v, want %v, %v", name, i, got, err, want, alone)
				}
			})
		}
		together.Wait()
		if len(pool.idle) > 2*len(sessionConfigs) {
			t.Errorf("%d sessions", len(pool.idle))
		}
		a, b := pool.take(sessionConfigs[0]), pool.take(sessionConfigs[0])
		if a == b {
			t.Error("one session for two generations")
		}
		pool.put(a)
		pool.put(b)
		if err := pool.close(); err != nil || a.open != nil {
			t.Errorf("closed: %v, %v", err, a.open)
		}
	}
}

// TestSessionIsKept: a session serves the generations of one configuration, and the pool
// lends that of the configuration asked for.
func TestSessionIsKept(t *testing.T) {
	m, _ := openGolden(t, "llada")
	of := func(k *keptSession, cfg pulsecol.Config) session {
		s, err := k.under(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	k := &keptSession{m: m}
	first := of(k, sessionConfigs[1])
	if of(k, sessionConfigs[1]) != first {
		t.Error("another session for the same configuration")
	}
	if of(k, sessionConfigs[2]) == first {
		t.Error("one session for two configurations")
	}
	other := &keptSession{m: m}
	of(other, sessionConfigs[3])
	pool := sessionPool{m: m, idle: []*keptSession{k, other}}
	if pool.take(sessionConfigs[3]) != other || pool.take(sessionConfigs[1]) != k {
		t.Error("the pool lends another session")
	}
	if err := k.close(); err != nil || k.close() != nil || k.open != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := k.under(pulsecol.Config{Sparsity: 2}); err == nil || k.open != nil {
		t.Errorf("an invalid configuration: %v", err)
	}
	if of(k, sessionConfigs[0]) == nil {
		t.Error("no session after an error")
	}
}
