package sampler

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// naiveApply is ApplyRule for greedy rules in float64, from the documentation of lmhead.Rule:
// package math, sums from left to right.
func naiveApply(r *lmhead.Rule, logits []float32) lmhead.Choice {
	out := lmhead.Choice{Token: none, InvalidToken: none}
	for v, l := range logits {
		if math.IsNaN(float64(l)) || math.IsInf(float64(l), 1) {
			out.InvalidToken, out.InvalidLogit = int32(v), l
			return out
		}
	}
	z := widen(logits)
	takeOut := func(v int32) {
		if v != none {
			z[v] = math.Inf(-1)
		}
	}
	takeOut(r.BanToken)
	for v, x := range z {
		if int32(v) != r.SuppressToken && x > math.Inf(-1) && (out.Token == none || x > z[out.Token]) {
			out.Token = int32(v)
		}
	}
	if out.Token == none || r.Confidence == lmhead.NoConfidence {
		return out
	}
	takeOut(r.DeferTokens[0])
	takeOut(r.DeferTokens[1])
	p, total := make([]float64, len(z)), 0.0
	if top := slices.Max(z); top > math.Inf(-1) {
		for v := range p {
			p[v] = math.Exp(z[v] - top)
			total += p[v]
		}
		for v := range p {
			p[v] /= total
		}
	}
	switch r.Confidence {
	case lmhead.Probability:
		out.Confidence = round(r.Rounding, p[out.Token])
	case lmhead.Margin:
		second := 0.0
		for v, x := range p {
			if int32(v) != out.Token {
				second = max(second, x)
			}
		}
		out.Confidence = round(r.Rounding, round(r.Rounding, p[out.Token])-round(r.Rounding, second))
	case lmhead.NegativeEntropy:
		for _, x := range p {
			if x = round(r.Rounding, x); x > 0 {
				out.Confidence += round(r.Rounding, x*round(r.Rounding, math.Log(round(r.Rounding, x+1e-10))))
			}
		}
		out.Confidence = round(r.Rounding, out.Confidence)
	}
	return out
}

// oddRows returns rows of logits with ties, extremes, infinities and NaN.
func oddRows(vocab int) map[string][]float32 {
	rng := rand.New(rand.NewPCG(uint64(vocab), 1))
	row := func(f func(v int) float32) []float32 {
		out := make([]float32, vocab)
		for v := range out {
			out[v] = f(v)
		}
		return out
	}
	inf := float32(math.Inf(-1))
	rows := map[string][]float32{
		"random":     row(func(int) float32 { return float32(3 * rng.NormFloat64()) }),
		"sure":       row(func(v int) float32 { return float32(v * v % 97) }),
		"equal":      row(func(int) float32 { return -2 }),
		"ties":       row(func(int) float32 { return float32(rng.IntN(3)) }),
		"zeros":      row(func(v int) float32 { return float32(math.Copysign(0, float64(v%2)-0.5)) }),
		"huge":       row(func(v int) float32 { return math.MaxFloat32 * float32(1-2*(v%2)) }),
		"tiny":       row(func(int) float32 { return math.Float32frombits(uint32(rng.IntN(9))) }),
		"impossible": row(func(int) float32 { return inf }),
		"one":        row(func(int) float32 { return inf }),
		"NaN":        row(func(int) float32 { return 1 }),
		"+Inf":       row(func(int) float32 { return 1 }),
	}
	rows["one"][rng.IntN(vocab)] = -3e38
	for range 3 {
		rows["NaN"][rng.IntN(vocab)] = float32(math.NaN())
		rows["+Inf"][rng.IntN(vocab)] = float32(math.Inf(1))
	}
	return rows
}

func TestApplyRuleEqualsReference(t *testing.T) {
	for _, vocab := range []int{1, 2, 7, 1023, 1024, 1025, 3000} {
		for name, row := range oddRows(vocab) {
			last := int32(vocab - 1)
			best := max(0, int32(argmax(row, none)))
			for _, r := range []lmhead.Rule{
				{SuppressToken: none, BanToken: none, DeferTokens: [2]int32{none, none}},
				{SuppressToken: best, BanToken: none, DeferTokens: [2]int32{none, none}},
				{SuppressToken: none, BanToken: best, DeferTokens: [2]int32{none, none}},
				{SuppressToken: none, BanToken: none, DeferTokens: [2]int32{best, last}},
				{SuppressToken: 0, BanToken: last, DeferTokens: [2]int32{last, none}},
			} {
				for _, r.Confidence = range []lmhead.Confidence{lmhead.NoConfidence, lmhead.Probability, lmhead.Margin, lmhead.NegativeEntropy} {
					// Sums of 3,000 terms in another order, exp and log to 2 units in the last
					// place; rounded, a value may fall on the other side.
					for dtype, tolerance := range map[lmhead.Rounding]float64{lmhead.Float64: 1e-12, lmhead.Float32: 1e-6, lmhead.BFloat16: 1. / 64} {
						r.Rounding = dtype
						got, want := ApplyRule(&r, row, nil), naiveApply(&r, row)
						if !(math.Abs(got.Confidence-want.Confidence) <= tolerance*(1+math.Abs(want.Confidence))) {
							t.Errorf("%d tokens, %s, %+v: confidence %v, want %v", vocab, name, r, got.Confidence, want.Confidence)
						}
						got.Confidence = want.Confidence
						if fmt.Sprint(got) != fmt.Sprint(want) { // NaN is not equal to NaN
							t.Errorf("%d tokens, %s, %+v: %+v, want %+v", vocab, name, r, got, want)
						}
					}
				}
			}
		}
	}
}

