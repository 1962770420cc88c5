package cacheref_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/cacheref"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
)

// generator is a sampler.
type generator interface {
	Generate(ctx context.Context, prompts [][]int32, forward sampler.Forward) (*sampler.Result, error)
}

// models are read once.
var models = map[string]*cacheref.Model{}

func llada(t *testing.T) *cacheref.Model {
	t.Helper()
	if models["llada"] == nil {
		models["llada"] = cacheref.LLaDA(t)
	}
	return models["llada"]
}

func dream(t *testing.T) *cacheref.Model {
	t.Helper()
	if models["dream"] == nil {
		models["dream"] = cacheref.Dream(t)
	}
	return models["dream"]
}

// long skips a test in short mode.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds; minutes under the race detector")
	}
}

// newTokens are generated in every test of this file, in blocks of 4.
const newTokens = 12

// subject is a model with a sampler.
type subject struct {
	name    string
	model   *cacheref.Model
	sampler generator
}

// subjects returns both models with samplers that commit a number of tokens, or
// confident ones.
func subjects(t *testing.T) []subject {
	l := sampler.LLaDA{GenLength: newTokens, BlockLength: 4, Steps: 6, MaskID: llada(t).MaskID, Cached: true}
	confident, guided := l, l
	confident.Threshold, guided.CFGScale = 0.3, 0.5
	d := sampler.Dream{MaxNewTokens: newTokens, BlockLength: 4, Steps: 6, Eps: 1e-3, TopP: 1, Alg: sampler.Entropy, MaskID: dream(t).MaskID, Cached: true}
	threshold, published := d, d
	threshold.Alg, threshold.Threshold = sampler.ConfidenceThreshold, 0.3
	published.FirstTokenAtPrefill = true
	return []subject{
		{"llada", llada(t), l}, {"llada threshold", llada(t), confident}, {"llada guided", llada(t), guided},
		{"dream", dream(t), d}, {"dream threshold", dream(t), threshold}, {"dream published", dream(t), published},
	}
}

// randomPrompt draws n tokens that are no masks.
func randomPrompt(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	prompt := make([]int32, n)
	for i := range prompt {
		prompt[i] = rng.Int32N(290)
	}
	return prompt
}

// generate runs a generation and fails the test on an error.
func (s *subject) generate(t *testing.T, run *cacheref.Run, prompts ...[]int32) *sampler.Result {
	t.Helper()
	got, err := s.sampler.Generate(t.Context(), prompts, run.Forward)
	if err != nil {
		t.Fatal(err)
	}
	if got.Forwards != len(run.Steps) {
		t.Errorf("%d forwards, counted %d", len(run.Steps), got.Forwards)
	}
	return got
}

// columns keep 40 % of the keys, for groups of 4 rows.
func columns() *cacheref.Columns {
	return &cacheref.Columns{Sparsity: 0.6, GroupSize: 4, Refresh: []int{1, 4}}
}

// caches are options with every cache, and with one prefill or one each block.
func caches(c *cacheref.Columns) (all []cacheref.Options) {
	for _, cache := range []cacheref.Cache{cacheref.Prefix, cacheref.Dual} {
		for _, every := range []int{0, 1} {
			all = append(all, cacheref.Options{Cache: cache, PrefillEvery: every, Columns: c})
		}
	}
	return all
}

func (s *subject) title(o cacheref.Options) string {
	return fmt.Sprintf("%s, %s, prefill every %d, columns %v", s.name, o.Cache, o.PrefillEvery, o.Columns != nil)
}

// A padded row of a batch has the tokens that it has alone. With columns the padding is
// whole groups, so that the groups of the main table are the same.
func TestBatchEqualsSingleRuns(t *testing.T) {
	long(t)
	prompts := [][]int32{randomPrompt(1, 10), randomPrompt(2, 6)}
	padded := slices.Concat(make([]int32, 4), prompts[1])
	for _, s := range subjects(t) {
		for _, o := range slices.Concat(caches(nil), caches(columns())) {
			if o.Columns != nil && s.name != "llada" && s.name != "dream" {
				continue // with a threshold refreshes fall due in other blocks than alone
			}
			var want [][]int32
			for _, prompt := range prompts {
				want = append(want, s.generate(t, s.model.Run(o), prompt).IDs[0][len(prompt):])
			}
			o.Padding = []int{0, 4}
			got := s.generate(t, s.model.Run(o), prompts[0], padded).IDs
			for b := range got {
				if tokens := got[b][10:]; !slices.Equal(tokens, want[b]) {
					t.Errorf("%s, row %d: %v, alone %v", s.title(o), b, tokens, want[b])
				}
			}
		}
	}
}

