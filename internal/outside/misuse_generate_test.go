package outside_test

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/llada"
)

// badLLaDA are options of LLaDA's sampler with one thing wrong.
func badLLaDA() map[string]llada.GenerateOptions {
	bad := map[string]llada.GenerateOptions{
		"length": {GenLength: -1}, "smallest length": {GenLength: math.MinInt}, "block": {GenLength: 4, BlockLength: -1}, "no divisor": {GenLength: 4, BlockLength: 3},
		"larger block": {GenLength: 4, BlockLength: 8}, "steps": {GenLength: 4, BlockLength: 4, Steps: -1}, "uneven steps": {GenLength: 4, BlockLength: 2, Steps: 3},
		"remasking": {GenLength: 4, BlockLength: 4, Steps: 2, Remasking: "none"}, "dtype": {GenLength: 4, BlockLength: 4, Steps: 2, ConfidenceDType: "f8"},
		"threshold and factor": {GenLength: 4, BlockLength: 4, Steps: 2, Threshold: 0.5, Factor: 1}, "huge": {GenLength: math.MaxInt, BlockLength: math.MaxInt, Steps: 1},
	}
	for i, x := range []float64{-1, math.NaN(), math.Inf(-1), math.Inf(1)} {
		o := llada.GenerateOptions{GenLength: 4, BlockLength: 4, Steps: 2}
		o.Temperature = x
		bad[fmt.Sprint("temperature ", i)] = o
		o.Temperature, o.CFGScale = 0, x
		bad[fmt.Sprint("guidance ", i)] = o
		o.CFGScale, o.Threshold = 0, x
		bad[fmt.Sprint("threshold ", i)] = o
		o.Threshold, o.Factor = 0, x
		bad[fmt.Sprint("factor ", i)] = o
	}
	return bad
}

// badDream are options of Dream's sampler with one thing wrong.
func badDream() map[string]dream.GenerateOptions {
	bad := map[string]dream.GenerateOptions{
		"length": {MaxNewTokens: -1}, "smallest length": {MaxNewTokens: math.MinInt}, "steps": {MaxNewTokens: 4, Steps: -1}, "huge": {MaxNewTokens: math.MaxInt, Steps: 1},
		"algorithm": {MaxNewTokens: 4, Steps: 2, Alg: "none"}, "dtype": {MaxNewTokens: 4, Steps: 2, ConfidenceDType: "f8"}, "top k": {MaxNewTokens: 4, Steps: 2, TopK: -1},
		"top p": {MaxNewTokens: 4, Steps: 2, TopP: 1.5}, "eps": {MaxNewTokens: 4, Steps: 2, Eps: 1.5},
		"threshold": {MaxNewTokens: 4, Steps: 2, Alg: "confidence_threshold", Threshold: 2},
	}
	for i, x := range []float64{-1, math.NaN(), math.Inf(-1), math.Inf(1)} {
		o := dream.GenerateOptions{MaxNewTokens: 4, Steps: 2}
		o.Temperature = x
		bad[fmt.Sprint("temperature ", i)] = o
		o.Temperature, o.AlgTemp = 0, x
		bad[fmt.Sprint("algorithm's temperature ", i)] = o
		o.AlgTemp, o.TopP = 0, x
		bad[fmt.Sprint("top p ", i)] = o
		o.TopP, o.Eps = 0, x
		bad[fmt.Sprint("eps ", i)] = o
		o.Eps, o.Alg, o.Threshold = 0, "confidence_threshold", x
		bad[fmt.Sprint("threshold ", i)] = o
	}
	return bad
}

