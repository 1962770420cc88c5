package sampler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// Remasking is the criterion by which LLaDA's sampler orders its proposals.
type Remasking string

// The rules of LLaDA's generate.
const (
	LowConfidence Remasking = "low_confidence" // the probability of the proposed token
	RandomOrder   Remasking = "random"         // a uniform draw per position
)

// LLaDA is the sampler of LLaDA's generate: blocks from left to right, and within
// a block a quota of the most confident proposals at every step.
//
// With a Threshold or a Factor it is the parallel decoding of Fast-dLLM: every step commits
// all proposals of sufficient confidence, and at least one in each row that has masks, until
// the block has no mask.
//
// # Masks that stay
//
// As in the reference, the candidates of a step are all masks before the end of the current
// block, but the quotas add up to the block's length. So masks inside the prompt, and those
// that earlier blocks left, compete with the block's own. After the last step the number of
// masked positions is the number of masks in the prompt plus the number of committed mask
// tokens (see SuppressMask). Parallel decoding leaves none: it ends a block when no mask is
// left before its end, and never proposes the mask token.
type LLaDA struct {
	// Steps is the number of denoising steps, a multiple of the number of blocks.
	// A block's BlockLength commits are spread over its steps evenly, the remainder
	// over the first ones; with Cached those that commit nothing are left out. At most
	// 1,024, or 16 a token if that is more. Not used with a Threshold or Factor.
	Steps int
	// GenLength is the number of tokens to generate, at least 1 and a multiple of
	// BlockLength.
	GenLength   int
	BlockLength int

	// Temperature scales the Gumbel noise that is added before the argmax; 0 is
	// greedy. It does not enter confidences.
	Temperature float64
	// CFGScale is the strength w of classifier-free guidance: with the prompt
	// masked giving logits u, and c otherwise, the logits are u + (w+1)(c-u).
	// 0 is off; above 0, at most 1e6, ids has 2B rows in each call of Forward.
	CFGScale float64

	Remasking       Remasking       // "" is LowConfidence
	ConfidenceDType lmhead.Rounding // "" is lmhead.Float32

	// Threshold above 0, at most 1: commit every proposal of at least this confidence.
	Threshold float64
	// Factor above 0: commit the n-th most confident proposal while its confidence is at
	// least 1 - Factor/(n+1). Not together with Threshold.
	Factor float64

	MaskID int32
	// SuppressMask excludes the mask token from proposals; parallel decoding always does, and
	// Cached takes it out of the softmax, too. The reference has no such option: a mask token that is predicted stays in the result.
	SuppressMask bool
	// EOSID and EoTID are used by the next two options only.
	EOSID, EoTID int32
	// LogitsEOSInf forbids EOSID: its logit is -Inf.
	LogitsEOSInf bool
	// ConfidenceEOSEoTInf commits EOSID and EoTID last: as proposals they have confidence 0,
	// and the confidence of other tokens is that of the softmax without the two. The
	// reference intends this, but at a temperature above 0 it affects EoTID only
	// (ML-GSAI/LLaDA#137). No effect with RandomOrder.
	ConfidenceEOSEoTInf bool

	// Cached is for a model that keeps the keys and values of tokens outside the active
	// block, as that of Fast-dLLM's generate_with_prefix_cache and
	// generate_with_dual_cache: the candidates of a step are the masks of its own block,
	// the mask token has the logit -Inf, a prompt with masks is refused, and a block ends
	// when none of its masks is left.
	Cached bool

	Seed   uint64
	OnStep func(StepInfo) // called after every step; may be nil
}

// maxGuidance keeps guided logits, which are float32, finite.
const maxGuidance = 1e6

