package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models"
)

// TestCachedSum: the time of a generation with a cache is the sum over the steps that a
// generation runs, each in its kind, mode and number of rows.
func TestCachedSum(t *testing.T) {
	dir := golden.Dir(t, "llada")
	m, err := (&modelFlag{Model: &dir}).open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	// cost is different for all steps.
	cost := func(p pulsecol.Pass) float64 { return float64(100*int(p.Kind)+10*int(p.Mode)) + float64(p.Rows)/1024 }
	rng := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		cmd := benchE2ECmd{Cache: []string{"dual", "prefix"}[rng.IntN(2)], Batch: 1, Precision: "float32", StepsPerMode: 1}
		block := 2 + rng.IntN(3)
		blocks := leastBlocks + rng.IntN(4)
		cmd.BlockLength, cmd.NewTokens = &block, block*blocks
		b := e2eBench{cmd: &cmd, m: m, device: pulsecol.CPU}
		r := e2eRow{Group: 4}
		if rng.IntN(2) == 0 {
			r.Sparsity = 0.5
		}
		every, steps := rng.IntN(4), blocks*(1+rng.IntN(block))
		cfg := b.cachedConfig(r, every, pulsecol.Uniform{Eta: 1, Refreshes: 1 + rng.IntN(6)})

		const n = 64
		s := m.sampler(&samplerFlags{Steps: &steps, GenLength: &cmd.NewTokens, BlockLength: &block})
		res, err := s.generate(context.Background(), randomTokens(n-cmd.NewTokens, m.config(), 0), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, refreshes := 0.0, 0
		for _, p := range res.Passes {
			want += cost(p)
			if p.Mode == pulsecol.Refresh {
				refreshes++
			}
		}

		// Times as they are measured, with all modes of prefills and commits in all blocks.
		times := &cachedTimes{taken: map[pulsecol.Pass][]float64{}, rows: map[pulsecol.Pass][]int{}}
		generation := func(every int, cfg pulsecol.Config) {
			cfg.PrefillEvery = every
			all := cmd.NewTokens
			s := m.sampler(&samplerFlags{Steps: &all, GenLength: &all, BlockLength: &block})
			_, err := s.generate(context.Background(), randomTokens(n-cmd.NewTokens, m.config(), 0), cfg, func(p models.Progress) {
				p.Seconds = cost(p.Pass) / 1000
				times.add(p)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the first steps in blocks do not count
			generation(0, cfg)
			cfg := cfg
			cfg.Schedule = refreshEvery(2 * block)
			generation(1, cfg)
		}
		got, counted := times.sum(steps, blocks, every, cfg)
		if fmt.Sprintf("%.6f", got) != fmt.Sprintf("%.6f", want) || counted != refreshes {
			t.Errorf("%s cache, %d blocks of %d, prefill every %d, %d steps, %v at %v: %v with %d refreshes, want %v with %d",
				cmd.Cache, blocks, block, every, steps, cfg.Schedule, cfg.Sparsity, got, counted, want, refreshes)
		}
	}
}

// TestCachedTimes: first steps do not count, another generation is needed as long as steps
// are few, and a step that its block does not have takes the time of the nearest block.
func TestCachedTimes(t *testing.T) {
	times := &cachedTimes{warmup: 1, samples: 2, taken: map[pulsecol.Pass][]float64{}, rows: map[pulsecol.Pass][]int{}}
	prefill := pulsecol.Pass{Kind: pulsecol.Prefill, Mode: pulsecol.Refresh, Rows: 64}
	commit := pulsecol.Pass{Kind: pulsecol.Commit, Rows: 16}
	for round := range 3 {
		if round > 0 && !times.few() {
			t.Errorf("%d generations are enough, want 3", round)
		}
		for step, p := range []pulsecol.Pass{prefill, commit, {Kind: pulsecol.Commit, Rows: 12, First: 3}} {
			times.add(models.Progress{Step: step + 1, Pass: p, Seconds: float64(100*round+step) / 1000})
		}
	}
	if times.few() {
		t.Error("3 generations are too few")
	}
	for _, c := range []struct {
		kind  pulsecol.PassKind
		mode  pulsecol.Mode
		block int
		want  float64
	}{
		{pulsecol.Prefill, pulsecol.Refresh, 0, 150}, {pulsecol.Prefill, pulsecol.Refresh, 7, 150},
		{pulsecol.Commit, pulsecol.Dense, 0, 151}, {pulsecol.Commit, pulsecol.Dense, 1, 151},
		{pulsecol.Commit, pulsecol.Dense, 2, 152}, {pulsecol.Commit, pulsecol.Dense, 9, 152},
	} {
		if got := times.of(c.kind, c.mode, c.block); got != c.want {
			t.Errorf("%v in block %d: %v, want %v", c.kind, c.block, got, c.want)
		}
	}
	times.warmup = 0
	if p, c := len(times.counted(prefill)), len(times.counted(commit)); p != 3 || c != 2 {
		t.Errorf("without a warm-up %d prefills and %d commits count, want 3 and 2", p, c)
	}
}
