package sampler

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pulsecol/pulsecol/internal/lmhead"
)

// guesses returns the proposals for every masked position of ids.
func (o Dream) guesses(t *testing.T, ids []int32) []guess {
	t.Helper()
	var out []guess
	for pos, id := range ids {
		if id == o.MaskID {
			c := ApplyRule(&o.rule().Rule, waveLogits(ids, max(pos-1, 0)), nil)
			if err := choiceError(c); err != nil {
				t.Fatal(err)
			}
			out = append(out, guess{pos, c.Confidence, c.Token})
		}
	}
	return out
}

func TestDreamTraces(t *testing.T) {
	type step struct {
		ids  []int32 // before
		want []float64
	}
	for _, c := range []struct {
		alg   Alg
		want  []string
		steps []step // confidences of the masked positions in turn
	}{
		{MaskgitPlus, []string{"1 2 6 6 1 6", "1 2 6 6 1 1", "1 2 0 2 1 1"}, []step{
			{[]int32{1, 2, 6, 6, 6, 6}, []float64{.467655, .419361, .472559, .366318}},
			{[]int32{1, 2, 6, 6, 1, 6}, []float64{.452028, .518305, .543789}},
		}},
		{TopkMargin, []string{"1 2 6 4 6 6", "1 2 6 4 6 1", "1 2 0 4 4 1"}, []step{
			{[]int32{1, 2, 6, 6, 6, 6}, []float64{.079666, .112064, .030204, .004804}},
			{[]int32{1, 2, 6, 4, 6, 6}, []float64{.152424, .222453, .284098}},
		}},
		{Entropy, []string{"1 2 6 6 1 6", "1 2 6 6 1 1", "1 2 0 2 1 1"}, []step{
			{[]int32{1, 2, 6, 6, 6, 6}, []float64{-1.177214, -1.359769, -1.034408, -1.376310}},
			{[]int32{1, 2, 6, 6, 1, 6}, []float64{-1.282587, -1.282757, -1.186967}},
		}},
	} {
		var tr trace
		o := dream()
		o.Alg, o.ConfidenceDType, o.OnStep = c.alg, lmhead.Float64, tr.onStep
		prompts := [][]int32{{1, 2}}
		got, err := o.Generate(t.Context(), prompts, asForward(t, waveLogits))
		if err != nil {
			t.Fatal(err)
		}
		tr.check(t, o, prompts, got)
		if diff := cmp.Diff(c.want, tr.sequences()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.alg, diff)
		}
		for _, s := range c.steps {
			var confidences []float64
			for _, g := range o.guesses(t, s.ids) {
				confidences = append(confidences, g.Confidence)
			}
			if diff := cmp.Diff(s.want, confidences, near); diff != "" {
				t.Errorf("%s: confidences at %v (-want +got):\n%s", c.alg, s.ids, diff)
			}
		}
	}
	tokens := []guess{{2, .467655, 2}, {3, .419361, 4}, {4, .472559, 1}, {5, .366318, 3}}
	if diff := cmp.Diff(tokens, dream().guesses(t, []int32{1, 2, 6, 6, 6, 6}), near); diff != "" {
		t.Errorf("first proposals (-want +got):\n%s", diff)
	}
}