// TestApplyRuleKeepsLogits: ApplyRule does not change the logits, which belong to the model.
func TestApplyRuleKeepsLogits(t *testing.T) {
	row, other := []float32{1, 2, 3, 4}, []float32{4, 3, 2, 1}
	r := lmhead.Rule{Guidance: 2, SuppressToken: none, BanToken: 3, DeferTokens: [2]int32{0, 1}, Confidence: lmhead.Probability}
	ApplyRule(&r, row, other)
	r.Guidance = 0
	ApplyRule(&r, row, other)
	if !slices.Equal(row, []float32{1, 2, 3, 4}) || !slices.Equal(other, []float32{4, 3, 2, 1}) {
		t.Errorf("logits are now %v and %v", row, other)
	}
}

// remote are logits that implement RuleApplier.
type remote struct {
	lmhead.Host
	applied, read *int // calls
}

func (r remote) ApplyRule(rule *lmhead.Rule) ([]lmhead.Choice, error) {
	*r.applied++
	n := len(r.Host)
	if rule.Guidance != 0 {
		n /= 2
	}
	out := make([]lmhead.Choice, n)
	for i := range out {
		out[i] = ApplyRule(rule, r.Host[i], r.Host[(n+i)%len(r.Host)])
	}
	return out, nil
}

func (r remote) Rows(count int, from ...int) ([][]float32, error) {
	*r.read++
	return r.Host.Rows(count, from...)
}

// TestRuleAppliers: greedy decoding does not read the rows of logits that apply rules; options
// that need whole rows read them in chunks. The tokens are the same.
func TestRuleAppliers(t *testing.T) {
	const vocab, mask = 30, 29
	l := LLaDA{Steps: 4, GenLength: 8, BlockLength: 4, MaskID: mask, EOSID: 1, EoTID: 2}
	d := Dream{MaxNewTokens: 8, Steps: 4, Eps: 1e-3, TopP: 1, MaskID: mask}
	for name, c := range map[string]struct {
		sampler sampler
		greedy  bool
	}{
		"llada":             {l, true},
		"llada random":      {with(l, func(o *LLaDA) { o.Remasking = RandomOrder }), true},
		"llada guided":      {with(l, func(o *LLaDA) { o.CFGScale = 1.5 }), true},
		"llada no EOS":      {with(l, func(o *LLaDA) { o.LogitsEOSInf = true }), true},
		"llada late EOS":    {with(l, func(o *LLaDA) { o.ConfidenceEOSEoTInf = true }), true},
		"llada threshold":   {with(l, func(o *LLaDA) { o.Threshold = 0.3 }), true},
		"llada factor":      {with(l, func(o *LLaDA) { o.Factor = 2 }), true},
		"llada temperature": {with(l, func(o *LLaDA) { o.Temperature = 0.5 }), false},
		"llada both":        {with(l, func(o *LLaDA) { o.Temperature, o.CFGScale = 0.5, 1 }), false},
		"dream":             {d, true},
		"dream maskgit":     {with(d, func(o *Dream) { o.Alg = MaskgitPlus }), true},
		"dream margin":      {with(d, func(o *Dream) { o.Alg = TopkMargin }), true},
		"dream entropy":     {with(d, func(o *Dream) { o.Alg = Entropy }), true},
		"dream order":       {with(d, func(o *Dream) { o.Alg, o.AlgTemp = Entropy, 0.5 }), true},
		"dream threshold":   {with(d, func(o *Dream) { o.Alg, o.Threshold = ConfidenceThreshold, 0.3 }), true},
		"dream temperature": {with(d, func(o *Dream) { o.Temperature = 0.5 }), false},
		"dream top_p":       {with(d, func(o *Dream) { o.Alg, o.TopP = Entropy, 0.9 }), false},
		"dream top_k":       {with(d, func(o *Dream) { o.Alg, o.TopK = MaskgitPlus, 3 }), false},
	} {
		prompts := [][]int32{{1, 2, 3}, {mask, mask, 4}}
		if o, ok := c.sampler.(Dream); ok && o.Alg == ConfidenceThreshold {
			prompts = prompts[:1]
		}
		model := asForward(t, noiseLogits(vocab))
		want, err := c.sampler.Generate(t.Context(), prompts, model)
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{1, 3, 1000} {
			defer func(bytes int) { chunkBytes = bytes }(chunkBytes)
			chunkBytes = rows * 4 * vocab
			applied, read, asked := 0, 0, 0
			got, err := c.sampler.Generate(t.Context(), prompts, func(ctx context.Context, p Pass) (lmhead.Logits, error) {
				logits, err := model(ctx, p)
				if len(p.Rows) > 0 {
					asked++
				}
				return remote{logits.(lmhead.Host), &applied, &read}, err
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, chunks of %d rows (-want +got):\n%s", name, rows, diff)
			}
			if c.greedy && (applied != asked || read != 0) || !c.greedy && (applied != 0 || read < asked || rows == 1 && read <= asked) {
				t.Errorf("%s, chunks of %d rows: %d steps with rows, %d choices, %d reads", name, rows, asked, applied, read)
			}
		}
	}
}

// with returns a changed sampler.
func with[S sampler](s S, change func(*S)) sampler {
	change(&s)
	return s
}
