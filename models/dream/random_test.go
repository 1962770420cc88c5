package dream

import (
	"testing"

	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

func TestRandom(t *testing.T) {
	modeltest.Random(t, "dream", func(config []byte, context int, seed uint64) (modeltest.Model, error) {
		return Random(config, context, seed)
	})
}
