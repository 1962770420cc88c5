package dream

import (
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
