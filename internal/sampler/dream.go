package sampler

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// Alg is the algorithm by which Dream's sampler selects the positions to fill.
type Alg string

// The algorithms of Dream's diffusion_generate, and Fast-dLLM's addition.
const (
	Origin      Alg = "origin"       // each masked position independently, at random
	MaskgitPlus Alg = "maskgit_plus" // by the probability of the proposed token
	TopkMargin  Alg = "topk_margin"  // by the difference of the two largest probabilities
	Entropy     Alg = "entropy"      // by the negative entropy of the distribution

	// ConfidenceThreshold orders proposals by the probability of the token like
	// MaskgitPlus. Its quota is masks/steps for each step and row. Of the proposals within
	// the quota it commits the most confident one and each that reaches Threshold, and adds
	// the number of the others to the quota of the next step. After those steps, more follow
	// until no mask is left.
	ConfidenceThreshold Alg = "confidence_threshold"
)

// Dream is the sampler of Dream's diffusion_generate: it works on the whole
// sequence at once and fills, between the timesteps t and s, the share 1 - s/t of
// the masks. Masks inside the prompt are filled like generated ones.
//
// With a BlockLength it works on blocks of new tokens, from left to right, as the
// block-wise sampler of Fast-dLLM does (github.com/NVlabs/Fast-dLLM,
// dream/model/generation_utils_block.py). Each block has timesteps of its own, from 1
// to Eps, and shares of its own masks.
//
// The model's output at position i-1 is the prediction for position i, so the sampler reads
// row i-1 for position i; position 0 is predicted by row 0.
//
// Except with Origin and ConfidenceThreshold, the number of positions committed in each row
// of a batch is computed from the mean number of masks of its rows, as in the reference.
// Where rows have different numbers of masks, because prompts hold some or mask tokens were
// committed, a row may therefore be filled in other steps than alone. For such batches this
// sampler differs from the reference: a row never commits more than it has masks (the
// reference would turn tokens back into masks), and in the last step each row commits all
// its proposals (the reference commits the mean number).
type Dream struct {
	// MaxNewTokens is the number of masks appended to the prompt; 0 only fills those
	// inside it.
	MaxNewTokens int
	// BlockLength is the number of tokens of a block, a divisor of MaxNewTokens; 0 is
	// one block of all of them. With several blocks the prompt may not hold masks.
	BlockLength int
	// Steps is the number of denoising steps, a multiple of the number of blocks, at
	// least 1 and at most 1,024, or 16 for each mask if that is more.
	Steps int
	// Eps is the last timestep, between 0 and 1; the first is 1.
	Eps float64

	Alg Alg // "" is Origin
	// AlgTemp above 0 draws positions without replacement from the softmax of
	// confidence/AlgTemp; 0 takes the most confident ones. Origin and ConfidenceThreshold do
	// not use it.
	AlgTemp float64
	// Threshold of ConfidenceThreshold: above 0, at most 1. Otherwise 0.
	Threshold float64

	// Temperature divides the logits, and tokens are sampled; 0 is greedy and does
	// not divide. TopP and TopK truncate the distribution at any temperature, first
	// to the nucleus with probability TopP (1 keeps all), then to the TopK largest
	// (0 keeps all). Confidences are those of the resulting distribution.
	Temperature float64
	TopP        float64
	TopK        int

	ConfidenceDType lmhead.Rounding // "" is lmhead.Float32

	MaskID int32
	// SuppressMask excludes the mask token from proposals; ConfidenceThreshold always does,
	// and Cached takes it out of the softmax, too. The reference has no such option: a mask token that is predicted in the
	// last step of a block stays in the result.
	SuppressMask bool

	// Cached is for a model that keeps the keys and values of tokens outside the active
	// block: the mask token has the logit -Inf, a prompt with masks is refused, and a
	// block ends when none of its masks is left.
	Cached bool
	// FirstTokenAtPrefill is the sampler that Fast-dLLM published for Dream, for
	// comparison. It needs Cached, and Entropy or ConfidenceThreshold as Alg. The first
	// step of a block commits its first token alone, however confident. So row s-1 is
	// read in that step only, and the active rows of a block of positions [s, e) are
	// [s, e). ConfidenceThreshold has no quotas: every masked token of the block that
	// reaches Threshold is committed, and at least one.
	FirstTokenAtPrefill bool

	Seed   uint64
	OnStep func(StepInfo) // called after every step; may be nil
}

// blocks returns the number of blocks.
func (o *Dream) blocks() int {
	if o.BlockLength < 1 || o.MaxNewTokens < 1 {
		return 1
	}
	return o.MaxNewTokens / o.BlockLength
}

// blockSteps returns the number of steps of a block.
func (o *Dream) blockSteps() int { return o.Steps / o.blocks() }

