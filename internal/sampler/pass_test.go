package sampler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"pgregory.net/rapid"
)

// passes runs a generation and calls look in every pass.
func passes(t *testing.T, s sampler, prompts [][]int32, look func(Pass)) *Result {
	t.Helper()
	got, err := s.Generate(t.Context(), prompts, func(ctx context.Context, p Pass) (lmhead.Logits, error) {
		look(p)
		return asForward(t, waveLogits)(ctx, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A pass has the block that is being filled. Dream's begins at the row before, except in
// the published sampler, where only the first pass of a block reads that row.
func TestPasses(t *testing.T) {
	l := LLaDA{Steps: 4, GenLength: 4, BlockLength: 2, MaskID: waveMask}
	cached := l
	cached.Cached = true
	d := Dream{MaxNewTokens: 4, Steps: 2, Eps: 1e-3, Alg: Entropy, TopP: 1, MaskID: waveMask}
	blocks := d
	blocks.BlockLength, blocks.Steps, blocks.Cached = 2, 4, true
	published := blocks
	published.FirstTokenAtPrefill = true
	for _, c := range []struct {
		name    string
		sampler sampler
		prompt  []int32
		want    []string // block, and positions of the rows that are read
	}{
		{"llada", l, []int32{1, 2, 3}, []string{"{0 3 5} [3 4]", "{0 3 5} [4]", "{1 5 7} [5 6]", "{1 5 7} [5]"}},
		{"llada cached", cached, []int32{1, 2, 3}, []string{"{0 3 5} [3 4]", "{0 3 5} [4]", "{1 5 7} [5 6]", "{1 5 7} [5]"}},
		{"dream", d, []int32{1, 2, 3}, []string{"{0 2 7} [2 3 4 5]", "{0 2 7} [2 4 5]"}},
		{"dream, no prompt", d, nil, []string{"{0 0 4} [0 1 2]", "{0 0 4} [0 2]"}},
		// The first step of a block fills the share 0.4995, which is no whole token of two.
		{"dream cached", blocks, []int32{1, 2, 3}, []string{"{0 2 5} []", "{0 2 5} [2 3]", "{1 4 7} []", "{1 4 7} [4 5]"}},
		{"dream published", published, []int32{1, 2, 3}, []string{"{0 3 5} [2]", "{0 3 5} [3]", "{1 5 7} [4]", "{1 5 7} [5]"}},
		{"dream published, no prompt", published, nil, []string{"{0 0 2} [0]", "{0 0 2} [0]", "{1 2 4} [1]", "{1 2 4} [2]"}},
	} {
		var got []string
		passes(t, c.sampler, [][]int32{c.prompt}, func(p Pass) {
			positions := []int{}
			for _, row := range p.Rows {
				positions = append(positions, row.Pos)
			}
			got = append(got, fmt.Sprint(p.Block, positions))
		})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// cachedSamplers are all kinds, with blocks of 4 of 12 tokens.
func cachedSamplers(mask int32) map[string]sampler {
	l := LLaDA{Steps: 6, GenLength: 12, BlockLength: 4, MaskID: mask, Cached: true}
	d := Dream{MaxNewTokens: 12, BlockLength: 4, Steps: 6, Eps: 1e-3, Alg: Entropy, TopP: 1, MaskID: mask, Cached: true}
	all := map[string]sampler{}
	llada := func(name string, change func(*LLaDA)) { o := l; change(&o); all["llada "+name] = o }
	dream := func(name string, change func(*Dream)) { o := d; change(&o); all["dream "+name] = o }
	llada("quota", func(o *LLaDA) {})
	llada("many steps", func(o *LLaDA) { o.Steps = 30 })
	llada("threshold", func(o *LLaDA) { o.Threshold = 0.3 })
	llada("factor", func(o *LLaDA) { o.Factor = 1.5 })
	llada("guided", func(o *LLaDA) { o.CFGScale = 0.7 })
	llada("one block", func(o *LLaDA) { o.BlockLength = 12 })
	dream("maskgit_plus", func(o *Dream) { o.Alg = MaskgitPlus })
	dream("topk_margin", func(o *Dream) { o.Alg = TopkMargin })
	dream("entropy", func(o *Dream) {})
	dream("many steps", func(o *Dream) { o.Steps = 30 })
	dream("one block", func(o *Dream) { o.BlockLength = 0 })
	dream("threshold", func(o *Dream) { o.Alg, o.Threshold = ConfidenceThreshold, 0.3 })
	dream("published", func(o *Dream) { o.FirstTokenAtPrefill = true })
	dream("published threshold", func(o *Dream) {
		o.Alg, o.Threshold, o.FirstTokenAtPrefill, o.Steps = ConfidenceThreshold, 0.3, true, 30
	})
	return all
}

// A row of a batch has the tokens that it has alone, though it may need other steps.
func TestCachedBatchEqualsSingleRuns(t *testing.T) {
	const vocab, mask = 9, 3
	all := cachedSamplers(mask)
	names := slices.Sorted(maps.Keys(all))
	rapid.Check(t, func(t *rapid.T) {
		s := all[rapid.SampledFrom(names).Draw(t, "sampler")]
		prompts := drawPrompts(t, vocab, mask, false)
		generate := func(prompts ...[]int32) [][]int32 {
			got, err := s.Generate(context.Background(), prompts, asForward(t, noiseLogits(vocab)))
			if err != nil {
				t.Fatal(err)
			}
			return got.IDs
		}
		batch := generate(prompts...)
		for b, prompt := range prompts {
			if diff := cmp.Diff(generate(prompt)[0], batch[b]); diff != "" {
				t.Errorf("row %d (-alone +in the batch):\n%s", b, diff)
			}
		}
	})
}

// Every forward of a block finds a mask in it, and the block before is full.
func TestCachedBlocksEndWhenFull(t *testing.T) {
	const vocab, mask, prompt = 9, 3, 2
	all := cachedSamplers(mask)
	origin := all["dream many steps"].(Dream)
	origin.Alg = Origin
	all["dream origin"] = origin
	for name, s := range all {
		forwards := 0
		got, err := s.Generate(t.Context(), [][]int32{{1, 2}, {4, 5}}, func(ctx context.Context, p Pass) (lmhead.Logits, error) {
			forwards++
			start := p.Block.End - 4
			if n := p.Block.End - prompt; n == 12 && p.Block.Index == 0 {
				start = prompt
			}
			open := 0
			for _, ids := range p.IDs[:2] {
				open += count(ids[start:p.Block.End], mask)
				if n := count(ids[:start], mask); n > 0 {
					t.Errorf("%s, forward %d: %d masks before position %d", name, forwards, n, start)
				}
			}
			if open == 0 {
				t.Errorf("%s, forward %d: block %v is full", name, forwards, p.Block)
			}
			for _, row := range p.Rows {
				first := p.Block.First
				if d, ok := s.(Dream); ok && d.FirstTokenAtPrefill && open == 8 {
					first-- // in the first pass of a block
				}
				if row.Pos < first || row.Pos >= p.Block.End {
					t.Errorf("%s, forward %d: reads row %d in block %v", name, forwards, row.Pos, p.Block)
				}
			}
			return asForward(t, noiseLogits(vocab))(ctx, p)
		})
		if err != nil {
			t.Fatal(err)
		}
		if got.Forwards != forwards || got.Steps != forwards {
			t.Errorf("%s: %d forwards, %d counted in %d steps", name, forwards, got.Forwards, got.Steps)
		}
		for b, ids := range got.IDs {
			if slices.Contains(ids, mask) {
				t.Errorf("%s, row %d: masks in %v", name, b, ids)
			}
		}
	}
}

// A block has no more forwards than tokens where each commits at least one.
func TestCachedTotalSteps(t *testing.T) {
	want := map[string]int{
		"llada quota": 6, "llada guided": 6, "llada one block": 6,
		"dream entropy": 6, "dream many steps": 30, "dream one block": 6, "dream published": 6,
	}
	for name, s := range cachedSamplers(waveMask) {
		total, err := s.TotalSteps([][]int32{{1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		got := passes(t, s, [][]int32{{1, 2}}, func(Pass) {})
		n, exact := want[name]
		switch {
		case exact && (total != n || got.Steps != n):
			t.Errorf("%s: %d steps, announced %d, want %d", name, got.Steps, total, n)
		case got.Steps > total:
			t.Errorf("%s: %d steps, announced %d", name, got.Steps, total)
		}
	}
}

// One block of all new tokens is what Dream does without blocks.
func TestDreamOneBlock(t *testing.T) {
	for _, alg := range []Alg{Origin, MaskgitPlus, TopkMargin, Entropy, ConfidenceThreshold} {
		o := Dream{MaxNewTokens: 12, Steps: 6, Eps: 1e-3, Alg: alg, TopP: 1, Temperature: 0.7, Seed: 4, MaskID: 3}
		if alg == ConfidenceThreshold {
			o.Threshold = 0.3
		}
		one := o
		one.BlockLength = 12
		prompts := [][]int32{{1, 2}, {5, 4}}
		var results []*Result
		for _, s := range []sampler{o, one} {
			got, err := s.Generate(t.Context(), prompts, asForward(t, noiseLogits(9)))
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, got)
		}
		if diff := cmp.Diff(results[0], results[1]); diff != "" {
			t.Errorf("%s (-no blocks +one block):\n%s", alg, diff)
		}
	}
}
