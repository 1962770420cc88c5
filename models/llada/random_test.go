package llada

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models"
)

// TestRandom: a model of random weights runs, and is the same for the same seed.
func TestRandom(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(golden.Dir(t, "llada"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	logits := func(seed uint64) []float32 {
		m, err := Random(config, 0, seed)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		out, err := m.Logits(context.Background(), [][]int32{{1, 2, 3, 319}}, nil)
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

func TestRandomContext(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(golden.Dir(t, "llada"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for context, want := range map[int]int{0: 512, 70000: 70000} {
		m, err := Random(config, context, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Config().Context; got != want {
			t.Errorf("a context of %d tokens, want %d", got, want)
		}
		if _, err := m.Encode("text"); !errors.Is(err, models.ErrNoTokenizer) {
			t.Errorf("Encode: %v, want %v", err, models.ErrNoTokenizer)
		}
		m.Close()
		if _, err := m.Logits(t.Context(), [][]int32{{1}}, nil); !errors.Is(err, models.ErrClosed) {
			t.Errorf("after Close: %v, want %v", err, models.ErrClosed)
		}
	}
	if _, err := Random(config, -1, 0); !errors.Is(err, models.ErrRequest) {
		t.Errorf("a negative context: %v", err)
	}
	if _, err := Random([]byte("{}"), 0, 0); !errors.Is(err, models.ErrConfig) {
		t.Errorf("an empty config: %v", err)
	}
}
