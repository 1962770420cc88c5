// Package lmhead is the interface between a language model's head and a sampler: the logits
// of the selected rows of a step, or the result of a rule for each row, computed on the
// device of the logits.
package lmhead

// NoToken stands for "no token" where an id is left out.
const NoToken = -1

// Logits are a model's logits of the rows that a sampler selected, on any device.
type Logits interface {
	// Size returns the number of rows, and the entries of each: one for every token of
	// the vocabulary.
	Size() (rows, vocab int)
	// Rows returns count rows from each row of from on, one after the other. They are
	// valid until the next call.
	Rows(count int, from ...int) ([][]float32, error)
}

// RuleApplier is implemented by Logits that apply a Rule on their own device, so that
// a row of a hundred thousand numbers need not be copied.
type RuleApplier interface {
	// ApplyRule returns the choice of each row. With guidance the first half of the rows
	// is conditional, row i of the second half belongs to row i of the first, and there
	// is one choice for each pair. Package sampler defines the results, to the last bit.
	ApplyRule(*Rule) ([]Choice, error)
}

// Deferrer is implemented by operators that can leave logits uncomputed in a step and
// compute them afterwards: of the selected rows only, a bounded number at a time.
type Deferrer interface {
	// DeferLogits enables this and returns a function for the logits of the first rows of
	// the latest step, valid until the next step. The value of the operator's node then
	// holds no logits. It is called before the machine is made. The result is nil for an
	// operator that is not a head.
	DeferLogits() func(rows int) Logits
}

// Defer calls DeferLogits of a Deferrer. It returns nil for any other operator.
func Defer(o any) func(rows int) Logits {
	if d, ok := o.(Deferrer); ok {
		return d.DeferLogits()
	}
	return nil
}

// Host are logits in memory.
type Host [][]float32

// Size implements Logits.
func (h Host) Size() (rows, vocab int) {
	if len(h) == 0 {
		return 0, 0
	}
	return len(h), len(h[0])
}

// Rows implements Logits.
func (h Host) Rows(count int, from ...int) ([][]float32, error) {
	if len(from) == 1 {
		return h[from[0]:][:count], nil
	}
	var rows [][]float32
	for _, r := range from {
		rows = append(rows, h[r:][:count]...)
	}
	return rows, nil
}

// Rule determines a proposed token and its confidence from a row of logits:
//
//  1. Guidance is applied.
//  2. The logit of BanToken becomes -Inf.
//  3. The token with the largest logit is proposed, SuppressToken excluded; of equal
//     logits the lowest token.
//  4. The logits of DeferTokens become -Inf.
//  5. Confidence is computed from the softmax of the row.
//
// Tokens are NoToken where a rule does not use them.
type Rule struct {
	// Guidance w+1 replaces the conditional logits c by u + (w+1)(c-u), with u the
	// unconditional ones, in float32 as the model's own logits are; 0 is off.
	Guidance float32

	SuppressToken int32    // never proposed, but part of the softmax
	BanToken      int32    // never proposed, and not part of the softmax
	DeferTokens   [2]int32 // proposed with confidence 0

	Confidence Confidence
	Rounding   Rounding // of confidences
}

// Confidence is a measure of a model's confidence in a proposed token.
type Confidence uint8

// The measures of the samplers.
const (
	NoConfidence    Confidence = iota // not computed: the order does not depend on logits
	Probability                       // of the proposed token
	Margin                            // its probability minus the largest other one
	NegativeEntropy                   // of the distribution
)

// Rounding is the number format that confidences are rounded to. It determines which of
// them are equal, and so the order in which positions are filled: in bfloat16 every
// probability above 0.998 is 1.
type Rounding string

// The formats: float32 is the default; bfloat16 is what the references use when
// the model runs in it; float64 is what older LLaDA code and Fast-dLLM use.
const (
	Float32  Rounding = "f32"
	BFloat16 Rounding = "bf16"
	Float64  Rounding = "f64"
)

// Choice is the result of a Rule for one row.
type Choice struct {
	Token      int32 // NoToken if no token that may be proposed has a finite logit
	Confidence float64

	// InvalidToken is the first token whose logit, InvalidLogit, is NaN or +Inf, or
	// NoToken if there is none. With one, Token is NoToken.
	InvalidToken int32
	InvalidLogit float32
}
