package dream

import (
	"errors"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

func TestCachedGenerationEqualsReference(t *testing.T) {
	m := openGolden(t)
	modeltest.CachedEqualsReference(t, "dream", func(c *golden.CachedGeneration, cfg pulsecol.Config) func() (*models.Result, error) {
		s := modeltest.Opened(m.NewSession(cfg))(t)
		return func() (*models.Result, error) {
			return s.Generate(t.Context(), c.Prompt(), GenerateOptions{
				MaxNewTokens: c.NewTokens(), BlockLength: c.BlockLength, Steps: c.Steps, Alg: c.Alg, Threshold: c.Threshold,
				FirstTokenAtPrefill: c.Published,
			})
		}
	})
}

// TestFirstTokenNeedsPrefills: a first token can be filled at the prefill of each block only
// if each has one.
func TestFirstTokenNeedsPrefills(t *testing.T) {
	m := openGolden(t)
	o := GenerateOptions{MaxNewTokens: 8, BlockLength: 4, Steps: 8, Alg: "entropy", FirstTokenAtPrefill: true}
	prompt := []int32{5, 6, 7}
	for _, c := range []struct {
		cfg  pulsecol.Config
		says string // "" for none
	}{
		{pulsecol.Config{Cache: pulsecol.DualCache, PrefillEvery: 1}, ""},
		{pulsecol.Config{Cache: pulsecol.PrefixCache, PrefillEvery: 1}, ""},
		{pulsecol.Config{Cache: pulsecol.DualCache}, "FirstTokenAtPrefill with Config.PrefillEvery 0, want 1"},
		{pulsecol.Config{Cache: pulsecol.PrefixCache, PrefillEvery: 2}, "FirstTokenAtPrefill with Config.PrefillEvery 2, want 1"},
		{pulsecol.Config{}, "first_token_at_prefill true: want false without a cache"},
	} {
		_, generated := m.Generate(t.Context(), prompt, c.cfg, o)
		_, counted := m.Steps([][]int32{prompt}, c.cfg, o)
		for call, err := range map[string]error{"Generate": generated, "Steps": counted} {
			if c.says == "" {
				if err != nil {
					t.Errorf("%s with %v cache: %v", call, c.cfg.Cache, err)
				}
				continue
			}
			if !errors.Is(err, models.ErrRequest) || !strings.HasPrefix(err.Error(), "dream: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s with %v cache, a prefill every %d blocks: %v, want %q", call, c.cfg.Cache, c.cfg.PrefillEvery, err, c.says)
			}
		}
	}
}
