package llada

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/safetensors"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/models"
)

// tensors returns the weights of the reference model.
func tensors(t testing.TB) []safetensors.Tensor {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(golden.Dir(t, "llada"), "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	var out []safetensors.Tensor
	for _, name := range f.Names() {
		tensor, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, tensor)
	}
	return out
}

// directory writes a model directory of the reference model's config and the
// given files of tensors.
func directory(t testing.TB, files map[string][]safetensors.Tensor) string {
	t.Helper()
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join(golden.Dir(t, "llada"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, ts := range files {
		if err := safetensors.WriteFile(filepath.Join(dir, name), ts, nil); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// convert returns the tensors stored as another dtype.
func convert(t testing.TB, ts []safetensors.Tensor, to quant.DType) []safetensors.Tensor {
	t.Helper()
	var out []safetensors.Tensor
	for _, x := range ts {
		v, err := x.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		switch to {
		case quant.BF16:
			x.Data = make([]byte, 2*len(v))
			bf16.Encode(x.Data, v)
		case quant.F16:
			x.Data = make([]byte, 2*len(v))
			bf16.EncodeHalf(x.Data, v)
		case quant.F32:
			x = safetensors.FromFloat32s(x.Name, x.Shape, v)
		}
		x.DType = to
		out = append(out, x)
	}
	return out
}

func logits(t testing.TB, dir string, ids []int32) []float32 {
	t.Helper()
	m, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out, err := m.Logits(context.Background(), [][]int32{ids}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestShardsEqualOneFile(t *testing.T) {
	ts := tensors(t)
	ids := []int32{1, 2, 3, 319, 319}
	single := logits(t, directory(t, map[string][]safetensors.Tensor{"model.safetensors": ts}), ids)
	// Tensors of one block lie in different shards, as in published checkpoints.
	shards := map[string][]safetensors.Tensor{}
	var index []string
	for i, x := range ts {
		file := fmt.Sprintf("model-%05d-of-00002.safetensors", i%2+1)
		shards[file] = append(shards[file], x)
		index = append(index, fmt.Sprintf("%q: %q", x.Name, file))
	}
	dir := directory(t, shards)
	text := `{"metadata": {"total_size": 1}, "weight_map": {` + strings.Join(index, ", ") + "}}"
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(logits(t, dir, ids), single) {
		t.Error("logits differ")
	}
}

// Weights of 16 bits give what the same numbers give as float32.
func TestStorageTypes(t *testing.T) {
	ids := []int32{5, 6, 7, 8, 319, 319, 319}
	for _, typ := range []quant.DType{quant.BF16, quant.F16} {
		stored := convert(t, tensors(t), typ)
		got := logits(t, directory(t, map[string][]safetensors.Tensor{"model.safetensors": stored}), ids)
		wide := convert(t, stored, quant.F32)
		want := logits(t, directory(t, map[string][]safetensors.Tensor{"model.safetensors": wide}), ids)
		if !slices.Equal(got, want) {
			t.Errorf("%s: logits differ from those of the same values in F32", typ)
		}
	}
}

func TestTiedHead(t *testing.T) {
	ts := tensors(t)
	embed := slices.IndexFunc(ts, func(x safetensors.Tensor) bool { return x.Name == "model.transformer.wte.weight" })
	head := slices.IndexFunc(ts, func(x safetensors.Tensor) bool { return x.Name == "model.transformer.ff_out.weight" })
	same := slices.Clone(ts)
	same[head].Data = ts[embed].Data
	ids := []int32{9, 8, 7, 319}
	want := logits(t, directory(t, map[string][]safetensors.Tensor{"model.safetensors": same}), ids)

	dir := directory(t, map[string][]safetensors.Tensor{"model.safetensors": slices.Delete(slices.Clone(ts), head, head+1)})
	config, _ := os.ReadFile(filepath.Join(dir, "config.json"))
	config = []byte(strings.Replace(string(config), `"weight_tying": false`, `"weight_tying": true`, 1))
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(logits(t, dir, ids), want) {
		t.Error("logits of a tied head differ from those of a head with the embedding's values")
	}
}

func TestRequestErrors(t *testing.T) {
	m := openGolden(t)
	long := make([]int32, m.Config().Context)
	for name, c := range map[string]struct {
		prompt []int32
		cfg    pulsecol.Config
		o      GenerateOptions
		want   string
	}{
		"unknown token":     {[]int32{1, 320}, pulsecol.Config{}, GenerateOptions{}, "320"},
		"negative token":    {[]int32{-1}, pulsecol.Config{}, GenerateOptions{}, "-1"},
		"too long":          {long, pulsecol.Config{}, GenerateOptions{GenLength: 32}, "context of 512"},
		"steps":             {nil, pulsecol.Config{}, GenerateOptions{Steps: -1}, "steps -1"},
		"uneven blocks":     {nil, pulsecol.Config{}, GenerateOptions{GenLength: 32, BlockLength: 5}, "block_length 5"},
		"temperature":       {nil, pulsecol.Config{}, GenerateOptions{Temperature: -1}, "temperature -1"},
		"remasking":         {nil, pulsecol.Config{}, GenerateOptions{Remasking: "best"}, "best"},
		"sparsity":          {nil, pulsecol.Config{Sparsity: 1.5}, GenerateOptions{}, "1.5"},
		"negative length":   {nil, pulsecol.Config{}, GenerateOptions{GenLength: -4}, "-4"},
		"threshold, factor": {nil, pulsecol.Config{}, GenerateOptions{Threshold: 0.9, Factor: 1}, "factor"},
		"confidence type":   {nil, pulsecol.Config{}, GenerateOptions{ConfidenceDType: "f8"}, "f8"},
		"absurdly long":     {nil, pulsecol.Config{}, GenerateOptions{GenLength: 1 << 30}, "context"},
	} {
		res, err := m.Generate(context.Background(), c.prompt, c.cfg, c.o)
		if err == nil || res != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: result %v, error %v; want an error with %q", name, res, err, c.want)
		}
	}
}

var sparse = pulsecol.Config{Sparsity: 0.5, GroupSize: 16, Schedule: pulsecol.Uniform{Eta: 0.5, Refreshes: 3}}

// Rotary attention sees distances only, so padding on the left changes nothing
// but rounding.
func TestPaddedBatchEqualsSingles(t *testing.T) {
	m := openGolden(t)
	prompts := [][]int32{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {10, 11, 12}, {200, 100, 50, 25, 12, 6}}
	o := GenerateOptions{GenLength: 16, BlockLength: 8, Steps: 16}
	batch, err := m.GenerateBatch(context.Background(), prompts, pulsecol.Config{}, o)
	if err != nil {
		t.Fatal(err)
	}
	for b, prompt := range prompts {
		single, err := m.Generate(context.Background(), prompt, pulsecol.Config{}, o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(batch[b].OutputIDs, single.OutputIDs) || !slices.Equal(batch[b].PromptIDs, prompt) {
			t.Errorf("prompt %d: batch %v, alone %v", b, batch[b].OutputIDs, single.OutputIDs)
		}
	}
}

func TestPaddedLogitsEqualUnpadded(t *testing.T) {
	m := openGolden(t)
	ids := []int32{7, 8, 9, 10, 11, 12, 13}
	want, err := m.Logits(context.Background(), [][]int32{ids}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const pad = 4
	padded := append(make([]int32, pad), ids...)
	got, err := m.Logits(context.Background(), [][]int32{padded}, []int{pad})
	if err != nil {
		t.Fatal(err)
	}
	tol.Close(t, got[pad*m.Config().Vocab:], want, 1e-5)
}

// One seed gives one text: with any number of threads, in concurrent generations of one
// model, and with guidance, noise and sparse attention.
func TestSameSeedSameTokens(t *testing.T) {
	m := openGolden(t)
	prompt := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}
	o := GenerateOptions{GenLength: 16, Steps: 8, Temperature: 0.7, CFGScale: 0.5, Seed: 42}
	run := func() []int32 {
		res, err := m.Generate(context.Background(), prompt, sparse, o)
		if err != nil {
			t.Error(err)
			return nil
		}
		return res.OutputIDs
	}
	want := run()
	for _, procs := range []int{1, 3} {
		was := runtime.GOMAXPROCS(procs)
		if got := run(); !slices.Equal(got, want) {
			t.Errorf("GOMAXPROCS %d: %v, want %v", procs, got, want)
		}
		runtime.GOMAXPROCS(was)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if got := run(); !slices.Equal(got, want) {
				t.Errorf("side by side: %v, want %v", got, want)
			}
		})
	}
	wg.Wait()
	o.Seed = 43
	if slices.Equal(run(), want) {
		t.Error("another seed gives the same tokens at temperature 0.7")
	}
}

func TestCancellationReturnsWhatThereIs(t *testing.T) {
	m := openGolden(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	steps := 0
	res, err := m.Generate(ctx, []int32{1, 2, 3}, sparse, GenerateOptions{GenLength: 16, Steps: 16, OnStep: func(p models.Progress) {
		if steps++; p.Step != steps || p.Total != 16 || len(p.IDs[0]) != 19 || p.Prompt != 3 {
			t.Errorf("progress %+v at step %d", p, steps)
		}
		if steps == 5 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || res == nil {
		t.Fatalf("result %v, error %v", res, err)
	}
	open := 0
	for _, id := range res.OutputIDs {
		if id == m.Config().MaskID {
			open++
		}
	}
	if res.Steps != 5 || len(res.OutputIDs) != 16 || open < 11 {
		t.Errorf("%d steps, output %v", res.Steps, res.OutputIDs)
	}
}

func TestThresholdDecodingTakesFewerSteps(t *testing.T) {
	m := openGolden(t)
	res, err := m.Generate(context.Background(), []int32{1, 2, 3}, sparse, GenerateOptions{GenLength: 16, BlockLength: 8, Threshold: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	if res.Steps >= 16 || res.Steps < 2 || slices.Contains(res.OutputIDs, m.Config().MaskID) {
		t.Errorf("%d steps, output %v", res.Steps, res.OutputIDs)
	}
}

// Every attention method runs every step, and dense stays dense.
func TestMethods(t *testing.T) {
	m := openGolden(t)
	prompt := make([]int32, 50)
	for i := range prompt {
		prompt[i] = int32(i * 7 % 300)
	}
	for name, cfg := range map[string]pulsecol.Config{
		"window":    {Pattern: pulsecol.SlidingWindow{Width: 8}},
		"streaming": {Pattern: pulsecol.Streaming{Width: 8}},
		"sparsed":   {Sparsity: 0.7, Pattern: pulsecol.SparseD{BlockSize: 8}, Schedule: pulsecol.Skip{}},
		"blocks":    {Sparsity: 0.7, Pattern: pulsecol.Blocks{Size: 8}},
		"random":    {Sparsity: 0.7, Schedule: pulsecol.Random{Refreshes: 2}},
		"power":     {Sparsity: 0.7, Schedule: pulsecol.Power{Refreshes: 2}},
	} {
		res, err := m.Generate(context.Background(), prompt, cfg, GenerateOptions{GenLength: 16, Steps: 10, BlockLength: 16})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s := res.Stats
		if s.Steps != 10 || s.Dense+s.Refreshes+s.Reuses != 10 || s.Reuses == 0 {
			t.Errorf("%s: %+v", name, s)
		}
		for i, l := range s.Layers {
			if !(l.Density > 0 && l.Density < 0.7) {
				t.Errorf("%s: layer %d keeps %v of all pairs", name, i, l.Density)
			}
		}
	}
}

func TestWithoutTokenizer(t *testing.T) {
	m := openGolden(t)
	if _, err := m.Encode("text"); !errors.Is(err, models.ErrNoTokenizer) {
		t.Errorf("Encode: %v", err)
	}
	if _, err := m.EncodeChat([]models.Message{{Role: "user", Content: "text"}}); !errors.Is(err, models.ErrNoTokenizer) {
		t.Errorf("EncodeChat: %v", err)
	}
	if _, err := m.Decode([]int32{1}); !errors.Is(err, models.ErrNoTokenizer) {
		t.Errorf("Decode: %v", err)
	}
}

// After Close the weights are unmapped; touching them would end the process.
func TestClosedModel(t *testing.T) {
	m, err := Open(golden.Dir(t, "llada"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(context.Background(), []int32{1}, pulsecol.Config{}, GenerateOptions{GenLength: 4}); !errors.Is(err, models.ErrClosed) {
		t.Errorf("Generate: %v", err)
	}
	if _, err := m.Logits(context.Background(), [][]int32{{1}}, nil); !errors.Is(err, models.ErrClosed) {
		t.Errorf("Logits: %v", err)
	}
}
