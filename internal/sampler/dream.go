package sampler

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	// MaskgitPlus. Its quota is masks/Steps for each step and row. Of the proposals within
	// the quota it commits the most confident one and each that reaches Threshold, and adds
	// the number of the others to the quota of the next step. After Steps steps, more follow
	// until no mask is left.
	ConfidenceThreshold Alg = "confidence_threshold"
)

// Dream is the sampler of Dream's diffusion_generate: it works on the whole
// sequence at once and fills, between the timesteps t and s, the share 1 - s/t of
// the masks. Masks inside the prompt are filled like generated ones.
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
	// Steps is the number of denoising steps, at least 1 and at most 1,024, or 16 for
	// each mask if that is more.
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
	// SuppressMask excludes the mask token from proposals; ConfidenceThreshold always does.
	// The reference has no such option: a mask token that is predicted in the last step stays
	// in the result.
	SuppressMask bool

	Seed   uint64
	OnStep func(StepInfo) // called after every step; may be nil
}

// Validate returns every problem of the options, joined.
func (o Dream) Validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("sampler: "+format, args...))
	}
	if o.MaxNewTokens < 0 {
		bad("max_new_tokens %d: want at least 0", o.MaxNewTokens)
	}
	if o.Steps < 1 {
		bad("steps %d: want at least 1", o.Steps)
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
// steps: Steps, or with ConfidenceThreshold an upper bound, reached when every step
// commits a single token: the most masks of a row.
func (o Dream) TotalSteps(prompts [][]int32) (int, error) {
	if err := o.Validate(); err != nil {
		return 0, err
	}
	if err := checkPrompts(prompts, o.MaxNewTokens); err != nil {
		return 0, err
	}
	most := 0
	for b, row := range prompts {
		masks := o.MaxNewTokens + count(row, o.MaskID)
		if o.Alg == ConfidenceThreshold && masks%o.Steps != 0 {
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
	switch o.Alg {
	case Origin, "":
		err = r.reveal(ctx)
	case ConfidenceThreshold:
		err = r.thresholded(ctx)
	default:
		err = r.scheduled(ctx)
	}
	return r.result(), err
}

// dreamRun is one generation.
type dreamRun struct {
	Dream
	generation
}

// timestep returns t[i] of linspace(1, eps, steps+1) in float32, as PyTorch
// computes it: from the start in the first half, from the end in the second.
func (o *Dream) timestep(i int) float32 {
	end := float32(o.Eps)
	d := (end - 1) / float32(o.Steps)
	if i < (o.Steps+1)/2 {
		return 1 + float32(d*float32(i))
	}
	return end - float32(d*float32(o.Steps-i))
}

// share returns the share of the masks that step i fills.
func (o *Dream) share(i int) float32 {
	if i == o.Steps-1 {
		return 1
	}
	return 1 - o.timestep(i+1)/o.timestep(i)
}

// transfers returns how many positions step i commits in each row of a batch that
// has masks masks. It is computed in float32 because it is truncated: steps that
// divide evenly on paper give one less.
func (o *Dream) transfers(i, masks, batch int) int {
	return int(float32(masks) / float32(batch) * o.share(i))
}

// reveal runs all steps of Origin.
func (r *dreamRun) reveal(ctx context.Context) error {
	w := newWorker(0)
	for i := range r.Steps {
		p := float64(r.share(i))
		revealed := slices.DeleteFunc(r.openAll(), func(c proposal) bool {
			r.stream(w, drawReveal, c.Row)
			return w.uniform() >= p
		})
		if err := r.propose(ctx, revealed); err != nil {
			return err
		}
		r.commit(0, revealed)
	}
	return nil
}

// scheduled runs all steps of MaskgitPlus, TopkMargin and Entropy.
func (r *dreamRun) scheduled(ctx context.Context) error {
	w := newWorker(0)
	for i := range r.Steps {
		proposals := r.openAll()
		k := r.transfers(i, len(proposals), len(r.ids))
		if i == r.Steps-1 {
			k = len(r.ids[0])
		}
		if k == 0 {
			proposals = nil
		}
		if err := r.propose(ctx, proposals); err != nil {
			return err
		}
		if r.AlgTemp > 0 {
			// The k largest sums of log-weight and Gumbel noise are k draws without
			// replacement, and no weight can underflow.
			for j, p := range proposals {
				r.stream(w, drawPlace, p.Row)
				proposals[j].confidence = p.confidence/r.AlgTemp + gumbel(w.uniform())
			}
		}
		r.commit(0, topByConfidence(proposals, func(int, []proposal) int { return k }))
	}
	return nil
}

// thresholded runs all steps of ConfidenceThreshold.
func (r *dreamRun) thresholded(ctx context.Context) error {
	base := make([]int, len(r.ids)) // quota of a step
	for b, row := range r.ids {
		base[b] = count(row, r.mask) / r.Steps
	}
	refused := make([]int, len(r.ids)) // part of the quota that earlier steps did not use
	for i := 0; ; i++ {
		proposals := r.openAll()
		if len(proposals) == 0 {
			return nil
		}
		if i == r.Steps {
			clear(base)
		}
		if err := r.propose(ctx, proposals); err != nil {
			return err
		}
		r.commit(0, topByConfidence(proposals, func(b int, ordered []proposal) int {
			n := 1
			for n < base[b]+refused[b] && ordered[n].confidence >= r.Threshold {
				n++
			}
			refused[b] += base[b] - n
			return n
		}))
	}
}

// openAll returns the masked positions of the whole sequence.
func (r *dreamRun) openAll() []proposal { return r.open(len(r.ids[0])) }

// propose runs the model and sets token and confidence of the proposals.
func (r *dreamRun) propose(ctx context.Context, proposals []proposal) error {
	var rows []Row
	for i, p := range proposals {
		row := Row{p.Batch, max(p.Pos-1, 0)}
		// Positions 0 and 1 share row 0; otherwise no two share one.
		if len(rows) == 0 || rows[len(rows)-1] != row {
			rows = append(rows, row)
		}
		proposals[i].row = len(rows) - 1
	}
	n := len(r.ids[0])
	block := Block{First: max(n-r.MaxNewTokens-1, 0), End: n}
	return r.generation.propose(ctx, Pass{r.ids, rows, block}, proposals, r.rule())
}

// rule returns the rule for a row of logits.
func (o *Dream) rule() *rule {
	r := newRule(o.ConfidenceDType)
	if o.SuppressMask || o.Alg == ConfidenceThreshold {
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
