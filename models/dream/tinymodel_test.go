package dream

import (
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

func openTiny(t testing.TB) *Model {
	return modeltest.Opened(OpenFS(tinymodel.DreamFS(), tinymodel.DreamWeights()))(t)
}

func TestTinyModelEqualsPyTorch(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds; a minute under the race detector")
	}
	m := openTiny(t)
	small := modeltest.Small{Model: m, Expected: "expected_dream.json", Generate: func(prompt []int32, cfg pulsecol.Config) (*models.Result, error) {
		return m.Generate(t.Context(), prompt, cfg, GenerateOptions{})
	}, Shift: 1}
	small.EqualsPyTorch(t)
}