// generations adds the cases of what runs a model.
func (a *architecture[O]) generations(cases map[string]func(*misuse), closed func(*misuse) aModel[O]) {
	full := pulsecol.Config{}
	run := func(m *misuse, generate func(of aModel[O], ctx context.Context, prompt []int32, cfg pulsecol.Config, o O) error) {
		of := a.model(m)
		for name, ids := range badIDs(of.Config()) {
			m.fails(name, func() error { return generate(of, m.Context(), ids, full, a.small) }, models.ErrRequest)
		}
		for name, o := range a.bad {
			m.fails(name, func() error { return generate(of, m.Context(), []int32{1}, full, o) }, models.ErrRequest)
		}
		for name, cfg := range badModelConfigs() {
			m.fails(name, func() error { return generate(of, m.Context(), []int32{1}, cfg, a.small) })
		}
		done, cancel := context.WithCancel(m.Context())
		cancel()
		m.fails("done", func() error { return generate(of, done, []int32{1}, full, a.small) }, context.Canceled)
		m.fails("no context", func() error { return generate(of, nil, []int32{1}, full, a.small) })
		m.works("no prompt", func() error { return generate(of, m.Context(), nil, full, a.small) })
		m.fails("closed", func() error { return generate(closed(m), m.Context(), []int32{1}, full, a.small) }, models.ErrClosed)
	}
	cases["Model.Generate"] = func(m *misuse) {
		run(m, func(of aModel[O], ctx context.Context, prompt []int32, cfg pulsecol.Config, o O) error {
			return second(of.Generate(ctx, prompt, cfg, o))
		})
	}
	cases["Model.GenerateBatch"] = func(m *misuse) {
		run(m, func(of aModel[O], ctx context.Context, prompt []int32, cfg pulsecol.Config, o O) error {
			return second(of.GenerateBatch(ctx, [][]int32{prompt, {1}}, cfg, o))
		})
		of := a.model(m)
		m.fails("no prompts", func() error { return second(of.GenerateBatch(m.Context(), nil, full, a.small)) }, models.ErrRequest)
	}
	a.sessions(cases, closed, run)
	cases["Model.Steps"] = func(m *misuse) {
		of := a.model(m)
		for name, o := range a.bad {
			if name != "huge" && name != "smallest length" { // whether it fits is for the generation to say
				m.fails(name, func() error { return second(of.Steps([][]int32{{1}}, full, o)) }, models.ErrRequest)
			}
		}
		m.does("no prompts", func() { of.Steps(nil, full, a.small) })
		m.does("closed", func() { closed(m).Steps([][]int32{{1}}, full, a.small) })
	}
	cases["Model.PredictMemory"] = func(m *misuse) {
		of := a.model(m)
		for _, n := range []int{-1, math.MinInt, math.MaxInt, 1 << 40} {
			m.fails(fmt.Sprint("a batch of ", n), func() error { return second(of.PredictMemory(n, 4, full, a.small)) }, models.ErrRequest)
			m.fails(fmt.Sprint("a prompt of ", n), func() error { return second(of.PredictMemory(1, n, full, a.small)) }, models.ErrRequest)
		}
		m.fails("no batch", func() error { return second(of.PredictMemory(0, 4, full, a.small)) }, models.ErrRequest)
		for name, cfg := range badModelConfigs() {
			m.fails(name, func() error { return second(of.PredictMemory(1, 4, cfg, a.small)) })
		}
		for name, o := range a.bad {
			m.does(name, func() { of.PredictMemory(1, 4, full, o) })
		}
		m.fails("closed", func() error { return second(closed(m).PredictMemory(1, 4, full, a.small)) }, models.ErrClosed)
	}
	cases["Model.Logits"] = func(m *misuse) {
		of := a.model(m)
		logits := func(ids [][]int32, padding []int) error { return second(of.Logits(m.Context(), ids, padding)) }
		for name, ids := range badIDs(of.Config()) {
			m.fails(name, func() error { return logits([][]int32{ids}, nil) }, models.ErrRequest)
		}
		for name, ids := range map[string][][]int32{"nil": nil, "empty": {{}}, "ragged": {{1, 2}, {1}}} {
			m.fails(name, func() error { return logits(ids, nil) }, models.ErrRequest)
		}
		for _, p := range [][]int{{}, {1, 1}, {-1}, {3}, {math.MaxInt}, {math.MinInt}} {
			err := m.call(fmt.Sprint("padding ", p), func() error { return logits([][]int32{{1, 2}}, p) })
			if err == nil && len(p) > 0 || err != nil && !errors.Is(err, models.ErrRequest) {
				m.Errorf("padding %v: %v", p, err)
			}
		}
		m.fails("no context", func() error { return second(of.Logits(nil, [][]int32{{1}}, nil)) })
		m.fails("closed", func() error { return second(closed(m).Logits(m.Context(), [][]int32{{1}}, nil)) }, models.ErrClosed)
	}
}

var _ = misuses(map[string]func(*misuse){
	"models.Config.Parameters": func(m *misuse) {
		m.is("zero", func() any { return models.Config{}.Parameters() }, 0)
		m.does("huge", func() { models.Config{Layers: math.MaxInt, Hidden: math.MaxInt, Heads: -1}.Parameters() })
	},
	"models.Shape.Tokens": func(m *misuse) {
		m.is("zero", func() any { return models.Shape{}.Tokens() }, 0)
		m.is("smallest", func() any { return models.Shape{Len: math.MinInt, Cached: -1}.Tokens() }, -1)
	},
	"models.GGUFTypes": func(m *misuse) {
		m.does("changed", func() { models.GGUFTypes()[0] = "" })
		if models.GGUFTypes()[0] == "" {
			m.Error("a caller changes the list")
		}
	},
	"models.Memory.Total": func(m *misuse) {
		m.is("zero", func() any { return models.Memory{}.Total() }, 0)
		m.does("huge", func() { models.Memory{Weights: math.MaxInt64, Columns: math.MaxInt64}.Total() })
	},
})
