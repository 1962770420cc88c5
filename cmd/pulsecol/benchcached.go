package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
)

// cachedBlocks are the blocks of a generation that bench step --cache measures, and
// stepsInBlock the steps of each. The first steps are a prefill, a commit and a prefill.
const cachedBlocks, stepsInBlock = 3, 2

// measureCached runs the generations that b reports, with a cache: one more than the steps
// to measure, in one session.
func (c *benchStepCmd) measureCached(ctx context.Context, m *openModel, att attention, b *stepBench, progress io.Writer) (err error) {
	cfg := att.Config
	cfg.PrefillEvery = 2
	if cfg.Schedule != nil && cfg.Sparsity > 0 {
		cfg.Schedule = delayed{turns{pulsecol.Reuse}, 1, pulsecol.Refresh}
	}
	b.Block = or(c.BlockLength, 32)
	tokens, steps := cachedBlocks*b.Block, cachedBlocks*stepsInBlock
	if b.Length < tokens {
		return usagef("--length %d: want at least %d, the tokens of %d blocks of %d", b.Length, tokens, cachedBlocks, b.Block)
	}
	alg := "maskgit_plus"
	s := m.sampler(&samplerFlags{Steps: &steps, Seed: c.Seed, GenLength: &tokens, MaxNewTokens: &tokens, BlockLength: &b.Block, Alg: &alg})
	prompt := randomTokens(b.Length-tokens, m.config(), c.Seed)
	mem, err := s.memory(1, len(prompt), cfg)
	if err != nil {
		return err
	}
	if err := c.Open.checkMemory(mem, 1, b.Length); err != nil {
		return err
	}
	limitGarbage(dataBytes(mem))

	in, err := m.newSession(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	d := newDisplay(progress, m, false)
	defer d.close()
	b.Density = 1
	taken := map[pulsecol.Pass][]float64{} // without First
	var warmup map[pulsecol.Pass][]float64 // those of the first generation
	for range c.StepsPerMode + 1 {
		results, err := s.generateIn(ctx, in, [][]int32{prompt}, func(p models.Progress) {
			p.Pass.First = 0
			taken[p.Pass] = append(taken[p.Pass], p.Seconds)
			d.step(p)
		})
		if err != nil {
			return err
		}
		b.Density = min(b.Density, density(results[0].Stats))
		if warmup == nil {
			warmup, taken = taken, map[pulsecol.Pass][]float64{}
		}
	}
	passes := slices.SortedFunc(maps.Keys(taken), func(a, b pulsecol.Pass) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Mode, b.Mode), cmp.Compare(b.Rows, a.Rows))
	})
	for _, p := range passes {
		t := newModeTime(p.Mode, slices.Concat(warmup[p][:1], taken[p]), p.Rows)
		t.stepKind = stepKind{cfg.Cache.String(), p.Kind.String(), p.Rows}
		b.Modes = append(b.Modes, t)
	}
	return nil
}