// Validate returns every problem of the options, joined.
func (o Dream) Validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("sampler: "+format, args...))
	}
	if o.MaxNewTokens < 0 {
		bad("max_new_tokens %d: want at least 0", o.MaxNewTokens)
	}
	whole := o.BlockLength == 0 || o.BlockLength > 0 && o.MaxNewTokens%o.BlockLength == 0
	if o.BlockLength < 0 {
		bad("block_length %d: want at least 0 (0 is one block of all new tokens)", o.BlockLength)
	} else if !whole {
		bad("max_new_tokens %d: want a multiple of block_length %d", o.MaxNewTokens, o.BlockLength)
	}
	if o.Steps < 1 {
		bad("steps %d: want at least 1", o.Steps)
	} else if whole && o.Steps%o.blocks() != 0 {
		bad("steps %d: want a multiple of the number of blocks, %d (max_new_tokens %d / block_length %d)", o.Steps, o.blocks(), o.MaxNewTokens, o.BlockLength)
	}
	if o.Cached && o.MaxNewTokens == 0 {
		bad("max_new_tokens 0: want at least 1 with a cache")
	}
	if o.FirstTokenAtPrefill {
		if !o.Cached {
			bad("first_token_at_prefill true: want false without a cache")
		}
		if o.Alg != Entropy && o.Alg != ConfidenceThreshold {
			bad("alg %q: want %q or %q with first_token_at_prefill", o.Alg, Entropy, ConfidenceThreshold)
		}
		if o.Alg == Entropy && whole && o.blockSteps() == 1 && o.MaxNewTokens > o.blocks() {
			bad("steps %d: want at least %d, 2 a block, with first_token_at_prefill", o.Steps, 2*o.blocks())
		}
	}
	if !(o.Eps > 0 && o.Eps < 1) {
		bad("eps %v: want a number between 0 and 1, both excluded", o.Eps)
	}
	switch o.Alg {
	case "", Origin, MaskgitPlus, TopkMargin, Entropy:
		if o.Threshold != 0 {
			bad("threshold %v: want 0 unless alg is %q", o.Threshold, ConfidenceThreshold)
		}
	case ConfidenceThreshold:
		if !(o.Threshold > 0 && o.Threshold <= 1) {
			bad("threshold %v: want above 0, at most 1, with alg %q", o.Threshold, ConfidenceThreshold)
		}
	default:
		bad("alg %q: want %q, %q, %q, %q or %q", o.Alg, Origin, MaskgitPlus, TopkMargin, Entropy, ConfidenceThreshold)
	}
	if !nonNegative(o.AlgTemp) {
		bad("alg_temp %v: want a finite number, at least 0", o.AlgTemp)
	}
	if !nonNegative(o.Temperature) {
		bad("temperature %v: want a finite number, at least 0", o.Temperature)
	}
	if !(o.TopP > 0 && o.TopP <= 1) {
		bad("top_p %v: want above 0, at most 1 (1 keeps every token)", o.TopP)
	}
	if o.TopK < 0 {
		bad("top_k %d: want at least 0 (0 keeps every token)", o.TopK)
	}
	if err := checkRounding(o.ConfidenceDType); err != nil {
		problems = append(problems, err)
	}
	if o.MaskID < 0 {
		bad("mask_id %d: want at least 0", o.MaskID)
	}
	return errors.Join(problems...)
}

// TotalSteps checks options and prompts and returns the number of denoising
// steps: Steps (with Cached and Origin at most), or with ConfidenceThreshold an upper
// bound, reached when every step commits a single token: the most masks of a row.
func (o Dream) TotalSteps(prompts [][]int32) (int, error) {
	if err := o.Validate(); err != nil {
		return 0, err
	}
	if err := checkPrompts(prompts, o.MaxNewTokens); err != nil {
		return 0, err
	}
	if o.Cached || o.blocks() > 1 {
		if err := checkNoMasks(prompts, o.MaskID, o.Cached); err != nil {
			return 0, err
		}
	}
	most := 0
	for b, row := range prompts {
		masks := o.MaxNewTokens + count(row, o.MaskID)
		if o.Alg == ConfidenceThreshold && !o.FirstTokenAtPrefill && masks%o.Steps != 0 {
			return 0, fmt.Errorf("sampler: steps %d: with alg %q, want a divisor of the number of masks, %d in row %d", o.Steps, ConfidenceThreshold, masks, b)
		}
		most = max(most, masks)
	}
	if most == 0 {
		return 0, fmt.Errorf("sampler: max_new_tokens 0: the prompt has no mask (token %d) to fill", o.MaskID)
	}
	if err := checkSteps(o.Steps, most); err != nil {
		return 0, err
	}
	if o.Alg == ConfidenceThreshold {
		return most, nil
	}
	return o.Steps, nil
}

// Generate appends MaxNewTokens masks to prompts [B][P] and runs all steps. ctx is checked
// before every step. On an error of forward, its logits or ctx the result holds the
// completed steps; it is nil if options or prompts are invalid. prompts are not changed.
func (o Dream) Generate(ctx context.Context, prompts [][]int32, forward Forward) (*Result, error) {
	total, err := o.TotalSteps(prompts)
	if err != nil {
		return nil, err
	}
	r := dreamRun{Dream: o, generation: generation{
		ids:     extend(prompts, o.MaxNewTokens, o.MaskID),
		mask:    o.MaskID,
		special: []special{{"mask_id", o.MaskID}},
		seed:    o.Seed,
		total:   total,
		forward: forward,
		onStep:  o.OnStep,
	}}
	length := o.MaxNewTokens / o.blocks()
	for index := range o.blocks() {
		if err = r.fill(ctx, index, len(prompts[0])+index*length, length); err != nil {
			break
		}
	}
	return r.result(), err
}

// rule says how a row of logits becomes a proposal.
func (o *Dream) rule() *rule {
	r := newRule(o.ConfidenceDType)
	switch {
	case o.Cached:
		r.ban(o.MaskID)
	case o.SuppressMask || o.Alg == ConfidenceThreshold:
		r.SuppressToken = o.MaskID
	}
	switch o.Alg {
	case TopkMargin:
		r.Confidence = lmhead.Margin
	case Entropy:
		r.Confidence = lmhead.NegativeEntropy
	}
	if o.Temperature > 0 || o.TopP < 1 || o.TopK > 0 {
		r.sampling = &sampling{temperature: o.Temperature, topP: o.TopP, topK: o.TopK, draw: o.Temperature > 0}
		if !r.sampling.draw {
			r.sampling.temperature = 1
		}
	}
	return r
}
