//go:build cuda

package cudaop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/llada"
)

// TestPlanMemory: the operators hold the predicted memory.
func TestPlanMemory(t *testing.T) {
	needGPU(t)
	l := must(llada.OpenFS(tinymodel.FS(), tinymodel.Weights()))(t)
	defer l.Close()
	d := must(dream.OpenFS(tinymodel.DreamFS(), tinymodel.DreamWeights()))(t)
	defer d.Close()
	const tokens, steps = 16, 4
	prompt := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(5 + i%50)
		}
		return ids
	}
	for _, c := range []struct {
		batch, length int
		cfg           pulsecol.Config
	}{
		{1, 100, pulsecol.Config{}},
		{1, 203, pulsecol.Config{Sparsity: 0.8, GroupSize: 16}},
		{2, 150, pulsecol.Config{Sparsity: 0.5, GroupSize: 100}},
		{2, 90, pulsecol.Config{Sparsity: 0.9, GroupSize: 32, Schedule: pulsecol.Skip{}}},
		{1, 90, pulsecol.Config{Sparsity: 0.5, GroupSize: 32, Precision: pulsecol.Float32}},
		{1, 90, pulsecol.Config{Sparsity: 0.5, Pattern: pulsecol.Blocks{Size: 16}}},
		{1, 90, pulsecol.Config{Sparsity: 0.5, Pattern: pulsecol.SparseD{BlockSize: 16}}},
		{2, 90, pulsecol.Config{Pattern: everyKey(90 + tokens)}},
		{1, 100, pulsecol.Config{Cache: pulsecol.DualCache}},
		{1, 203, pulsecol.Config{Sparsity: 0.8, GroupSize: 16, Cache: pulsecol.DualCache, PrefillEvery: 1}},
		{2, 150, pulsecol.Config{Sparsity: 0.5, GroupSize: 3, Cache: pulsecol.PrefixCache, PrefillEvery: 2}},
		{1, 90, pulsecol.Config{Sparsity: 0.5, GroupSize: 32, Precision: pulsecol.Float32, Cache: pulsecol.PrefixCache}},
		{1, 90, pulsecol.Config{Sparsity: 0.9, Pattern: pulsecol.Streaming{}, Cache: pulsecol.DualCache}},
	} {
		t.Run(fmt.Sprintf("%d of %d, %v", c.batch, c.length, c.cfg.Sparsity), func(t *testing.T) {
			c.cfg.Device = pulsecol.CUDA
			prompts := make([][]int32, c.batch)
			for i := range prompts {
				prompts[i] = prompt(c.length - i) // the shorter ones are padded
			}
			var held int64
			check := func(mem models.Memory, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				mask := int64(0) // of shorter prompts, which a prediction does not include
				if c.batch > 1 {
					mask = 32 << 10
				}
				if got, want := mem.GPU.Held(), held; got > want || got < want-mask || want == 0 {
					t.Errorf("predicted %+v, %d in all; held %d", mem.GPU, got, want)
				}
				_, static := c.cfg.Pattern.(pulsecol.Streaming)
				refreshes, tables := c.cfg.Sparsity > 0 && !static, c.cfg.Sparsity > 0 && !static || c.cfg.Pattern != nil && !static
				if (mem.GPU.Scores > 0) != refreshes || (mem.GPU.Columns > 0) != tables || (mem.GPU.Cache > 0) != (c.cfg.Cache != pulsecol.NoCache) {
					t.Errorf("predicted %+v", mem.GPU)
				}
			}
			peak := func(models.Progress) { held = max(held, gpu.Held()) }
			lo := llada.GenerateOptions{GenLength: tokens, BlockLength: tokens / 2, Steps: steps, OnStep: peak}
			must(l.GenerateBatch(t.Context(), prompts, c.cfg, lo))(t)
			check(l.PredictMemory(c.batch, c.length, c.cfg, lo))
			held = 0
			do := dream.GenerateOptions{MaxNewTokens: tokens, BlockLength: tokens / 2, Steps: steps, OnStep: peak}
			must(d.GenerateBatch(t.Context(), prompts, c.cfg, do))(t)
			check(d.PredictMemory(c.batch, c.length, c.cfg, do))
		})
	}
}

