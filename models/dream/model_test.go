package dream

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
)

var sparse = pulsecol.Config{Sparsity: 0.5, GroupSize: 16, Schedule: pulsecol.Uniform{Eta: 0.5, Refreshes: 3}}

func TestRequestErrors(t *testing.T) {
	m := openGolden(t)
	for name, c := range map[string]struct {
		prompt []int32
		cfg    pulsecol.Config
		o      GenerateOptions
		want   string
	}{
		"unknown token":   {[]int32{1, 300}, pulsecol.Config{}, GenerateOptions{}, "300"},
		"too long":        {make([]int32, 500), pulsecol.Config{}, GenerateOptions{MaxNewTokens: 13}, "context of 512"},
		"steps":           {nil, pulsecol.Config{}, GenerateOptions{Steps: -1}, "steps -1"},
		"eps":             {nil, pulsecol.Config{}, GenerateOptions{Eps: 2}, "eps 2"},
		"alg":             {nil, pulsecol.Config{}, GenerateOptions{Alg: "best"}, "best"},
		"alg_temp":        {nil, pulsecol.Config{}, GenerateOptions{AlgTemp: -1}, "alg_temp -1"},
		"temperature":     {nil, pulsecol.Config{}, GenerateOptions{Temperature: -1}, "temperature -1"},
		"top_p":           {nil, pulsecol.Config{}, GenerateOptions{TopP: 1.5}, "top_p 1.5"},
		"top_k":           {nil, pulsecol.Config{}, GenerateOptions{TopK: -1}, "top_k -1"},
		"group":           {nil, pulsecol.Config{GroupSize: -1}, GenerateOptions{}, "-1"},
		"window":          {nil, pulsecol.Config{Schedule: pulsecol.Uniform{Eta: 2}}, GenerateOptions{}, "2"},
		"nothing to fill": {[]int32{1, 2}, pulsecol.Config{}, GenerateOptions{InfillOnly: true}, "mask"},
		"negative length": {nil, pulsecol.Config{}, GenerateOptions{MaxNewTokens: -4}, "-4"},
	} {
		res, err := m.Generate(context.Background(), c.prompt, c.cfg, c.o)
		if err == nil || res != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: result %v, error %v; want an error with %q", name, res, err, c.want)
		}
	}
}

// Rotary attention sees distances only, and positions count from the first real
// token anyway.
func TestPaddedBatchEqualsSingles(t *testing.T) {
	m := openGolden(t)
	prompts := [][]int32{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {10, 11, 12}, {200, 100, 50, 25, 12, 6}}
	o := GenerateOptions{MaxNewTokens: 16, Steps: 8, Alg: "maskgit_plus", SuppressMask: true}
	batch, err := m.GenerateBatch(context.Background(), prompts, pulsecol.Config{}, o)
	if err != nil {
		t.Fatal(err)
	}
	for b, prompt := range prompts {
		single, err := m.Generate(context.Background(), prompt, pulsecol.Config{}, o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(batch[b].OutputIDs, single.OutputIDs) {
			t.Errorf("prompt %d: batch %v, alone %v", b, batch[b].OutputIDs, single.OutputIDs)
		}
	}
}

// Masks inside the prompt are filled, the rest of it stays.
func TestInfilling(t *testing.T) {
	m := openGolden(t)
	mask := m.Config().MaskID
	prompt := []int32{5, 6, mask, mask, 7, 8, mask, 9}
	for _, o := range []GenerateOptions{
		{InfillOnly: true, Steps: 3, Alg: "entropy", SuppressMask: true},
		{MaxNewTokens: 4, Steps: 3, Alg: "entropy", SuppressMask: true},
	} {
		res, err := m.Generate(context.Background(), prompt, sparse, o)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(res.Filled, mask) || len(res.OutputIDs) != o.MaxNewTokens || len(res.Filled) != len(prompt)+o.MaxNewTokens {
			t.Errorf("output %v of %v", res.OutputIDs, res.Filled)
		}
		for i, id := range prompt {
			if got := res.Filled[i]; (id == mask) == (got == id) {
				t.Errorf("position %d: %d became %d", i, id, got)
			}
		}
	}
}

func TestSameSeedSameTokens(t *testing.T) {
	m := openGolden(t)
	for _, alg := range []string{"origin", "maskgit_plus", "topk_margin", "entropy"} {
		o := GenerateOptions{MaxNewTokens: 16, Steps: 8, Alg: alg, Temperature: 0.7, TopP: 0.9, AlgTemp: 0.3, Seed: 42}
		run := func() []int32 {
			res, err := m.Generate(context.Background(), []int32{3, 1, 4, 1, 5}, sparse, o)
			if err != nil {
				t.Fatal(err)
			}
			return res.OutputIDs
		}
		want := run()
		was := runtime.GOMAXPROCS(3)
		if got := run(); !slices.Equal(got, want) {
			t.Errorf("%s, GOMAXPROCS 3: %v, want %v", alg, got, want)
		}
		runtime.GOMAXPROCS(was)
		o.Seed = 43
		if slices.Equal(run(), want) {
			t.Errorf("%s: another seed gives the same tokens at temperature 0.7", alg)
		}
	}
}

func TestConfidenceThreshold(t *testing.T) {
	m := openGolden(t)
	res, err := m.Generate(context.Background(), []int32{1, 2, 3}, sparse, GenerateOptions{
		MaxNewTokens: 16, Steps: 4, Alg: "confidence_threshold", Threshold: 0.1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Steps < 4 || res.Steps > 16 || slices.Contains(res.OutputIDs, m.Config().MaskID) {
		t.Errorf("%d steps, output %v", res.Steps, res.OutputIDs)
	}
}

func TestCancellationReturnsWhatThereIs(t *testing.T) {
	m := openGolden(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	res, err := m.Generate(ctx, []int32{1, 2, 3}, sparse, GenerateOptions{MaxNewTokens: 16, Steps: 16, Alg: "entropy", OnStep: func(p models.Progress) {
		if p.Step == 5 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || res == nil || res.Steps != 5 || len(res.OutputIDs) != 16 {
		t.Fatalf("result %+v, error %v", res, err)
	}
}

func TestGenerationConfigErrorsNameTheField(t *testing.T) {
	for text, field := range map[string]string{
		`{"max_new_tokens": -5}`: "max_new_tokens",
		`{"steps": -1}`:          "steps",
		`{"eps": 2}`:             "eps",
		`{"temperature": -5}`:    "temperature",
		`{"alg_temp": -1}`:       "alg_temp",
		`{"top_p": 0}`:           "top_p",
		`{"top_k": -1}`:          "top_k",
		`{"alg": 3}`:             "alg",
	} {
		if _, err := parseGeneration(modeltest.File(text)); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v does not name %s", text, err, field)
		}
	}
}