// Padding tokens, also those in a group with others, change no column, logit or token.
func TestPaddingHasNoPart(t *testing.T) {
	long(t)
	prompt := randomPrompt(10, 7)
	for _, s := range subjects(t) {
		o := cacheref.Options{Cache: cacheref.Dual, PrefillEvery: 1, Columns: columns(), Padding: []int{6}}
		var runs []*cacheref.Run
		var tokens [][]int32
		for _, id := range []int32{0, 77} {
			run := s.model.Run(o)
			got := s.generate(t, run, slices.Concat(slices.Repeat([]int32{id}, 6), prompt))
			runs, tokens = append(runs, run), append(tokens, got.IDs[0][6:])
		}
		if diff := cmp.Diff(tokens[0], tokens[1]); diff != "" {
			t.Errorf("%s: tokens with two paddings:\n%s", s.name, diff)
		}
		if diff := cmp.Diff(runs[0].Logits, runs[1].Logits); diff != "" {
			t.Errorf("%s: logits of the last forward with two paddings:\n%s", s.name, diff)
		}
		for group := range 7 {
			if a, b := runs[0].Main(0, 1, 2, group), runs[1].Main(0, 1, 2, group); !slices.Equal(a, b) {
				t.Errorf("%s, group %d: columns %v and %v with two paddings", s.name, group, a, b)
			}
		}
	}
}

// Sparsity 0 keeps all keys: the logits are those of full attention, bit for bit.
func TestSparsityZeroEqualsFullAttention(t *testing.T) {
	long(t)
	prompt := randomPrompt(3, 9)
	for _, s := range subjects(t) {
		for _, o := range caches(nil) {
			full := s.model.Run(o)
			want := s.generate(t, full, prompt)
			c := columns()
			c.Sparsity, o.Columns = 0, c
			all := s.model.Run(o)
			got := s.generate(t, all, prompt)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-full +sparsity 0):\n%s", s.title(o), diff)
			}
			if diff := cmp.Diff(full.Logits, all.Logits); diff != "" {
				t.Errorf("%s: logits of the last forward (-full +sparsity 0):\n%s", s.title(o), diff)
			}
			if last := all.Steps[len(all.Steps)-1].Mode; last != cacheref.Within {
				t.Errorf("%s: the last forward is %q, want %q", s.title(o), last, cacheref.Within)
			}
		}
	}
}

