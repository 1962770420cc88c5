//go:build cuda

package cudaop_test

import (
	"fmt"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models/llada"
)

// TestSharedWeights: graphs of several lengths and several sessions share one copy of the
// weights, which stays as long as one of them is open.
func TestSharedWeights(t *testing.T) {
	needGPU(t)
	m := must(llada.OpenFS(tinymodel.FS(), tinymodel.Weights()))(t)
	defer m.Close()
	cfg := pulsecol.Config{Device: pulsecol.CUDA, Sparsity: 0.5, GroupSize: 16}
	loaded := 0
	o := llada.GenerateOptions{GenLength: 16, Steps: 4, OnLoad: func(done, _ int64) { loaded++ }}
	need := must(m.PredictMemory(1, 60, cfg, o))(t).GPU
	weights := need.Weights
	generate := func(s *llada.Session, length int, loads bool) string {
		t.Helper()
		prompt := make([]int32, length)
		for i := range prompt {
			prompt[i] = int32(5 + i%50)
		}
		loaded = 0
		r := must(s.Generate(t.Context(), prompt, o))(t)
		if (loaded > 0) != loads {
			t.Errorf("%d tokens: %d reports of loading, want some: %v", length, loaded, loads)
		}
		return fmt.Sprint(r.OutputIDs)
	}
	first := must(m.NewSession(cfg))(t)
	short := generate(first, 40, true)
	one := gpu.Held()
	long := generate(first, 60, false)
	two := gpu.Held()
	if two <= one || two-one >= weights/2 {
		t.Errorf("%d bytes held with a graph, %d with two; the weights are %d", one, two, weights)
	}
	if again := generate(first, 40, false); again != short {
		t.Errorf("the first length gives %s, before %s", again, short)
	}
	second := must(m.NewSession(cfg))(t)
	if other := generate(second, 60, false); other != long {
		t.Errorf("another session gives %s, the first %s", other, long)
	}
	if held := gpu.Held(); held-two > need.Held()-weights {
		t.Errorf("%d bytes held with one session, %d with two; a graph takes %d besides weights", two, held, need.Held()-weights)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if other := generate(second, 60, false); other != long {
		t.Errorf("after the first session closed: %s, want %s", other, long)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if held := gpu.Held(); held != 0 {
		t.Errorf("%d bytes held after all sessions closed", held)
	}
}
