package sampler

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// guess is a proposal in the form of the traces below.
type guess struct {
	Pos        int
	Confidence float64
	Token      int32
}

// guesses returns the proposals for every masked position of ids before hi.
func (o LLaDA) guesses(t *testing.T, ids []int32, hi int) []guess {
	t.Helper()
	var out []guess
	for pos, id := range ids[:hi] {
		if id == o.MaskID {
			c := ApplyRule(&o.rule().Rule, waveLogits(ids, pos), nil)
			if err := choiceError(c); err != nil {
				t.Fatal(err)
			}
			out = append(out, guess{pos, c.Confidence, c.Token})
		}
	}
	return out
}

func TestLLaDATraces(t *testing.T) {
	for _, c := range []struct {
		name       string
		gen, block int
		steps      int
		threshold  float64
		want       []string
	}{
		{"two blocks", 4, 2, 4, 0, []string{"1 2 6 1 6 6", "1 2 2 1 6 6", "1 2 2 1 1 6", "1 2 2 1 1 1"}},
		{"one block", 4, 4, 3, 0, []string{"1 2 6 1 6 3", "1 2 6 1 1 3", "1 2 5 1 1 3"}},
		{"uneven quotas", 6, 3, 4, 0, []string{"1 2 4 6 3 6 6 6", "1 2 4 1 3 6 6 6", "1 2 4 1 3 3 0 6", "1 2 4 1 3 3 0 0"}},
		{"threshold 0.4", 4, 2, 0, 0.4, []string{"1 2 4 1 6 6", "1 2 4 1 1 3"}},
		{"threshold 0.5", 4, 2, 0, 0.5, []string{"1 2 6 1 6 6", "1 2 2 1 6 6", "1 2 2 1 1 6", "1 2 2 1 1 1"}},
		{"threshold 0.6", 4, 2, 0, 0.6, []string{"1 2 6 1 6 6", "1 2 2 1 6 6", "1 2 2 1 1 6", "1 2 2 1 1 1"}},
		{"threshold 0.5, one block", 4, 4, 0, 0.5, []string{"1 2 6 1 6 6", "1 2 2 1 1 3"}},
	} {
		var tr trace
		o := LLaDA{Steps: c.steps, GenLength: c.gen, BlockLength: c.block, Threshold: c.threshold, ConfidenceDType: lmhead.Float64, MaskID: waveMask, OnStep: tr.onStep}
		prompts := [][]int32{{1, 2}}
		total, err := o.TotalSteps(prompts)
		if err != nil {
			t.Fatal(err)
		}
		if want := max(c.steps, c.gen); c.threshold > 0 && total != want || c.threshold == 0 && total != c.steps {
			t.Errorf("%s: %d steps announced", c.name, total)
		}
		got, err := o.Generate(t.Context(), prompts, asForward(t, waveLogits))
		if err != nil {
			t.Fatal(err)
		}
		tr.check(t, o, prompts, got)
		if diff := cmp.Diff(c.want, tr.sequences()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}

	for _, c := range []struct {
		ids  []int32
		hi   int
		want []guess
	}{
		{[]int32{1, 2, 6, 6, 6, 6}, 4, []guess{{2, .419361, 4}, {3, .472559, 1}}},
		{[]int32{1, 2, 6, 1, 6, 6}, 4, []guess{{2, .518305, 2}}},
		{[]int32{1, 2, 2, 1, 6, 6}, 6, []guess{{4, .497674, 1}, {5, .417460, 3}}},
		{[]int32{1, 2, 2, 1, 1, 6}, 6, []guess{{5, .527506, 1}}},
		{[]int32{1, 2, 6, 1, 1, 3}, 6, []guess{{2, .450631, 5}}},
		{[]int32{1, 2, 6, 1, 6, 6}, 6, []guess{{2, .518305, 2}, {4, .543789, 1}, {5, .534315, 3}}},
	} {
		if diff := cmp.Diff(c.want, llada().guesses(t, c.ids, c.hi), near); diff != "" {
			t.Errorf("proposals for %v (-want +got):\n%s", c.ids, diff)
		}
	}
}

func TestQuota(t *testing.T) {
	ones, twos := slices.Repeat([]int{1}, 32), slices.Repeat([]int{2}, 16)
	for _, c := range []struct {
		n, steps int
		want     []int
	}{
		{10, 4, []int{3, 3, 2, 2}},
		{8, 3, []int{3, 3, 2}},
		{3, 5, []int{1, 1, 1, 0, 0}},
		{16, 5, []int{4, 3, 3, 3, 3}},
		{32, 32, ones},
		{32, 16, twos},
	} {
		var got []int
		for i := range c.steps {
			got = append(got, numTransferTokens(c.n, c.steps, i))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d masks in %d steps: %v, want %v", c.n, c.steps, got, c.want)
		}
	}
}

func TestGuide(t *testing.T) {
	c := []float32{2, 1, 0}
	guide(c, c, []float32{1, 1.5, 0}, 2.5)
	if want := []float32{3.5, 0.25, 0}; !slices.Equal(c, want) {
		t.Errorf("guided logits %v, want %v", c, want)
	}
}

func TestGuidanceIsOneBatch(t *testing.T) {
	o := llada()
	o.CFGScale, o.Steps = 1, 2
	prompts := [][]int32{{1, 2}, {3, waveMask}} // the second has a mask to fill
	var calls []string
	forward := func(ctx context.Context, p Pass) (lmhead.Logits, error) {
		calls = append(calls, fmt.Sprint(p.IDs, p.Rows))
		return asForward(t, waveLogits)(ctx, p)
	}
	got, err := o.Generate(t.Context(), prompts, forward)
	if err != nil {
		t.Fatal(err)
	}
	if got.Forwards != 2 || len(calls) != 2 {
		t.Errorf("%d forwards counted, %d calls: want 2, a step each", got.Forwards, len(calls))
	}
	first := "[[1 2 6 6 6 6] [3 6 6 6 6 6] [6 6 6 6 6 6] [6 6 6 6 6 6]] " +
		"[{0 2} {0 3} {0 4} {0 5} {1 1} {1 2} {1 3} {1 4} {1 5} {2 2} {2 3} {2 4} {2 5} {3 1} {3 2} {3 3} {3 4} {3 5}]"
	if calls[0] != first {
		t.Errorf("first call\n%s, want\n%s", calls[0], first)
	}
	// Both halves get the committed tokens; only the first gets the prompt.
	var conditional, unconditional [][]int32
	_, err = o.Generate(t.Context(), prompts, func(ctx context.Context, p Pass) (lmhead.Logits, error) {
		conditional = [][]int32{slices.Clone(p.IDs[0]), slices.Clone(p.IDs[1])}
		unconditional = [][]int32{slices.Clone(p.IDs[2]), slices.Clone(p.IDs[3])}
		return asForward(t, waveLogits)(ctx, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	conditional[0][0], conditional[0][1], conditional[1][0] = waveMask, waveMask, waveMask
	if diff := cmp.Diff(conditional, unconditional); diff != "" {
		t.Errorf("conditional rows with the prompt masked, and unconditional rows:\n%s", diff)
	}
}

func TestStepsBeyondTheQuotaAskForNothing(t *testing.T) {
	for _, c := range []struct {
		prompt    []int32
		remasking Remasking
		want      []int
	}{
		{[]int32{1}, LowConfidence, []int{3, 2, 1, 0, 0, 3, 2, 1, 0, 0}},
		// The prompt's mask, or another in its place, is a candidate to the end.
		{[]int32{waveMask}, LowConfidence, []int{4, 3, 2, 0, 0, 4, 3, 2, 0, 0}},
		{[]int32{waveMask}, RandomOrder, []int{1, 1, 1, 0, 0, 1, 1, 1, 0, 0}},
	} {
		var asked, blocks []int
		o := LLaDA{Steps: 10, GenLength: 6, BlockLength: 3, Remasking: c.remasking, MaskID: waveMask, OnStep: func(s StepInfo) { blocks = append(blocks, s.Block) }}
		got, err := o.Generate(t.Context(), [][]int32{c.prompt}, func(ctx context.Context, p Pass) (lmhead.Logits, error) {
			asked = append(asked, len(p.Rows))
			return asForward(t, waveLogits)(ctx, p)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(asked, c.want) {
			t.Errorf("prompt %v, %s: rows asked for: %v, want %v", c.prompt, c.remasking, asked, c.want)
		}
		if want := []int{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}; !slices.Equal(blocks, want) {
			t.Errorf("prompt %v, %s: blocks %v, want %v", c.prompt, c.remasking, blocks, want)
		}
		if got.Steps != 10 || got.Forwards != 10 {
			t.Errorf("prompt %v, %s: %d steps, %d forwards, want 10", c.prompt, c.remasking, got.Steps, got.Forwards)
		}
	}
}

func TestFactorAcceptsWhileSureEnough(t *testing.T) {
	for _, c := range []struct {
		factor      float64
		confidences []float64
		want        int
	}{
		{1, []float64{.1}, 1},
		{1, []float64{.9, .67, .67, .5}, 2}, // needs 2/3, then 3/4, then 4/5
		{1, []float64{.9, .66, .66}, 1},
		{1, []float64{.9, .85, .82, .8}, 4},
		{0.5, []float64{.9, .84, .84}, 2}, // needs 5/6, then 7/8
		{0.5, []float64{.9, .83, .83}, 1},
	} {
		var ordered []proposal
		for _, x := range c.confidences {
			ordered = append(ordered, proposal{confidence: x})
		}
		r := lladaRun{LLaDA: LLaDA{Factor: c.factor}}
		if got := r.acceptConfident(0, ordered); got != c.want {
			t.Errorf("factor %v of %v: %d accepted, want %d", c.factor, c.confidences, got, c.want)
		}
	}
}

func TestEOSOptions(t *testing.T) {
	// Token 1 is EOS and 2 EoT; 6 is the mask and the most probable of all, but
	// suppressed.
	logits := []float32{0, 3, 2, 1, -1, -2, 5}
	propose := func(o LLaDA) guess {
		o.MaskID, o.SuppressMask, o.EOSID, o.EoTID, o.ConfidenceDType = waveMask, true, 1, 2, lmhead.Float64
		c := ApplyRule(&o.rule().Rule, logits, nil)
		if err := choiceError(c); err != nil {
			t.Fatal(err)
		}
		return guess{0, c.Confidence, c.Token}
	}
	all, noEOS, neither := 0.0, 0.0, 0.0
	for v, l := range logits {
		e := math.Exp(float64(l))
		all += e
		if v != 1 {
			noEOS += e
		}
		if v != 1 && v != 2 {
			neither += e
		}
	}
	for _, c := range []struct {
		name string
		o    LLaDA
		want guess
	}{
		{"plain", LLaDA{}, guess{0, math.Exp(3) / all, 1}},
		{"EOS forbidden", LLaDA{LogitsEOSInf: true}, guess{0, math.Exp(2) / noEOS, 2}},
		{"EOS last", LLaDA{ConfidenceEOSEoTInf: true}, guess{0, 0, 1}},
		{"EOS forbidden, EoT last", LLaDA{LogitsEOSInf: true, ConfidenceEOSEoTInf: true}, guess{0, 0, 2}},
	} {
		if diff := cmp.Diff(c.want, propose(c.o), near); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	logits[1], logits[2] = -3, -3
	if diff := cmp.Diff(guess{0, math.Exp(1) / neither, 3}, propose(LLaDA{ConfidenceEOSEoTInf: true}), near); diff != "" {
		t.Errorf("another token: renormalised without the two (-want +got):\n%s", diff)
	}
	// Both options at a temperature above 0, where the reference does not handle EOS.
	logits[1] = 50
	if got := propose(LLaDA{ConfidenceEOSEoTInf: true, Temperature: 1}); got.Token != 1 || got.Confidence != 0 {
		t.Errorf("EOS at a temperature: %+v, want confidence 0", got)
	}
}

func TestConfidenceDTypeDecidesTies(t *testing.T) {
	// Position 1 has a higher confidence by less than bfloat16 resolves.
	model := func(_ []int32, pos int) []float32 {
		return []float32{float32(7 + pos), 0, -50}
	}
	for d, want := range map[lmhead.Rounding]int{lmhead.Float32: 1, lmhead.Float64: 1, lmhead.BFloat16: 0, "": 1} {
		var first []Row
		o := LLaDA{Steps: 2, GenLength: 2, BlockLength: 2, MaskID: 2, ConfidenceDType: d, OnStep: func(s StepInfo) {
			if s.Step == 1 {
				first = slices.Clone(s.Committed)
			}
		}}
		if _, err := o.Generate(t.Context(), [][]int32{{}}, asForward(t, model)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Row{{0, want}}, first); diff != "" {
			t.Errorf("%q: first committed (-want +got):\n%s", d, diff)
		}
	}
}

func TestBatchRowEqualsSingleRun(t *testing.T) {
	prompts := [][]int32{{1, 2, 3}, {4, 0, 5}, {3, 3, 3}}
	model := noiseLogits(12)
	for name, s := range map[string]sampler{
		"llada":           LLaDA{Steps: 6, GenLength: 12, BlockLength: 4, MaskID: 11},
		"llada guided":    LLaDA{Steps: 6, GenLength: 12, BlockLength: 4, MaskID: 11, CFGScale: 1},
		"llada threshold": LLaDA{GenLength: 12, BlockLength: 4, MaskID: 11, Threshold: 0.4},
		"llada factor":    LLaDA{GenLength: 12, BlockLength: 4, MaskID: 11, Factor: 2},
		// A proposed mask would change the mean number of masks.
		"dream":           Dream{MaxNewTokens: 12, Steps: 7, Eps: 1e-3, Alg: Entropy, TopP: 0.9, MaskID: 11, SuppressMask: true},
		"dream threshold": Dream{MaxNewTokens: 12, Steps: 4, Eps: 1e-3, Alg: ConfidenceThreshold, Threshold: 0.4, TopP: 1, MaskID: 11},
	} {
		batch, err := s.Generate(t.Context(), prompts, asForward(t, model))
		if err != nil {
			t.Fatal(err)
		}
		for b, prompt := range prompts {
			single, err := s.Generate(t.Context(), [][]int32{prompt}, asForward(t, model))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(single.IDs[0], batch.IDs[b]); diff != "" {
				t.Errorf("%s: row %d alone and in a batch:\n%s", name, b, diff)
			}
		}
	}
}
