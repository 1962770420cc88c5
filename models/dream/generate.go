package dream

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/models/internal/session"
)

// GenerateOptions are the options of Dream's diffusion_generate, and of
// confidence-threshold parallel decoding. A zero field takes the value of the model's
// generation_config.json, or without one the default given here.
type GenerateOptions struct {
	// MaxNewTokens is the number of masks appended to the prompt; 128. Masks inside
	// the prompt are filled too, and InfillOnly fills only those.
	MaxNewTokens int
	InfillOnly   bool

	// BlockLength is the number of tokens of a block, a divisor of MaxNewTokens: blocks are
	// filled from left to right, each in its share of the steps. 0 = MaxNewTokens, one
	// block, as published.
	BlockLength int

	Steps int     // denoising steps; 512, or if fewer tokens are generated, their number
	Eps   float64 // the last timestep; 0.001

	// Alg selects the positions to fill: "origin" (default: at random), "maskgit_plus"
	// (probability), "topk_margin" (margin to the second token), "entropy", or
	// "confidence_threshold". The last fills in each step, within the step's number of
	// masks, every position whose confidence is at least Threshold (0.9), and at least one.
	Alg       string
	AlgTemp   float64 // temperature of that selection; 0 is deterministic
	Threshold float64

	Temperature float64 // of the tokens; 0 is greedy
	TopP        float64 // nucleus; 1 (all)
	TopK        int     // 0 is all

	// SuppressMask excludes the mask token from predictions. Without it, as in the published
	// code, a model may predict the mask token, which leaves masks in the output.
	// "confidence_threshold" always excludes it.
	SuppressMask bool

	// ConfidenceDType rounds confidences before they are compared: "f32" (default),
	// "bf16" (as the published code does on a bf16 model) or "f64".
	ConfidenceDType string

	// FirstTokenAtPrefill fills the first token of a block in its prefill, as Fast-dLLM's code
	// for Dream does. It is for comparison, and needs a Config with a Cache and PrefillEvery 1.
	FirstTokenAtPrefill bool

	Seed   uint64
	OnLoad func(done, total int64) // called while a GPU gets the weights, with bytes; may be nil
	OnStep func(models.Progress)   // called after every step; may be nil

	complete bool // made by Options
}

// parseGeneration reads the defaults of a generation_config.json.
func parseGeneration(file jsonfile.File) (o GenerateOptions, err error) {
	if file.Text == nil {
		return o, nil
	}
	var j struct {
		MaxNewTokens *int     `json:"max_new_tokens"`
		Steps        *int     `json:"steps"`
		Eps          *float64 `json:"eps"`
		Alg          *string  `json:"alg"`
		AlgTemp      *float64 `json:"alg_temp"`
		Temperature  *float64 `json:"temperature"`
		TopP         *float64 `json:"top_p"`
		TopK         *int     `json:"top_k"`
	}
	v, err := checkpoint.DecodeConfig(file, &j)
	if err != nil {
		return o, err
	}
	o = GenerateOptions{
		MaxNewTokens: checkpoint.Or(j.MaxNewTokens), Steps: checkpoint.Or(j.Steps), Eps: checkpoint.Or(j.Eps), Alg: checkpoint.Or(j.Alg),
		AlgTemp: checkpoint.Or(j.AlgTemp), Temperature: checkpoint.Or(j.Temperature), TopP: checkpoint.Or(j.TopP), TopK: checkpoint.Or(j.TopK),
	}
	v.Check(o.MaxNewTokens >= 0, "max_new_tokens", "is %d, want at least 1", o.MaxNewTokens)
	v.Check(o.Steps >= 0, "steps", "is %d, want at least 1", o.Steps)
	v.Check(o.Eps >= 0 && o.Eps < 1, "eps", "is %v, want a number between 0 and 1", o.Eps)
	v.Check(o.Temperature >= 0, "temperature", "is %v, want at least 0", o.Temperature)
	v.Check(o.AlgTemp >= 0, "alg_temp", "is %v, want at least 0", o.AlgTemp)
	v.Check(j.TopP == nil || o.TopP > 0 && o.TopP <= 1, "top_p", "is %v, want above 0, at most 1", o.TopP)
	v.Check(o.TopK >= 0, "top_k", "is %d, want at least 0", o.TopK)
	return o, v.Err()
}