func TestTimesteps(t *testing.T) {
	o := Dream{Steps: 4, Eps: 1e-3}
	var got []float64
	for i := range 5 {
		got = append(got, float64(o.timestep(i)))
	}
	if diff := cmp.Diff([]float64{1, 0.75025, 0.5005, 0.25075, 0.001}, got, cmpopts.EquateApprox(0, 1e-7)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTransfers(t *testing.T) {
	run := func(first, middle, n, last int) []int {
		return slices.Concat([]int{first}, slices.Repeat([]int{middle}, n), []int{last})
	}
	for _, c := range []struct {
		tokens, steps int
		want          []int
	}{
		{4, 3, []int{1, 1, 2}},
		{8, 4, []int{1, 2, 2, 3}},
		{10, 4, []int{2, 2, 2, 4}},
		{16, 4, []int{3, 4, 4, 5}},
		{16, 8, []int{1, 2, 2, 2, 2, 2, 2, 3}},
		{5, 5, []int{0, 1, 1, 1, 2}},
		{64, 16, run(3, 4, 14, 5)},
		{128, 64, run(1, 2, 62, 3)},
		{128, 128, run(0, 1, 126, 2)},
		{256, 256, run(0, 1, 254, 2)},
		{512, 512, run(0, 1, 510, 2)},
	} {
		var filled, asked []int
		o := Dream{MaxNewTokens: c.tokens, Steps: c.steps, Eps: 1e-3, Alg: MaskgitPlus, TopP: 1, MaskID: waveMask, OnStep: func(s StepInfo) { filled = append(filled, len(s.Committed)) }}
		_, err := o.Generate(t.Context(), [][]int32{{1}}, func(ctx context.Context, p Pass) (lmhead.Logits, error) {
			asked = append(asked, len(p.Rows))
			return asForward(t, waveLogits)(ctx, p)
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(filled, c.want) {
			t.Errorf("%d tokens in %d steps: %v, want %v", c.tokens, c.steps, filled, c.want)
		}
		left := c.tokens
		for i, k := range c.want {
			rows := left
			if k == 0 {
				rows = 0 // nothing will be committed, so nothing is read
			}
			if asked[i] != rows {
				t.Errorf("%d tokens in %d steps, step %d: %d rows asked for, want %d", c.tokens, c.steps, i+1, asked[i], rows)
			}
			left -= k
		}
	}
}

func TestRowsAreShifted(t *testing.T) {
	o := dream()
	o.MaxNewTokens, o.Steps = 0, 1
	var asked []Row
	prompts := [][]int32{{6, 6, 1, 6, 6}, {1, 2, 3, 4, 6}}
	got, err := o.Generate(t.Context(), prompts, func(ctx context.Context, p Pass) (lmhead.Logits, error) {
		asked = slices.Clone(p.Rows)
		return asForward(t, waveLogits)(ctx, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	// Positions 0 and 1 are both predicted by row 0.
	if diff := cmp.Diff([]Row{{0, 0}, {0, 2}, {0, 3}, {1, 3}}, asked); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for b, pos := range map[int][]int{0: {0, 1, 3, 4}, 1: {4}} {
		for _, i := range pos {
			if want := int32(argmax(waveLogits(prompts[b], max(i-1, 0)), waveMask)); got.IDs[b][i] != want {
				t.Errorf("row %d, position %d: token %d, want %d", b, i, got.IDs[b][i], want)
			}
		}
	}
}

func TestUnevenRowsAreFilled(t *testing.T) {
	// Five masks and one: the mean is 3, more than the second row has.
	prompts := [][]int32{{6, 6, 6, 6, 6}, {1, 2, 6, 3, 4}}
	for _, alg := range []Alg{Origin, MaskgitPlus, TopkMargin, Entropy} {
		for steps := 1; steps < 8; steps++ {
			var tr trace
			o := Dream{Steps: steps, Eps: 1e-3, Alg: alg, TopP: 1, MaskID: waveMask, OnStep: tr.onStep}
			got, err := o.Generate(t.Context(), prompts, asForward(t, waveLogits))
			if err != nil {
				t.Fatal(err)
			}
			tr.check(t, o, prompts, got)
		}
	}
}

func TestOriginRevealsItsShare(t *testing.T) {
	const rows, tokens, steps = 200, 20, 4
	var revealed []float64
	var tr trace
	o := Dream{MaxNewTokens: tokens, Steps: steps, Eps: 1e-3, TopP: 1, MaskID: waveMask, Seed: 3, OnStep: func(s StepInfo) {
		tr.onStep(s)
		revealed = append(revealed, float64(len(s.Committed)))
	}}
	asked := 0
	prompts := make([][]int32, rows)
	got, err := o.Generate(t.Context(), prompts, func(ctx context.Context, p Pass) (lmhead.Logits, error) {
		asked += len(p.Rows)
		return asForward(t, waveLogits)(ctx, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	tr.check(t, o, prompts, got)
	// Each position is revealed at each step with probability 1/4: within five
	// standard deviations, sqrt(4000 * 3/16) = 27.
	for i, n := range revealed {
		if math.Abs(n-rows*tokens/steps) > 5*28 {
			t.Errorf("step %d reveals %v of %d positions, want about a quarter", i+1, n, rows*tokens)
		}
	}
	if asked > rows*tokens || asked < rows*(tokens-1) {
		t.Errorf("%d rows asked for: want one for every token (positions 0 and 1 may share)", asked)
	}
}

// With alg_temp, positions are drawn without replacement: the chance of the pair
// (i, j) is p_i p_j/(1-p_i) + p_j p_i/(1-p_j).
func TestAlgTempDrawsWithoutReplacement(t *testing.T) {
	const batch, tokens = 20_000, 5
	// The confidence of position i is that of row i-1; positions 0 and 1 share row 0.
	byRow := []float64{0.3, 0.45, 0.6, 0.9}
	model := func(_ []int32, row int) []float32 {
		p := byRow[row]
		rest := float32(math.Log((1 - p) / 4))
		return []float32{float32(math.Log(p)), rest, rest, rest, rest, float32(math.Inf(-1))}
	}
	pairChances := func(algTemp float64) []float64 {
		weights := make([]float64, tokens)
		for i := range weights {
			weights[i] = byRow[max(i-1, 0)] / algTemp
		}
		p, chances := naiveSoftmax(weights), make([]float64, tokens*tokens)
		for i := range tokens {
			for j := i + 1; j < tokens; j++ {
				chances[i*tokens+j] = p[i]*p[j]/(1-p[i]) + p[j]*p[i]/(1-p[j])
			}
		}
		return chances
	}
	for _, algTemp := range []float64{0.2, 1} {
		counts := make([]int, tokens*tokens)
		first := true
		o := Dream{MaxNewTokens: tokens, Steps: 2, Eps: 1e-3, Alg: MaskgitPlus, AlgTemp: algTemp, TopP: 1, MaskID: 5, Seed: 6, OnStep: func(s StepInfo) {
			if !first {
				return
			}
			first = false
			if len(s.Committed) != 2*batch {
				t.Fatalf("%d positions filled in the first step, want int(5 * 0.4995) = 2 a row", len(s.Committed))
			}
			for pair := range slices.Chunk(s.Committed, 2) {
				counts[pair[0].Pos*tokens+pair[1].Pos]++
			}
		}}
		if _, err := o.Generate(t.Context(), make([][]int32, batch), asForward(t, model)); err != nil {
			t.Fatal(err)
		}
		if x := chiSquare(counts, pairChances(algTemp)); x > 1 {
			t.Errorf("alg_temp %v: pairs %v, %.1f times the limit from %v", algTemp, counts, x, pairChances(algTemp))
		}
		if x := chiSquare(counts, pairChances(0.9*algTemp)); algTemp == 0.2 && x < 1 {
			t.Errorf("the test cannot tell alg_temp 0.2 from 0.18")
		}
	}
}
