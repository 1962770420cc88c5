package llada

import (
	"context"
	"errors"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/jsonfile"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/internal/checkpoint"
	"github.com/pulsecol/pulsecol/models/internal/session"
)

// GenerateOptions are the options of LLaDA's generate, and of confidence-threshold
// parallel decoding. A zero field takes the value of the model's generation_config.json,
// or without one the default given here.
type GenerateOptions struct {
	GenLength   int // tokens to generate; 128
	BlockLength int // of them per semi-autoregressive block, a divisor; GenLength
	Steps       int // denoising steps, a multiple of the number of blocks; GenLength

	Temperature float64 // of the Gumbel noise; 0 is greedy
	CFGScale    float64 // classifier-free guidance; 0 is off
	Remasking   string  // "low_confidence" (default) or "random"

	// Threshold above 0 commits in each step every token of at least this confidence, and
	// at least one; Steps is then unused. Factor above 0 commits the i-th most confident token
	// while its confidence is at least 1 - Factor/(i+1). At most one of the two.
	Threshold, Factor float64

	// SuppressMask excludes the mask token from predictions. Without it, as in the published
	// code, a model may predict the mask token, which leaves masks in the output. Decoding by
	// Threshold or Factor always excludes it. As in the published code, masks inside the
	// prompt are candidates but not counted, so that as many positions stay masked; only
	// decoding by Threshold or Factor fills all of them.
	SuppressMask bool

	// ConfidenceDType rounds confidences before they are compared: "f32" (default),
	// "bf16" (as the published code does on a bf16 model) or "f64".
	ConfidenceDType string

	NoEOS   bool // never predict end-of-text (logits_eos_inf)
	LateEOS bool // commit end-of-text and end-of-turn last (confidence_eos_eot_inf)

	Seed   uint64                  // of temperature and random remasking
	OnLoad func(done, total int64) // called while a GPU gets the weights, with bytes; may be nil
	OnStep func(models.Progress)   // called after every step; may be nil

	complete bool // made by Options
}

// parseGeneration reads the defaults of a generation_config.json. LLaDA's own has no
// sampling options; those of models made for this package have.
func parseGeneration(file jsonfile.File) (o GenerateOptions, err error) {
	if file.Text == nil {
		return o, nil
	}
	var j struct {
		GenLength   *int     `json:"gen_length"`
		BlockLength *int     `json:"block_length"`
		Steps       *int     `json:"steps"`
		Temperature *float64 `json:"temperature"`
	}
	v, err := checkpoint.DecodeConfig(file, &j)
	if err != nil {
		return o, err
	}
	o = GenerateOptions{
		GenLength: checkpoint.Or(j.GenLength), BlockLength: checkpoint.Or(j.BlockLength), Steps: checkpoint.Or(j.Steps),
		Temperature: checkpoint.Or(j.Temperature),
	}
	v.Check(o.GenLength >= 0, "gen_length", "is %d, want at least 1", o.GenLength)
	v.Check(o.BlockLength == 0 || o.BlockLength > 0 && o.GenLength%o.BlockLength == 0,
		"block_length", "is %d, want a divisor of gen_length %d", o.BlockLength, o.GenLength)
	v.Check(o.Steps >= 0, "steps", "is %d, want at least 1", o.Steps)
	v.Check(o.Temperature >= 0, "temperature", "is %v, want at least 0", o.Temperature)
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
	if o.GenLength == 0 {
		o.GenLength = d.GenLength
		// The block length and the steps of the file belong to its generation length.
		if o.BlockLength == 0 {
			o.BlockLength = d.BlockLength
		}
		if o.Steps == 0 {
			o.Steps = d.Steps
		}
	}
	if o.GenLength == 0 {
		o.GenLength = 128
	}
	if o.BlockLength == 0 {
		o.BlockLength = o.GenLength
	}
	if o.Steps == 0 {
		o.Steps = o.GenLength
	}
	if o.Temperature == 0 {
		o.Temperature = d.Temperature
	}
	return o
}

// Generate writes a response to prompt, token ids of any number from 0, with
// attention as configured by cfg. An interrupted generation returns the sequence so far
// along with the context's error.
func (m *Model) Generate(ctx context.Context, prompt []int32, cfg pulsecol.Config, o GenerateOptions) (*models.Result, error) {
	return session.First(m.GenerateBatch(ctx, [][]int32{prompt}, cfg, o))
}

// GenerateBatch is Generate for several prompts in one batch. Shorter prompts are
// padded on the left and masked; positions count the padding, as in the published
// code.
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
	return session.Generation{NewTokens: o.GenLength, BlockLength: o.BlockLength, Guided: o.CFGScale > 0, OnLoad: o.OnLoad, OnStep: o.OnStep}
}

// Steps returns the number of denoising steps of a generation, T of the refresh schedule.
// With a confidence threshold it is an upper bound, and so it may be with cfg.Cache; nothing
// else of cfg matters. Options that are invalid are an error.
func (m *Model) Steps(prompts [][]int32, cfg pulsecol.Config, o GenerateOptions) (int, error) {
	return m.base.TotalSteps(m.sampler(m.Options(o), cfg.Cache, nil), prompts)
}

func (m *Model) sampler(o GenerateOptions, cache pulsecol.Cache, onStep func(sampler.StepInfo)) sampler.LLaDA {
	eot := m.base.Config.EOSID
	if t := m.base.Tokenizer; t != nil {
		if id, ok := t.TokenID("<|eot_id|>"); ok {
			eot = id
		}
	}
	return sampler.LLaDA{
		Steps: o.Steps, GenLength: o.GenLength, BlockLength: o.BlockLength, Cached: cache != pulsecol.NoCache,
		Temperature: o.Temperature, CFGScale: o.CFGScale, Remasking: sampler.Remasking(o.Remasking),
		ConfidenceDType: lmhead.Rounding(o.ConfidenceDType), Threshold: o.Threshold, Factor: o.Factor,
		MaskID: m.base.Config.MaskID, SuppressMask: o.SuppressMask, EOSID: m.base.Config.EOSID, EoTID: eot,
		LogitsEOSInf: o.NoEOS, ConfidenceEOSEoTInf: o.LateEOS,
		Seed: o.Seed, OnStep: onStep,
	}
}

// PredictMemory returns the peak memory of generating from prompts of promptLength
// tokens, without the program itself.
func (m *Model) PredictMemory(batch, promptLength int, cfg pulsecol.Config, o GenerateOptions) (models.Memory, error) {
	return m.base.PredictMemory(batch, promptLength, cfg, generation(m.Options(o)))
}