// Options returns o with the defaults filled in. The result is complete: a field
// set to zero afterwards, such as a Temperature that generation_config.json gives,
// stays zero.
func (m *Model) Options(o GenerateOptions) GenerateOptions {
	if o.complete {
		return o
	}
	o.complete = true
	d := m.defaults
	if o.InfillOnly {
		o.MaxNewTokens = 0
	} else {
		o.MaxNewTokens = firstNonZero(o.MaxNewTokens, d.MaxNewTokens, 128)
	}
	if o.Steps == 0 {
		o.Steps = firstNonZero(d.Steps, 512)
		if o.MaxNewTokens > 0 {
			o.Steps = min(o.Steps, o.MaxNewTokens)
		}
	}
	o.BlockLength = firstNonZero(o.BlockLength, o.MaxNewTokens)
	o.Eps = firstNonZero(o.Eps, d.Eps, 1e-3)
	o.Alg = firstNonZero(o.Alg, d.Alg, string(sampler.Origin))
	o.AlgTemp = firstNonZero(o.AlgTemp, d.AlgTemp)
	o.Temperature = firstNonZero(o.Temperature, d.Temperature)
	o.TopP = firstNonZero(o.TopP, d.TopP, 1)
	o.TopK = firstNonZero(o.TopK, d.TopK)
	if o.Alg == string(sampler.ConfidenceThreshold) {
		o.Threshold = firstNonZero(o.Threshold, 0.9)
	}
	return o
}

// checkPrefills returns an error unless each block begins with a prefill if its first token is
// filled there. The sampler checks that there is a cache.
func (o *GenerateOptions) checkPrefills(cfg pulsecol.Config) error {
	if o.FirstTokenAtPrefill && cfg.Cache != pulsecol.NoCache && cfg.PrefillEvery != 1 {
		return fmt.Errorf("dream: %w: FirstTokenAtPrefill with Config.PrefillEvery %d, want 1: the first step of every block is a prefill",
			models.ErrRequest, cfg.PrefillEvery)
	}
	return nil
}

// firstNonZero returns the first of v that is not zero, or zero.
func firstNonZero[T comparable](v ...T) (zero T) {
	for _, x := range v {
		if x != zero {
			return x
		}
	}
	return zero
}

// Generate writes a response to prompt, token ids of any number from 0, with
// attention as configured by cfg. An interrupted generation returns the sequence so far
// along with the context's error.
func (m *Model) Generate(ctx context.Context, prompt []int32, cfg pulsecol.Config, o GenerateOptions) (*models.Result, error) {
	return session.First(m.GenerateBatch(ctx, [][]int32{prompt}, cfg, o))
}

// GenerateBatch is Generate for several prompts in one batch. Shorter prompts are
// padded on the left and masked, and positions count from the first real token.
func (m *Model) GenerateBatch(ctx context.Context, prompts [][]int32, cfg pulsecol.Config, o GenerateOptions) ([]models.Result, error) {
	s, err := m.NewSession(cfg)
	if err != nil {
		return nil, err
	}
	results, err := s.GenerateBatch(ctx, prompts, o)
	return results, errors.Join(err, s.Close())
}

// generation returns the options that are not the sampler's.
func generation(o GenerateOptions) session.Generation {
	return session.Generation{NewTokens: o.MaxNewTokens, BlockLength: o.BlockLength, OnLoad: o.OnLoad, OnStep: o.OnStep}
}

// Steps returns the number of denoising steps of a generation, T of the refresh schedule.
// With a confidence threshold it is an upper bound, and so it may be with cfg.Cache; nothing
// else of cfg changes it. Options that are invalid are an error, also together with cfg.
func (m *Model) Steps(prompts [][]int32, cfg pulsecol.Config, o GenerateOptions) (int, error) {
	if err := o.checkPrefills(cfg); err != nil {
		return 0, err
	}
	return m.base.TotalSteps(m.sampler(m.Options(o), cfg.Cache, nil), prompts)
}

func (m *Model) sampler(o GenerateOptions, cache pulsecol.Cache, onStep func(sampler.StepInfo)) sampler.Dream {
	return sampler.Dream{
		MaxNewTokens: o.MaxNewTokens, BlockLength: o.BlockLength, Steps: o.Steps, Eps: o.Eps,
		Cached: cache != pulsecol.NoCache, FirstTokenAtPrefill: o.FirstTokenAtPrefill,
		Alg: sampler.Alg(o.Alg), AlgTemp: o.AlgTemp, Threshold: o.Threshold,
		Temperature: o.Temperature, TopP: o.TopP, TopK: o.TopK,
		ConfidenceDType: lmhead.Rounding(o.ConfidenceDType),
		MaskID:          m.base.Config.MaskID, SuppressMask: o.SuppressMask, Seed: o.Seed, OnStep: onStep,
	}
}

// PredictMemory returns the peak memory of generating from prompts of promptLength
// tokens, without the program itself.
func (m *Model) PredictMemory(batch, promptLength int, cfg pulsecol.Config, o GenerateOptions) (models.Memory, error) {
	return m.base.PredictMemory(batch, promptLength, cfg, generation(m.Options(o)))
}