// With a prefill before every step nothing of the cache is read: the logits are those
// without one, bit for bit.
func TestPrefillInEveryStepEqualsNoCache(t *testing.T) {
	long(t)
	prompt := randomPrompt(4, 9)
	for _, s := range subjects(t) {
		none := s.model.Run(cacheref.Options{Cache: cacheref.None})
		want := s.generate(t, none, prompt)
		for _, cache := range []cacheref.Cache{cacheref.Prefix, cacheref.Dual} {
			run := s.model.Run(cacheref.Options{Cache: cache, PrefillEvery: 1})
			got, err := s.sampler.Generate(t.Context(), [][]int32{prompt}, func(ctx context.Context, p sampler.Pass) (lmhead.Logits, error) {
				p.Block.Index = len(run.Steps) // as if each pass were the first of a block
				return run.Forward(ctx, p)
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s (-none +prefills):\n%s", s.name, cache, diff)
			}
			if diff := cmp.Diff(none.Logits, run.Logits); diff != "" {
				t.Errorf("%s, %s: logits of the last forward (-none +prefills):\n%s", s.name, cache, diff)
			}
			if diff := cmp.Diff(none.Steps, run.Steps); diff != "" {
				t.Errorf("%s, %s: forwards (-none +prefills):\n%s", s.name, cache, diff)
			}
		}
	}
}

// One block of all new tokens: one prefill, and steps over the new tokens.
func TestBlockOfWholeGeneration(t *testing.T) {
	long(t)
	l := sampler.LLaDA{GenLength: newTokens, BlockLength: newTokens, Steps: 6, MaskID: llada(t).MaskID, Cached: true}
	d := sampler.Dream{MaxNewTokens: newTokens, Steps: 6, Eps: 1e-3, TopP: 1, Alg: sampler.MaskgitPlus, MaskID: dream(t).MaskID, Cached: true}
	for _, s := range []struct {
		subject
		first int
	}{{subject{"llada", llada(t), l}, 10}, {subject{"dream", dream(t), d}, 9}} {
		var tokens [][]int32
		for _, o := range append(caches(nil), caches(columns())...) {
			run := s.model.Run(o)
			tokens = append(tokens, s.generate(t, run, randomPrompt(5, 10)).IDs[0])
			want := []cacheref.Step{{Mode: cacheref.Dense, First: 0, Rows: 10 + newTokens}}
			later := cacheref.Step{Mode: cacheref.Dense, First: s.first, Rows: 10 + newTokens - s.first}
			if o.Columns != nil {
				want[0].Mode, later.Mode = cacheref.Refresh, cacheref.Within
			}
			if diff := cmp.Diff(append(want, slices.Repeat([]cacheref.Step{later}, 5)...), run.Steps); diff != "" {
				t.Errorf("%s: forwards (-want +got):\n%s", s.title(o), diff)
			}
		}
		// Prefix and dual caches have the same rows here.
		for i := range tokens {
			if like := i / 4 * 4; !slices.Equal(tokens[i], tokens[like]) {
				t.Errorf("%s: options %d give %v, options %d %v", s.name, i, tokens[i], like, tokens[like])
			}
		}
	}
}

// Columns are as many as the sparsity leaves, ascending, and of tokens that are no
// padding.
func TestColumnsKept(t *testing.T) {
	long(t)
	for _, s := range subjects(t) {
		o := cacheref.Options{Cache: cacheref.Dual, PrefillEvery: 1, Columns: columns(), Padding: []int{0, 8}}
		run := s.model.Run(o)
		s.generate(t, run, randomPrompt(6, 12), slices.Concat(make([]int32, 8), randomPrompt(7, 4)))
		rows := run.Steps[len(run.Steps)-1].Rows
		for b, keep := range []int{9, 6} { // of 24 and 16 keys
			for layer := range 3 {
				for head := range 4 {
					for group := range 6 {
						checkColumns(t, run.Main(b, layer, head, group), keep, o.Padding[b])
					}
					for group := range (rows + 3) / 4 {
						checkColumns(t, run.Block(b, layer, head, group), keep, o.Padding[b])
					}
				}
			}
		}
	}
}

func checkColumns(t *testing.T, got []int, keep, pad int) {
	t.Helper()
	if len(got) != keep || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != keep || got[0] < pad {
		t.Errorf("columns %v: want %d, ascending, from %d on", got, keep, pad)
	}
}

// A generation that is stopped has the tokens of the steps before.
func TestStopped(t *testing.T) {
	prompt := randomPrompt(8, 9)
	for _, s := range subjects(t) {
		const stop = 4
		var want []int32
		watch := func(info sampler.StepInfo) {
			if info.Step == stop {
				want = slices.Clone(info.IDs[0])
			}
		}
		switch o := s.sampler.(type) {
		case sampler.LLaDA:
			o.OnStep = watch
			s.sampler = o
		case sampler.Dream:
			o.OnStep = watch
			s.sampler = o
		}
		o := cacheref.Options{Cache: cacheref.Dual, PrefillEvery: 0}
		s.generate(t, s.model.Run(o), prompt)
		ctx, cancel := context.WithCancel(t.Context())
		run := s.model.Run(o)
		got, err := s.sampler.Generate(ctx, [][]int32{prompt}, func(ctx context.Context, p sampler.Pass) (lmhead.Logits, error) {
			logits, err := run.Forward(ctx, p)
			if len(run.Steps) == stop {
				cancel()
			}
			return logits, err
		})
		if !errors.Is(err, context.Canceled) || got.Steps != stop || !slices.Equal(got.IDs[0], want) {
			t.Errorf("%s: error %v after %d steps with %v, want %v", s.name, err, got.Steps, got.IDs[0], want)
		}
	}
}

// Rows that a forward does not compute are an error.
func TestRowsOutsideAreAnError(t *testing.T) {
	m := llada(t)
	run := m.Run(cacheref.Options{Cache: cacheref.Dual, PrefillEvery: 1})
	p := sampler.Pass{IDs: [][]int32{randomPrompt(9, 12)}, Block: sampler.Block{First: 4, End: 8}}
	for _, c := range []struct {
		row  int
		want string // "" is no error
	}{
		{0, ""}, // a prefill
		{4, ""},
		{7, ""},
		{3, "row 3 of sequence 0: the forward has rows 4 to 7"},
		{8, "row 8 of sequence 0: the forward has rows 4 to 7"},
	} {
		p.Rows = []sampler.Row{{Batch: 0, Pos: c.row}}
		_, err := run.Forward(t.Context(), p)
		if fmt.Sprint(err) != fmt.Sprint(errors.New("cacheref: "+c.want)) && !(c.want == "" && err == nil) {
			t.Errorf("row %d: error %v, want %q", c.row, err, c.want)
		}
	}
}
