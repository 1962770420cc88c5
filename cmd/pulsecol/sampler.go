package main

import (
	"context"
	"slices"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/llada"
)

// samplerFlags are the options of both models' samplers.
type samplerFlags struct {
	Steps           *int     `group:"Sampler" placeholder:"N" help:"Denoising steps. Default: as many as tokens; Dream at most 512."`
	Temperature     *float64 `group:"Sampler" placeholder:"T" help:"Randomness of the tokens; 0 takes the most probable. Default: the model's, else 0."`
	Threshold       *float64 `group:"Sampler" placeholder:"P" help:"Commit every token at least this sure in one step. LLaDA: instead of --steps. Dream: with --alg confidence_threshold. Default: off; Dream 0.9."`
	BlockLength     *int     `group:"Sampler" placeholder:"N" help:"Tokens of a block; blocks are filled from left to right. Divides --gen-length or --max-new-tokens, and --steps is a multiple of the number of blocks. Default: the model's, else one block."`
	ConfidenceDType *string  `name:"confidence-dtype" group:"Sampler" enum:"f32,bf16,f64" placeholder:"TYPE" help:"Round confidences to f32, bf16 (as the published code on a bf16 model) or f64. Default: f32."`
	SuppressMask    bool     `group:"Sampler" help:"Never predict the mask token. Without it, as in the published code, a token predicted to be a mask stays one."`
	Seed            uint64   `group:"Sampler" placeholder:"N" default:"0" help:"Seed of everything random. Default: 0."`

	GenLength *int     `group:"LLaDA's sampler" model:"llada" placeholder:"N" help:"Tokens to generate. Default: the model's, else 128."`
	CFGScale  *float64 `name:"cfg-scale" group:"LLaDA's sampler" model:"llada" placeholder:"W" help:"Classifier-free guidance. Default: 0, off."`
	Remasking *string  `group:"LLaDA's sampler" model:"llada" enum:"low_confidence,random" placeholder:"RULE" help:"Order of filling: low_confidence (the most confident first) or random. Default: low_confidence."`
	Factor    *float64 `group:"LLaDA's sampler" model:"llada" placeholder:"F" help:"Commit the n-th most confident token while its confidence is at least 1-F/(n+1); instead of --steps."`
	NoEOS     bool     `name:"no-eos" group:"LLaDA's sampler" model:"llada" help:"Never predict end-of-text."`
	LateEOS   bool     `name:"late-eos" group:"LLaDA's sampler" model:"llada" help:"Commit end-of-text and end-of-turn last."`

	MaxNewTokens *int     `group:"Dream's sampler" model:"Dream" placeholder:"N" help:"Tokens to generate. Default: the model's, else 128."`
	Infill       bool     `group:"Dream's sampler" model:"Dream" help:"Only fill the mask tokens inside the prompt; the output is then the whole text."`
	Eps          *float64 `group:"Dream's sampler" model:"Dream" placeholder:"T" help:"The last timestep. Default: 0.001."`
	Alg          *string  `group:"Dream's sampler" model:"Dream" enum:"origin,maskgit_plus,topk_margin,entropy,confidence_threshold" placeholder:"NAME" help:"What to fill first: origin (at random), maskgit_plus, topk_margin, entropy or confidence_threshold. Default: the model's, else origin."`
	AlgTemp      *float64 `group:"Dream's sampler" model:"Dream" placeholder:"T" help:"Randomness of that order. Default: 0."`
	TopP         *float64 `group:"Dream's sampler" model:"Dream" placeholder:"P" help:"Draw from the most probable tokens that make up P. Default: 1, all."`
	TopK         *int     `group:"Dream's sampler" model:"Dream" placeholder:"K" help:"Draw from the K most probable tokens. Default: 0, all."`

	FirstTokenAtPrefill bool `group:"Dream's sampler" model:"Dream" help:"Fill the first token of a block in its prefill, as Fast-dLLM does, for comparison. With --cache and --prefill-every 1, then the default, and --alg entropy or confidence_threshold."`
}

