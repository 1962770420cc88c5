package sampler

import (
	"errors"
	"fmt"
	"math"
)

// Rule says how a row of logits becomes a proposal, in this order: guidance; the
// Impossible token is taken out; the token with the largest logit is proposed, of
// equal ones the lowest; the Late ones are taken out; the softmax of what is left is
// how sure the proposal is. A logit that is taken out is -Inf.
type Rule struct {
	// Guidance w+1 turns the conditional logits c into u + (w+1)(c-u), in float32 as
	// the model's own logits are, with u the unconditional ones; 0 is off.
	Guidance float32

	Never      int32    // not proposed, though a part of the softmax; -1 for none
	Impossible int32    // -1 for none
	Late       [2]int32 // a proposed one has confidence 0; -1 for none

	Measure Measure
	DType   DType // that confidences are rounded to

	sampling *sampling // nil: greedy, in the softmax of all tokens
}

// Measure is how sure a sampler is of a proposal.
type Measure uint8

// The confidences of the samplers.
const (
	Nothing         Measure = iota // the order does not hang on the logits
	Probability                    // of the proposed token
	Margin                         // its lead over the most probable other one
	NegativeEntropy                // of the distribution
)

// sampling is what a Rule needs whole rows and random numbers for.
type sampling struct {
	noise       float64 // scale of the Gumbel noise of LLaDA's argmax; 0 is none
	temperature float64 // Dream's: divides the logits
	topP        float64
	topK        int
	draw        bool // the token from the distribution
}

// whole is the distribution as the model gives it.
var whole = sampling{temperature: 1, topP: 1}

// Choice is what a Rule makes of a row.
type Choice struct {
	Token      int32 // -1 if none that may be proposed has a finite logit
	Confidence float64

	// Bad is the first token whose logit, a Logit of NaN or +Inf, has no meaning;
	// -1 if all have one. Then there is no Token.
	Bad   int32
	Logit float32
}

var errNoToken = errors.New("no token that may be proposed has a finite logit")

func (c *Choice) err() error {
	switch {
	case c.Bad != none:
		return fmt.Errorf("logit of token %d is %v: want finite or -Inf", c.Bad, c.Logit)
	case c.Token == none:
		return errNoToken
	}
	return nil
}

// Choose applies a rule without random numbers to a row of logits; unconditional is
// read under guidance only. This is the definition of the rule, to the last bit: see
// exp, log and lanes.
func (r *Rule) Choose(logits, unconditional []float32) Choice {
	return r.choose(newWorker(len(logits)), logits, unconditional)
}

// choose is Choose, with random numbers from w.
func (r *Rule) choose(w *worker, logits, unconditional []float32) Choice {
	if r.Guidance != 0 {
		guide(w.logits, logits, unconditional, r.Guidance)
		logits = w.logits
	}
	if v := pointless(logits); v != none {
		return Choice{Token: none, Bad: int32(v), Logit: logits[v]}
	}
	logits = w.without(logits, r.Impossible)
	best := argmax(logits, r.Never)
	if best == none {
		return Choice{Token: none, Bad: none}
	}
	s := &whole
	if r.sampling != nil {
		s = r.sampling
	}
	token := best
	if s.noise > 0 {
		if noisy := gumbelArgmax(w, logits, s.noise, r.Never); noisy != none {
			token = noisy
		}
	}
	c := Choice{Token: int32(token), Bad: none}
	if r.Measure == Nothing {
		return c
	}
	p := w.softmax(w.without(logits, r.Late[:]...), s.temperature, s.topP, s.topK)
	if s.draw {
		if drawn := pick(p, w.uniform(), r.Never); drawn != none {
			token = drawn
		}
	}
	c.Token = int32(token)
	switch r.Measure {
	case Margin:
		c.Confidence = r.DType.margin(p, best)
	case NegativeEntropy:
		c.Confidence = r.DType.negativeEntropy(p)
	default:
		c.Confidence = r.DType.round(p[token])
	}
	return c
}

// guide sets y to the guided logits; see Rule.
func guide(y, c, u []float32, w float32) {
	for v := range y {
		y[v] = u[v] + float32(w*(c[v]-u[v]))
	}
}

// pointless returns the first token whose logit has no meaning, or none. -Inf has
// one: a token that cannot occur.
func pointless(logits []float32) int {
	for v, l := range logits {
		if !(l <= math.MaxFloat32) {
			return v
		}
	}
	return none
}

// without returns logits, or if any of the tokens is not none, a copy in w.logits
// with those taken out.
func (w *worker) without(logits []float32, tokens ...int32) []float32 {
	for _, v := range tokens {
		if v == none {
			continue
		}
		if &logits[0] != &w.logits[0] {
			copy(w.logits, logits)
			logits = w.logits
		}
		logits[v] = float32(math.Inf(-1))
	}
	return logits
}
