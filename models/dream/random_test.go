package dream

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
)

// TestRandom: a model of random weights runs, and is the same for the same seed.
func TestRandom(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(golden.Dir(t, "dream"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	logits := func(seed uint64) []float32 {
		m, err := Random(config, 0, seed)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		out, err := m.Logits(context.Background(), [][]int32{{1, 2, 3, 299}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	one := logits(1)
	if !slices.Equal(one, logits(1)) {
		t.Error("equal seeds, other logits")
	}
	if slices.Equal(one, logits(2)) {
		t.Error("another seed, equal logits")
	}
	var sum float64
	for _, x := range one {
		sum += math.Abs(float64(x))
	}
	if !(sum > 0) || math.IsInf(sum, 0) {
		t.Errorf("the logits' magnitudes sum to %v", sum)
	}
}