// sampler is a model with the options of its generations.
type sampler interface {
	newTokens() int
	blockLength() int
	fillsAtPrefill() bool                                   // each block's first token
	steps(prompt []int32, cfg pulsecol.Config) (int, error) // of a generation; an error for invalid options
	onLoad(report func(done, total int64))                  // called while weights are copied to a GPU, in bytes
	generate(ctx context.Context, prompt []int32, cfg pulsecol.Config, onStep func(models.Progress)) (*models.Result, error)
	generateIn(ctx context.Context, in session, prompts [][]int32, onStep func(models.Progress)) ([]models.Result, error)
	independent(prompts [][]int32, cache pulsecol.Cache) bool // whether prompts of one length have the same output in a batch as alone
	memory(batch, promptLength int, cfg pulsecol.Config) (models.Memory, error)
}

// configure returns m with the sampler options that the flags set.
func (f *samplerFlags) configure(m *openModel, line *kong.Context) (sampler, error) {
	if err := checkApplies(line, "model", m.kind(), "a "+m.kind()+" model"); err != nil {
		return nil, err
	}
	if f.Infill && f.MaxNewTokens != nil {
		return nil, usagef("--infill and --max-new-tokens can't be used together")
	}
	if f.Infill && f.BlockLength != nil {
		return nil, usagef("--infill and --block-length can't be used together")
	}
	if m.kind() == "llada" && f.Steps != nil && (f.Threshold != nil || f.Factor != nil) {
		return nil, usagef("--steps does not apply with --threshold or --factor, which take as many as they need")
	}
	var b bounds
	b.atLeast(1, "steps", f.Steps)
	b.nonNegative("temperature", f.Temperature)
	b.share(true, "threshold", f.Threshold)
	context := m.config().Context
	b.between(1, context, "gen-length", f.GenLength)
	b.between(1, context, "block-length", f.BlockLength)
	b.interval(0, maxScale, "cfg-scale", f.CFGScale)
	b.positive("factor", f.Factor)
	b.between(1, context, "max-new-tokens", f.MaxNewTokens)
	b.inside(0, 1, "eps", f.Eps)
	b.nonNegative("alg-temp", f.AlgTemp)
	b.share(true, "top-p", f.TopP)
	b.atLeast(0, "top-k", f.TopK)
	return m.sampler(f), b.err()
}

type lladaSampler struct {
	lladaModel
	o llada.GenerateOptions
}

func (m lladaModel) sampler(f *samplerFlags) sampler {
	// Flags that are not given take the model's default. Flags given as zero are set
	// afterwards.
	o := m.Options(llada.GenerateOptions{
		GenLength: or(f.GenLength, 0), BlockLength: or(f.BlockLength, 0), Steps: or(f.Steps, 0),
		CFGScale: or(f.CFGScale, 0), Remasking: or(f.Remasking, ""), Threshold: or(f.Threshold, 0), Factor: or(f.Factor, 0),
		ConfidenceDType: or(f.ConfidenceDType, ""), SuppressMask: f.SuppressMask,
		NoEOS: f.NoEOS, LateEOS: f.LateEOS, Seed: f.Seed,
	})
	o.Temperature = or(f.Temperature, o.Temperature)
	return &lladaSampler{m, o}
}

func (s *lladaSampler) newTokens() int { return s.o.GenLength }

func (s *lladaSampler) blockLength() int     { return s.o.BlockLength }
func (s *lladaSampler) fillsAtPrefill() bool { return false }

func (s *lladaSampler) onLoad(report func(done, total int64)) { s.o.OnLoad = report }

func (s *lladaSampler) steps(prompt []int32, cfg pulsecol.Config) (int, error) {
	return s.Steps([][]int32{prompt}, cfg, s.o)
}

func (s *lladaSampler) generate(ctx context.Context, prompt []int32, cfg pulsecol.Config, onStep func(models.Progress)) (*models.Result, error) {
	o := s.o
	o.OnStep = onStep
	return s.Generate(ctx, prompt, cfg, o)
}

func (s *lladaSampler) generateIn(ctx context.Context, in session, prompts [][]int32, onStep func(models.Progress)) ([]models.Result, error) {
	o := s.o
	o.OnStep = onStep
	return in.(*llada.Session).GenerateBatch(ctx, prompts, o)
}

