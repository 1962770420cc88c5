package llada

import (
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

func TestCachedGenerationEqualsReference(t *testing.T) {
	m := openGolden(t)
	modeltest.CachedEqualsReference(t, "llada", func(c *golden.CachedGeneration, cfg pulsecol.Config) func() (*models.Result, error) {
		s := modeltest.Opened(m.NewSession(cfg))(t)
		return func() (*models.Result, error) {
			return s.Generate(t.Context(), c.Prompt(), GenerateOptions{
				GenLength: c.GenLength, BlockLength: c.BlockLength, Steps: c.Steps, Threshold: c.Threshold, ConfidenceDType: "f64",
			})
		}
	})
}