// everyKey keeps every key of n tokens.
func everyKey(n int) pulsecol.Pattern {
	table, err := pulsecol.NewColumnTable(1, 1, n, 16, func(int, int, int) (keys []int) {
		for j := range n {
			keys = append(keys, j)
		}
		return keys
	})
	if err != nil {
		panic(err)
	}
	return pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{table}}
}

// TestTooLarge: a generation that cannot fit is refused before anything is loaded, one without
// enough free memory fails as early, and one may run out of memory while weights are loaded.
// After each, another generation in the process gives the usual answer.
func TestTooLarge(t *testing.T) {
	needGPU(t)
	m := must(llada.OpenFS(tinymodel.FS(), tinymodel.Weights()))(t)
	defer m.Close()
	cfg := pulsecol.Config{Sparsity: 0.5, Device: pulsecol.CUDA}
	loaded := int64(0)
	generate := func() (*models.Result, error) {
		loaded = 0
		return m.Generate(t.Context(), []int32{7, 8, 9, 10, 11}, cfg, llada.GenerateOptions{
			GenLength: 64, Steps: 4, OnLoad: func(done, _ int64) { loaded = done },
		})
	}
	need := must(m.PredictMemory(1, 5, cfg, llada.GenerateOptions{GenLength: 64, Steps: 4}))(t).GPU
	want := must(generate())(t)
	if loaded < 4<<20 {
		t.Errorf("%d bytes of weights loaded", loaded)
	}
	const plenty = 64 << 30
	for _, c := range []struct {
		name           string
		limit, claimed int64
		loads          bool
		text           string
	}{
		{"refused", plenty, 257 << 20, false, "the graph needs 0.04 GiB (weights 0.01 GiB"},
		{"in the arena", need.Held() - need.Weights - 1, plenty, false, "are held"},
		{"in the weights", need.Held() - 1, plenty, true, "are held"},
	} {
		t.Run(c.name, func(t *testing.T) {
			restore := cudaop.LimitMemory(c.limit, c.claimed)
			_, err := generate()
			restore()
			if !errors.Is(err, pulsecol.ErrMemory) || !strings.Contains(fmt.Sprint(err), c.text) {
				t.Errorf("error %v, want %v with %q", err, pulsecol.ErrMemory, c.text)
			}
			if c.loads != (loaded > 0) {
				t.Errorf("%d bytes loaded", loaded)
			}
			if held := gpu.Held(); held != 0 {
				t.Errorf("%d bytes held afterwards", held)
			}
			got := must(generate())(t)
			if fmt.Sprint(got.OutputIDs) != fmt.Sprint(want.OutputIDs) {
				t.Errorf("afterwards %v, before %v", got.OutputIDs, want.OutputIDs)
			}
		})
	}
}

// TestLoad: loading reports progress, and stops with its context.
func TestLoad(t *testing.T) {
	needGPU(t)
	m := must(llada.OpenFS(tinymodel.FS(), tinymodel.Weights()))(t)
	defer m.Close()
	cfg := pulsecol.Config{Device: pulsecol.CUDA}
	var seen []int64
	o := llada.GenerateOptions{GenLength: 8, Steps: 1}
	var total int64
	o.OnLoad = func(done, all int64) { seen, total = append(seen, done), all }
	must(m.Generate(t.Context(), []int32{7}, cfg, o))(t)
	if len(seen) < 10 || seen[0] != 0 || seen[len(seen)-1] != total {
		t.Errorf("reported %v, of %d", seen, total)
	}
	for i := range seen[1:] {
		if seen[i+1] <= seen[i] {
			t.Errorf("reported %d after %d", seen[i+1], seen[i])
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	o.OnLoad = func(int64, int64) {
		if calls++; calls == 3 {
			cancel()
		}
	}
	o.OnStep = func(models.Progress) { t.Error("a step") }
	if _, err := m.Generate(ctx, []int32{7}, cfg, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if calls != 3 {
		t.Errorf("%d reports, want 3", calls)
	}
	if held := gpu.Held(); held != 0 {
		t.Errorf("%d bytes held afterwards", held)
	}
}
