package modeltest

import (
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models"
)

// CachedEqualsReference compares the generations with a cache of a model, "llada" or
// "dream", with those of PyTorch: tokens, and rows and modes of the forward passes. Each is
// run twice in one session.
func CachedEqualsReference(t *testing.T, model string, generate func(c *golden.CachedGeneration, cfg pulsecol.Config) func() (*models.Result, error)) {
	golden.CachedGenerations(t, model, func(t *testing.T, c *golden.CachedGeneration) {
		cfg := pulsecol.Config{Precision: pulsecol.Float32, Cache: pulsecol.DualCache, PrefillEvery: c.Every()}
		if c.Cache == "prefix" {
			cfg.Cache = pulsecol.PrefixCache
		}
		if c.Sparsity != nil {
			cfg.Sparsity, cfg.GroupSize = *c.Sparsity, c.GroupSize
			cfg.Schedule = pulsecol.Uniform{Eta: c.Eta, Refreshes: c.Refreshes}
		}
		run := generate(c, cfg)
		for range 2 {
			res, err := run()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(res.OutputIDs, c.Out()) {
				t.Errorf("got  %v\nwant %v", res.OutputIDs, c.Out())
			}
			if forwards := c.Forwards - c.IdleForwards; res.Forwards != forwards || res.Steps != forwards {
				t.Errorf("%d forwards in %d steps, want %d", res.Forwards, res.Steps, forwards)
			}
			checkPasses(t, c, res.Passes)
		}
	})
}

// checkPasses compares forward passes with those of a case.
func checkPasses(t *testing.T, c *golden.CachedGeneration, passes []pulsecol.Pass) {
	t.Helper()
	var rows, firsts []int
	var modes []string
	for _, p := range passes {
		mode := "dense"
		switch {
		case p.Mode == pulsecol.Refresh:
			mode = "refresh"
		case p.Kind == pulsecol.BlockStep && p.Mode == pulsecol.Reuse:
			mode = "block"
		case p.Mode == pulsecol.Reuse || c.Sparsity != nil: // a prefill, or a commit
			mode = "first"
		}
		rows, firsts, modes = append(rows, p.Rows), append(firsts, p.First), append(modes, mode)
	}
	if !slices.Equal(rows, c.AllRows()) {
		t.Errorf("rows of the passes %v, want %v", rows, c.AllRows())
	}
	if c.Modes != nil && (!slices.Equal(modes, c.Modes) || !slices.Equal(firsts, c.FirstRows)) {
		t.Errorf("modes and first rows of the passes %v %v, want %v %v", modes, firsts, c.Modes, c.FirstRows)
	}
}
