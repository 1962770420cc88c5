package sampler

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// suppressing returns s with SuppressMask.
func suppressing(s sampler) sampler {
	switch o := s.(type) {
	case LLaDA:
		o.SuppressMask = true
		return o
	case Dream:
		o.SuppressMask = true
		return o
	}
	panic(fmt.Sprintf("%T", s))
}

// observed returns s with onStep as its OnStep.
func observed(s sampler, onStep func(StepInfo)) sampler {
	switch o := s.(type) {
	case LLaDA:
		o.OnStep = onStep
		return o
	case Dream:
		o.OnStep = onStep
		return o
	}
	panic(fmt.Sprintf("%T", s))
}

// say is the prediction of a scripted model for a position: the logit of one token. The
// other logits are 0, so a higher one gives a higher confidence.
type say struct {
	token int32
	logit float32
}

// script holds the predictions of a model for the positions of a sequence, by the number of
// masks in it. The tokens are 0 to waveMask.
type script map[int]map[int]say

func (s script) logits(ids []int32, pos int) []float32 {
	said := s[count(ids, waveMask)][pos]
	row := make([]float32, waveMask+1)
	row[said.token] = said.logit
	return row
}

func TestProposedMaskStaysOpen(t *testing.T) {
	four := script{
		4: {1: {waveMask, 9}, 2: {0, 8}, 3: {4, 7}, 4: {5, 10}},
		3: {1: {2, 9}, 2: {0, 8}, 3: {4, 7}},
		2: {1: {2, 9}, 3: {4, 7}, 4: {5, 10}},
		1: {3: {4, 7}},
	}
	five := script{
		5: {1: {waveMask, 10}, 2: {0, 8}, 3: {4, 7}, 4: {3, 6}, 5: {5, 5}},
		4: {1: {2, 9}, 3: {4, 7}, 4: {waveMask, 3}, 5: {5, 5}},
		3: {1: {2, 9}, 4: {waveMask, 3}, 5: {5, 5}},
	}
	oneBlock := LLaDA{GenLength: 4, BlockLength: 4, Steps: 2, MaskID: waveMask}
	twoBlocks := LLaDA{GenLength: 4, BlockLength: 2, Steps: 4, MaskID: waveMask}
	parallel := LLaDA{GenLength: 4, BlockLength: 2, Threshold: 0.99, MaskID: waveMask}
	whole := Dream{MaxNewTokens: 5, Steps: 2, Eps: 1e-3, Alg: MaskgitPlus, TopP: 1, MaskID: waveMask}
	for _, c := range []struct {
		name      string
		sampler   sampler
		script    script
		want      []string
		positions [][]int // committed
	}{
		// Two commits a step. Position 1 takes two of the four, so 3 stays masked.
		{"llada", oneBlock, four,
			[]string{"1 6 6 6 5", "1 2 0 6 5"}, [][]int{{1, 4}, {1, 2}}},
		{"llada, suppressed", suppressing(oneBlock), four,
			[]string{"1 6 0 6 5", "1 2 0 4 5"}, [][]int{{2, 4}, {1, 3}}},
		// One commit a step. Those of the first block change nothing; position 1 is
		// filled in the second.
		{"llada, two blocks", twoBlocks, four,
			[]string{"1 6 6 6 6", "1 6 6 6 6", "1 6 6 6 5", "1 2 6 6 5"}, [][]int{{1}, {1}, {4}, {1}}},
		{"llada, two blocks, suppressed", suppressing(twoBlocks), four,
			[]string{"1 6 0 6 6", "1 2 0 6 6", "1 2 0 6 5", "1 2 0 4 5"}, [][]int{{2}, {1}, {4}, {3}}},
		{"llada, threshold", parallel, four,
			[]string{"1 6 0 6 6", "1 2 0 6 6", "1 2 0 4 5"}, [][]int{{2}, {1}, {3, 4}}},
		// Two commits, then all: position 1 is filled in the second step, 4 in none.
		{"dream", whole, five,
			[]string{"1 6 0 6 6 6", "1 2 0 4 6 5"}, [][]int{{1, 2}, {1, 3, 4, 5}}},
		{"dream, suppressed", suppressing(whole), five,
			[]string{"1 6 0 4 6 6", "1 2 0 4 0 5"}, [][]int{{2, 3}, {1, 4, 5}}},
	} {
		model := c.script.logits
		if _, shifted := c.sampler.(Dream); shifted {
			model = func(ids []int32, row int) []float32 { return c.script.logits(ids, row+1) }
		}
		var tr trace
		prompts := [][]int32{{1}}
		got, err := observed(c.sampler, tr.onStep).Generate(t.Context(), prompts, asForward(t, model))
		if err != nil {
			t.Fatal(err)
		}
		tr.check(t, c.sampler, prompts, got)
		if diff := cmp.Diff(c.want, tr.sequences()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		var positions [][]int
		for _, rows := range tr.committed {
			var step []int
			for _, row := range rows {
				step = append(step, row.Pos)
			}
			positions = append(positions, step)
		}
		if diff := cmp.Diff(c.positions, positions); diff != "" {
			t.Errorf("%s: positions committed (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestMasksInsideThePromptCompete(t *testing.T) {
	model := script{
		6: {1: {0, 9}, 3: {1, 4}, 4: {2, 8}, 5: {3, 7}},
		5: {3: {1, 4}, 4: {2, 8}, 5: {3, 7}},
		4: {3: {1, 9}, 4: {2, 8}, 5: {3, 7}, 6: {4, 6}, 7: {5, 5}},
		3: {5: {3, 7}, 6: {4, 9}, 7: {5, 5}},
		2: {6: {4, 6}, 7: {5, 9}},
		1: {6: {4, 6}},
	}.logits
	o := LLaDA{Steps: 4, GenLength: 4, BlockLength: 2, MaskID: waveMask}
	prompts := [][]int32{{1, 6, 2, 6}, {1, 2, 3, 4}}
	// Four commits in each row. The first row has six masks, so two stay: as many as
	// its prompt had, but one of either block.
	want := [][][]int32{
		{{1, 0, 2, 6, 6, 6, 6, 6}, {1, 2, 3, 4, 2, 6, 6, 6}},
		{{1, 0, 2, 6, 2, 6, 6, 6}, {1, 2, 3, 4, 2, 3, 6, 6}},
		{{1, 0, 2, 1, 2, 6, 6, 6}, {1, 2, 3, 4, 2, 3, 6, 5}},
		{{1, 0, 2, 1, 2, 6, 4, 6}, {1, 2, 3, 4, 2, 3, 4, 5}},
	}
	for _, s := range []sampler{o, suppressing(o)} {
		var tr trace
		got, err := observed(s, tr.onStep).Generate(t.Context(), prompts, asForward(t, model))
		if err != nil {
			t.Fatal(err)
		}
		tr.check(t, s, prompts, got)
		if diff := cmp.Diff(want, tr.ids); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}

	// Parallel decoding fills them all.
	var tr trace
	o.Threshold, o.OnStep = 1, tr.onStep
	got, err := o.Generate(t.Context(), prompts, asForward(t, waveLogits))
	if err != nil {
		t.Fatal(err)
	}
	tr.check(t, o, prompts, got)
	if got.Steps != 6 || tr.infos[0].Total != 6 {
		t.Errorf("%d steps of %d, want 6 for 4 generated tokens and 2 masks", got.Steps, tr.infos[0].Total)
	}
}

func TestSuppressedMaskIsNeverProposed(t *testing.T) {
	// The mask has nearly all of the distribution, and with top_k 1 all of it.
	logits := []float32{1, 3, 2, 60}
	const mask, second = 3, 1
	for _, c := range []struct {
		sampler sampler
		always  bool // suppressed, as decoding goes on until no mask is left
		greedy  bool
	}{
		{LLaDA{}, false, true},
		{LLaDA{Temperature: 0.01}, false, true},
		{LLaDA{Temperature: 1}, false, false},
		{LLaDA{Remasking: RandomOrder}, false, true},
		{LLaDA{Threshold: 0.9}, true, true},
		{LLaDA{Factor: 1}, true, true},
		{LLaDA{Factor: 1, Temperature: 1}, true, false},
		{Dream{TopP: 1}, false, true},
		{Dream{TopP: 1, Temperature: 0.01}, false, true},
		{Dream{TopP: 0.5, Temperature: 1}, false, true},
		{Dream{TopP: 1, TopK: 1, Temperature: 1}, false, true},
		{Dream{TopP: 1, Temperature: 1}, false, false},
		{Dream{TopP: 0.5, Alg: TopkMargin}, false, true},
		{Dream{TopP: 1, TopK: 1, Alg: Entropy}, false, true},
		{Dream{TopP: 1, Alg: ConfidenceThreshold, Threshold: 0.9}, true, true},
		{Dream{TopP: 1, TopK: 1, Temperature: 1, Alg: ConfidenceThreshold, Threshold: 0.9}, true, true},
	} {
		for _, s := range []sampler{c.sampler, suppressing(c.sampler)} {
			var r *rule
			var suppressed bool
			switch o := s.(type) {
			case LLaDA:
				o.MaskID, suppressed = mask, o.SuppressMask
				r = o.rule()
			case Dream:
				o.MaskID, suppressed = mask, o.SuppressMask
				r = o.rule()
			}
			p := r.apply(newWorker(len(logits)), logits, nil)
			if err := choiceError(p); err != nil {
				t.Fatal(err)
			}
			switch {
			case !suppressed && !c.always:
				if p.Token != mask {
					t.Errorf("%+v proposes %d, want the mask", s, p.Token)
				}
			case p.Token == mask || c.greedy && p.Token != second:
				t.Errorf("%+v proposes %d, want the best token but the mask", s, p.Token)
			}
			if math.IsNaN(p.Confidence) {
				t.Errorf("%+v: confidence NaN", s)
			}
		}
	}
}

// A generation ends even if the model predicts the mask everywhere.
func TestNothingButMasks(t *testing.T) {
	const mask, second = 3, 1
	model := func([]int32, int) []float32 { return []float32{1, 3, 2, 60} }
	prompts := [][]int32{{0, 1, 2}, {1, 1, 1}}
	l := LLaDA{Steps: 4, GenLength: 6, BlockLength: 3, MaskID: mask}
	random, guided, threshold, factor := l, l, l, l
	random.Remasking, guided.CFGScale, threshold.Threshold, factor.Factor = RandomOrder, 1, 0.5, 1
	d := Dream{MaxNewTokens: 6, Steps: 3, Eps: 1e-3, Alg: MaskgitPlus, TopP: 1, MaskID: mask}
	origin, margin, entropy, drawn, until := d, d, d, d, d
	origin.Alg, margin.Alg, entropy.Alg, drawn.AlgTemp = Origin, TopkMargin, Entropy, 1
	until.Alg, until.Threshold = ConfidenceThreshold, 0.5
	for _, c := range []struct {
		name    string
		sampler sampler
		always  bool // suppressed
	}{
		{"llada", l, false},
		{"llada random", random, false},
		{"llada guided", guided, false},
		{"llada threshold", threshold, true},
		{"llada factor", factor, true},
		{"dream", d, false},
		{"dream origin", origin, false},
		{"dream margin", margin, false},
		{"dream entropy", entropy, false},
		{"dream alg_temp", drawn, false},
		{"dream threshold", until, true},
	} {
		for want, s := range map[int32]sampler{mask: c.sampler, second: suppressing(c.sampler)} {
			if c.always {
				want = second
			}
			var tr trace
			got, err := observed(s, tr.onStep).Generate(t.Context(), prompts, asForward(t, model))
			if err != nil {
				t.Fatal(err)
			}
			tr.check(t, s, prompts, got)
			for b, row := range got.IDs {
				if generated := slices.Repeat([]int32{want}, 6); !slices.Equal(row[3:], generated) {
					t.Errorf("%s, row %d: %v, want %v", c.name, b, row[3:], generated)
				}
			}
		}
	}
}
