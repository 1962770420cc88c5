package main

import (
	"slices"
	"strconv"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
)

// TestCachedGenerateEqualsReference: tokens and passes of Fast-dLLM's samplers, and of those
// over the reference of columns with a cache.
func TestCachedGenerateEqualsReference(t *testing.T) {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for _, model := range []string{"llada", "dream"} {
		golden.CachedGenerations(t, model, func(t *testing.T, c *golden.CachedGeneration) {
			args := []string{
				"--model", golden.Dir(t, model), "--prompt-ids", listed(c.Prompt()), "--block-length", strconv.Itoa(c.BlockLength),
				"--cache", c.Cache, "--prefill-every", strconv.Itoa(c.Every()),
			}
			if model == "llada" {
				args = append(args, "--gen-length", strconv.Itoa(c.GenLength), "--confidence-dtype", "f64")
			} else {
				args = append(args, "--max-new-tokens", strconv.Itoa(c.NewTokens()), "--alg", c.Alg)
				if c.Published {
					args = append(args, "--first-token-at-prefill")
				}
			}
			if c.Threshold > 0 {
				args = append(args, "--threshold", number(c.Threshold))
			}
			if c.Threshold == 0 || model == "dream" { // else as many as it needs
				args = append(args, "--steps", strconv.Itoa(c.Steps))
			}
			if c.Sparsity != nil {
				args = append(args, "--sparsity", number(*c.Sparsity), "--group-size", strconv.Itoa(c.GroupSize),
					"--eta", number(c.Eta), "--refreshes", strconv.Itoa(c.Refreshes))
			}
			g := generated(t, args...)
			if !slices.Equal(g.OutputIDs, c.Out()) {
				t.Errorf("got  %v\nwant %v", g.OutputIDs, c.Out())
			}
			var rows, firsts []int
			for _, p := range g.Passes {
				rows, firsts = append(rows, p.Rows), append(firsts, p.First)
				if prefill := p.Rows == len(g.PromptIDs)+len(g.OutputIDs); prefill != (p.Kind == "prefill") {
					t.Errorf("%+v", p)
				}
			}
			if !slices.Equal(rows, c.AllRows()) || c.FirstRows != nil && !slices.Equal(firsts, c.FirstRows) {
				t.Errorf("passes %+v, want rows %v from %v", g.Passes, c.AllRows(), c.FirstRows)
			}
			if g.Forwards != c.Forwards-c.IdleForwards {
				t.Errorf("%d forwards, want %d", g.Forwards, c.Forwards-c.IdleForwards)
			}
		})
	}
}