// independent: random numbers depend on a sequence's index in the batch, and with a
// threshold a block ends for all sequences together.
func (s *lladaSampler) independent([][]int32, pulsecol.Cache) bool {
	return s.o.Temperature == 0 && s.o.Remasking != "random" && s.o.Threshold == 0 && s.o.Factor == 0
}

func (s *lladaSampler) memory(batch, promptLength int, cfg pulsecol.Config) (models.Memory, error) {
	return s.PredictMemory(batch, promptLength, cfg, s.o)
}

type dreamSampler struct {
	dreamModel
	o dream.GenerateOptions
}

func (m dreamModel) sampler(f *samplerFlags) sampler {
	o := m.Options(dream.GenerateOptions{
		MaxNewTokens: or(f.MaxNewTokens, 0), InfillOnly: f.Infill, BlockLength: or(f.BlockLength, 0), Steps: or(f.Steps, 0), Eps: or(f.Eps, 0),
		Alg: or(f.Alg, ""), Threshold: or(f.Threshold, 0), TopP: or(f.TopP, 0),
		ConfidenceDType: or(f.ConfidenceDType, ""), SuppressMask: f.SuppressMask, FirstTokenAtPrefill: f.FirstTokenAtPrefill, Seed: f.Seed,
	})
	o.Temperature = or(f.Temperature, o.Temperature)
	o.AlgTemp = or(f.AlgTemp, o.AlgTemp)
	o.TopK = or(f.TopK, o.TopK)
	return &dreamSampler{m, o}
}

func (s *dreamSampler) newTokens() int { return s.o.MaxNewTokens }

func (s *dreamSampler) blockLength() int     { return s.o.BlockLength }
func (s *dreamSampler) fillsAtPrefill() bool { return s.o.FirstTokenAtPrefill }

func (s *dreamSampler) onLoad(report func(done, total int64)) { s.o.OnLoad = report }

func (s *dreamSampler) steps(prompt []int32, cfg pulsecol.Config) (int, error) {
	cached := cfg.Cache != pulsecol.NoCache
	switch {
	case cached && s.o.InfillOnly:
		return 0, usagef("--infill and --cache %v can't be used together", cfg.Cache)
	case s.o.FirstTokenAtPrefill && !cached:
		return 0, usagef("--first-token-at-prefill needs --cache prefix or dual")
	case s.o.FirstTokenAtPrefill && cfg.PrefillEvery != 1:
		return 0, usagef("--first-token-at-prefill needs --prefill-every 1: the first step of every block is a prefill")
	}
	return s.Steps([][]int32{prompt}, cfg, s.o)
}

func (s *dreamSampler) generate(ctx context.Context, prompt []int32, cfg pulsecol.Config, onStep func(models.Progress)) (*models.Result, error) {
	o := s.o
	o.OnStep = onStep
	return s.Generate(ctx, prompt, cfg, o)
}

func (s *dreamSampler) generateIn(ctx context.Context, in session, prompts [][]int32, onStep func(models.Progress)) ([]models.Result, error) {
	o := s.o
	o.OnStep = onStep
	return in.(*dream.Session).GenerateBatch(ctx, prompts, o)
}

// independent: origin, the default, fills random positions. Every sequence fills the same
// number in a step, which depends on the mean of their masks. With a cache the mask is never
// predicted.
func (s *dreamSampler) independent(prompts [][]int32, cache pulsecol.Cache) bool {
	predicted := !s.o.SuppressMask && cache == pulsecol.NoCache
	masks := predicted || slices.ContainsFunc(prompts, func(p []int32) bool { return slices.Contains(p, s.Config().MaskID) })
	random := s.o.Alg == "" || s.o.Alg == "origin" || s.o.AlgTemp > 0 || s.o.Temperature > 0
	return !masks && !random && s.o.Alg != "confidence_threshold"
}

func (s *dreamSampler) memory(batch, promptLength int, cfg pulsecol.Config) (models.Memory, error) {
	return s.PredictMemory(batch, promptLength, cfg, s.o)
}