// Validate returns every problem of the options, joined.
func (o LLaDA) Validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("sampler: "+format, args...))
	}
	if o.GenLength < 1 {
		bad("gen_length %d: want at least 1", o.GenLength)
	}
	if o.BlockLength < 1 {
		bad("block_length %d: want at least 1", o.BlockLength)
	}
	whole := o.GenLength >= 1 && o.BlockLength >= 1 && o.GenLength%o.BlockLength == 0
	if !whole && o.GenLength >= 1 && o.BlockLength >= 1 {
		bad("gen_length %d: want a multiple of block_length %d", o.GenLength, o.BlockLength)
	}
	if !o.parallel() {
		if o.Steps < 1 {
			bad("steps %d: want at least 1", o.Steps)
		} else if err := checkSteps(o.Steps, o.GenLength); err != nil {
			problems = append(problems, err)
		} else if whole && o.Steps%o.blocks() != 0 {
			bad("steps %d: want a multiple of the number of blocks, %d (gen_length %d / block_length %d)", o.Steps, o.blocks(), o.GenLength, o.BlockLength)
		}
	}
	if !nonNegative(o.Temperature) {
		bad("temperature %v: want a finite number, at least 0", o.Temperature)
	}
	if !(o.CFGScale >= 0 && o.CFGScale <= maxGuidance) {
		bad("cfg_scale %v: want 0 to %g", o.CFGScale, float64(maxGuidance))
	}
	switch o.Remasking {
	case "", LowConfidence, RandomOrder:
	default:
		bad("remasking %q: want %q or %q", o.Remasking, LowConfidence, RandomOrder)
	}
	if err := checkRounding(o.ConfidenceDType); err != nil {
		problems = append(problems, err)
	}
	if !(o.Threshold >= 0 && o.Threshold <= 1) {
		bad("threshold %v: want 0 (off) or a probability above 0, at most 1", o.Threshold)
	}
	if !nonNegative(o.Factor) {
		bad("factor %v: want 0 (off) or a finite number above 0", o.Factor)
	}
	if o.Threshold > 0 && o.Factor > 0 {
		bad("threshold %v and factor %v: want one of them, not both", o.Threshold, o.Factor)
	}
	for _, s := range o.specials() {
		if s.id < 0 {
			bad("%s %d: want at least 0", s.option, s.id)
		} else if s.option != "mask_id" && s.id == o.MaskID {
			bad("%s %d: want an id other than mask_id", s.option, s.id)
		}
	}
	return errors.Join(problems...)
}

// specials lists the ids that the options in use refer to.
func (o LLaDA) specials() []special {
	ids := []special{{"mask_id", o.MaskID}}
	if o.LogitsEOSInf || o.ConfidenceEOSEoTInf {
		ids = append(ids, special{"eos_id", o.EOSID})
	}
	if o.ConfidenceEOSEoTInf {
		ids = append(ids, special{"eot_id", o.EoTID})
	}
	return ids
}

// parallel reports whether confidences determine how many proposals are committed.
func (o LLaDA) parallel() bool { return o.Threshold > 0 || o.Factor > 0 }

func (o LLaDA) blocks() int { return o.GenLength / o.BlockLength }

// blockSteps returns the number of steps of a block, unless confidences decide.
func (o LLaDA) blockSteps() int {
	steps := o.Steps / o.blocks()
	if o.Cached {
		// Those that commit nothing come last.
		return min(steps, o.BlockLength)
	}
	return steps
}

// TotalSteps checks options and prompts and returns the number of denoising
// steps: Steps (with Cached an upper bound), or with a Threshold or Factor an upper bound,
// reached when every step commits a single token: GenLength, plus the most masks of a
// prompt.
func (o LLaDA) TotalSteps(prompts [][]int32) (int, error) {
	if err := o.Validate(); err != nil {
		return 0, err
	}
	if err := checkPrompts(prompts, o.GenLength); err != nil {
		return 0, err
	}
	if o.Cached {
		if err := checkNoMasks(prompts, o.MaskID, true); err != nil {
			return 0, err
		}
	}
	if !o.parallel() {
		return o.Steps, nil
	}
	masks := 0
	for _, row := range prompts {
		masks = max(masks, count(row, o.MaskID))
	}
	return o.GenLength + masks, nil
}

// Generate appends GenLength masks to prompts [B][P] and runs all steps. ctx is checked
// before every step. On an error of forward, its logits or ctx the result holds the
// completed steps; it is nil if options or prompts are invalid. prompts are not changed.
func (o LLaDA) Generate(ctx context.Context, prompts [][]int32, forward Forward) (*Result, error) {
	total, err := o.TotalSteps(prompts)
	if err != nil {
		return nil, err
	}
	r := lladaRun{LLaDA: o, generation: generation{
		ids:     extend(prompts, o.GenLength, o.MaskID),
		mask:    o.MaskID,
		special: o.specials(),
		seed:    o.Seed,
		total:   total,
		forward: forward,
		onStep:  o.OnStep,
	}}
	r.input = slices.Clip(r.ids)
	if o.CFGScale > 0 {
		for range prompts {
			r.input = append(r.input, slices.Repeat([]int32{o.MaskID}, len(r.ids[0])))
		}
	}
	for block := range o.blocks() {
		first := len(prompts[0]) + block*o.BlockLength
		if err = r.block(ctx, Block{block, first, first + o.BlockLength}); err != nil {
			break
		}
	}
	return r.result(), err
}

