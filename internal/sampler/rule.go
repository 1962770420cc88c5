package sampler

import (
	"errors"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// rule is an lmhead.Rule with the options that a device does not apply: random numbers and
// truncated distributions.
type rule struct {
	lmhead.Rule
	sampling *sampling // nil: greedy, in the softmax of all tokens
	alsoBan  int32     // a second BanToken
}

// newRule returns the rule of a greedy sampler without special tokens.
func newRule(r lmhead.Rounding) *rule {
	return &rule{Rule: lmhead.Rule{
		SuppressToken: none, BanToken: none, DeferTokens: [2]int32{none, none}, Confidence: lmhead.Probability, Rounding: r,
	}, alsoBan: none}
}

// ban gives a token the logit -Inf.
func (r *rule) ban(token int32) {
	if r.BanToken == none {
		r.BanToken = token
	} else {
		r.alsoBan = token
	}
}

// onDevice reports whether logits may apply the rule on their own device.
func (r *rule) onDevice() bool { return r.sampling == nil && r.alsoBan == none }

// sampling has the options that need whole rows and random numbers.
type sampling struct {
	noise       float64 // scale of the Gumbel noise of LLaDA's argmax; 0 is none
	temperature float64 // Dream's: divides the logits
	topP        float64
	topK        int
	draw        bool // the token from the distribution
}

// whole is the model's distribution without changes.
var whole = sampling{temperature: 1, topP: 1}

var errNoToken = errors.New("no token that may be proposed has a finite logit")

// choiceError returns the reason why a choice holds no token, or nil.
func choiceError(c lmhead.Choice) error {
	switch {
	case c.InvalidToken != none:
		return fmt.Errorf("logit of token %d is %v: want finite or -Inf", c.InvalidToken, c.InvalidLogit)
	case c.Token == none:
		return errNoToken
	}
	return nil
}

// ApplyRule returns the choice of a rule for a row of logits; unconditional is read
// under guidance only. It defines the results of lmhead.RuleApplier, to the last bit:
// see exp, log and lanes.
func ApplyRule(r *lmhead.Rule, logits, unconditional []float32) lmhead.Choice {
	return (&rule{Rule: *r, alsoBan: none}).apply(newWorker(len(logits)), logits, unconditional)
}

// apply is ApplyRule with random numbers from w.
func (r *rule) apply(w *worker, logits, unconditional []float32) lmhead.Choice {
	if r.Guidance != 0 {
		guide(w.logits, logits, unconditional, r.Guidance)
		logits = w.logits
	}
	if v := firstInvalidLogit(logits); v != none {
		return lmhead.Choice{Token: none, InvalidToken: int32(v), InvalidLogit: logits[v]}
	}
	logits = w.without(logits, r.BanToken, r.alsoBan)
	best := argmax(logits, r.SuppressToken)
	if best == none {
		return lmhead.Choice{Token: none, InvalidToken: none}
	}
	s := &whole
	if r.sampling != nil {
		s = r.sampling
	}
	token := best
	if s.noise > 0 {
		if noisy := gumbelArgmax(w, logits, s.noise, r.SuppressToken); noisy != none {
			token = noisy
		}
	}
	c := lmhead.Choice{Token: int32(token), InvalidToken: none}
	if r.Confidence == lmhead.NoConfidence {
		return c
	}
	p := w.softmax(w.without(logits, r.DeferTokens[:]...), s.temperature, s.topP, s.topK)
	if s.draw {
		if drawn := pick(p, w.uniform(), r.SuppressToken); drawn != none {
			token = drawn
		}
	}
	c.Token = int32(token)
	switch r.Confidence {
	case lmhead.Margin:
		c.Confidence = margin(r.Rounding, p, best)
	case lmhead.NegativeEntropy:
		c.Confidence = negativeEntropy(r.Rounding, p)
	default:
		c.Confidence = round(r.Rounding, p[token])
	}
	return c
}

// guide sets y to the guided logits; see lmhead.Rule.
func guide(y, c, u []float32, w float32) {
	for v := range y {
		y[v] = u[v] + float32(w*(c[v]-u[v]))
	}
}

// firstInvalidLogit returns the first token whose logit is NaN or +Inf, or none. -Inf is
// valid: it excludes a token.
func firstInvalidLogit(logits []float32) int {
	for v, l := range logits {
		if !(l <= math.MaxFloat32) {
			return v
		}
	}
	return none
}

// without returns logits, or if any of the tokens is not none, a copy in w.logits
// with the logits of those -Inf.
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