// lladaRun is one generation.
type lladaRun struct {
	LLaDA
	generation
	input [][]int32 // of the model: ids, then under guidance ids with the prompt masked
}

// block runs the steps of one block. Masks before it are candidates, too; with Cached there
// are none.
func (r *lladaRun) block(ctx context.Context, block Block) error {
	if r.parallel() {
		for open := r.open(0, block.End); len(open) > 0; open = r.open(0, block.End) {
			if err := r.step(ctx, block, open, r.acceptConfident); err != nil {
				return err
			}
		}
		return nil
	}
	steps := r.blockSteps()
	for i := range steps {
		// The reference counts the block's masks, but at its start all of it is masked.
		k := numTransferTokens(r.BlockLength, steps, i)
		var open []proposal // none where nothing will be committed
		if k > 0 {
			open = r.open(0, block.End)
		}
		if err := r.step(ctx, block, open, func(int, []proposal) int { return k }); err != nil {
			return err
		}
	}
	return nil
}

// numTransferTokens returns how many of n commits step i of steps makes.
func numTransferTokens(n, steps, i int) int {
	if i < n%steps {
		return n/steps + 1
	}
	return n / steps
}

// acceptConfident counts the leading proposals that Threshold or Factor accepts; it is at
// least 1.
func (r *lladaRun) acceptConfident(_ int, ordered []proposal) int {
	n := 1
	for n < len(ordered) {
		least := r.Threshold
		if r.Factor > 0 {
			least = 1 - r.Factor/float64(n+2) // the proposal at index n is the (n+1)-th
		}
		if ordered[n].confidence < least {
			break
		}
		n++
	}
	return n
}

// step runs one denoising step: it completes the proposals and commits, in each
// batch row, as many of the most confident as accept returns.
func (r *lladaRun) step(ctx context.Context, block Block, proposals []proposal, accept func(batch int, ordered []proposal) int) error {
	if r.Remasking == RandomOrder {
		// The order does not depend on the logits, so only those of committed positions are
		// requested.
		w := newWorker(0)
		for i, p := range proposals {
			r.stream(w, drawRemask, p.Row)
			proposals[i].confidence = w.uniform()
		}
		proposals = topByConfidence(proposals, accept)
	}
	rows := make([]Row, len(proposals), 2*len(proposals))
	for i, p := range proposals {
		rows[i], proposals[i].row = p.Row, i
	}
	if r.CFGScale > 0 {
		for _, p := range proposals {
			rows = append(rows, Row{len(r.ids) + p.Batch, p.Pos})
		}
	}
	if err := r.propose(ctx, Pass{r.input, rows, block}, proposals, r.rule()); err != nil {
		return err
	}
	if r.Remasking != RandomOrder {
		proposals = topByConfidence(proposals, accept)
	}
	if r.CFGScale > 0 {
		for _, p := range proposals {
			r.input[len(r.ids)+p.Batch][p.Pos] = p.token
		}
	}
	r.commit(block.Index, proposals)
	return nil
}

// rule returns the rule for a row of logits.
func (o *LLaDA) rule() *rule {
	r := newRule(o.ConfidenceDType)
	if o.CFGScale > 0 {
		r.Guidance = float32(o.CFGScale + 1)
	}
	switch {
	case o.Cached:
		r.ban(o.MaskID)
	case o.SuppressMask || o.parallel():
		r.SuppressToken = o.MaskID
	}
	if o.LogitsEOSInf {
		r.ban(o.EOSID)
	}
	if o.ConfidenceEOSEoTInf {
		r.DeferTokens = [2]int32{o.EOSID, o.EoTID}
	}
	if o.Remasking == RandomOrder {
		r.Confidence = lmhead.NoConfidence
	}
	if o.Temperature > 0 {
		r.sampling = &sampling{noise: o.Temperature, temperature: 1, topP: 1}
	}
	return r
}
