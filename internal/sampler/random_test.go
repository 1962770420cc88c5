package sampler

import (
	"context"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/lmhead"
)

func TestSeedDecides(t *testing.T) {
	prompts := [][]int32{{1, 2}, {1, 2}}
	model := noiseLogits(30)
	l := LLaDA{Steps: 5, GenLength: 10, BlockLength: 10, Temperature: 1, MaskID: 29}
	r := LLaDA{Steps: 5, GenLength: 10, BlockLength: 10, Remasking: RandomOrder, MaskID: 29}
	d := Dream{MaxNewTokens: 10, Steps: 5, Eps: 1e-3, Alg: MaskgitPlus, Temperature: 1, TopP: 1, MaskID: 29}
	g := Dream{MaxNewTokens: 10, Steps: 5, Eps: 1e-3, Alg: Entropy, AlgTemp: 1, TopP: 1, MaskID: 29}
	for name, with := range map[string]func(seed uint64) sampler{
		"llada":        func(seed uint64) sampler { l.Seed = seed; return l },
		"llada random": func(seed uint64) sampler { r.Seed = seed; return r },
		"dream":        func(seed uint64) sampler { d.Seed = seed; return d },
		"dream order":  func(seed uint64) sampler { g.Seed = seed; return g },
	} {
		var results [][][]int32
		for _, seed := range []uint64{1, 1, 2} {
			got, err := with(seed).Generate(t.Context(), prompts, asForward(t, model))
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, got.IDs)
		}
		if diff := cmp.Diff(results[0], results[1]); diff != "" {
			t.Errorf("%s: the same seed twice:\n%s", name, diff)
		}
		if cmp.Equal(results[0], results[2]) {
			t.Errorf("%s: seeds 1 and 2 give the same tokens", name)
		}
		if slices.Equal(results[0][0], results[0][1]) {
			t.Errorf("%s: equal prompts of a batch give equal samples", name)
		}
	}
}

func TestThreadsDoNotMatter(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	prompts := [][]int32{{1, 2}, {3, 4}}
	for _, s := range []sampler{
		LLaDA{Steps: 4, GenLength: 20, BlockLength: 10, Temperature: 1, CFGScale: 1, MaskID: 29},
		Dream{MaxNewTokens: 20, Steps: 6, Eps: 1e-3, Alg: Entropy, AlgTemp: 1, Temperature: 0.7, TopP: 0.9, TopK: 9, MaskID: 29},
	} {
		var results [][][]int32
		for _, threads := range []int{1, 2, 7} {
			runtime.GOMAXPROCS(threads)
			got, err := s.Generate(t.Context(), prompts, asForward(t, noiseLogits(30)))
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, got.IDs)
		}
		if !cmp.Equal(results[0], results[1]) || !cmp.Equal(results[0], results[2]) {
			t.Errorf("%T: 1, 2 and 7 threads give %v", s, results)
		}
	}
}

// sampleOnce draws one token in each of rows batch rows of s, which must have
// logits as its distribution, and returns how often each came.
func sampleOnce(t *testing.T, s sampler, rows int, logits []float32) []int {
	t.Helper()
	got, err := s.Generate(t.Context(), make([][]int32, rows), asForward(t, func([]int32, int) []float32 { return logits }))
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]int, len(logits))
	for _, row := range got.IDs {
		counts[row[0]]++
	}
	return counts
}

func TestTemperatureSamples(t *testing.T) {
	logits := []float32{1, 2, 0.5, -1, 3, 2.5} // 5 is the mask
	const rows = 20_000
	for _, suppress := range []bool{false, true} {
		// distribution returns softmax(l/t), without the mask if it is suppressed.
		distribution := func(l []float64, t float64) []float64 {
			scaled := make([]float64, len(l))
			for v := range l {
				scaled[v] = l[v] / t
			}
			if suppress {
				scaled[5] = math.Inf(-1)
			}
			return naiveSoftmax(scaled)
		}
		for _, temperature := range []float64{0.5, 1, 2.5} {
			want := distribution(widen(logits), temperature)
			other := distribution([]float64{1.2, 2, 0.5, -1, 3, 2.5}, temperature)
			for name, s := range map[string]sampler{
				"llada": LLaDA{Steps: 1, GenLength: 1, BlockLength: 1, Temperature: temperature, MaskID: 5, SuppressMask: suppress, Seed: 11},
				"dream": Dream{MaxNewTokens: 1, Steps: 1, Eps: 1e-3, Alg: MaskgitPlus, Temperature: temperature, TopP: 1, MaskID: 5, SuppressMask: suppress, Seed: 11},
			} {
				counts := sampleOnce(t, s, rows, logits)
				if x := chiSquare(counts, want); x > 1 {
					t.Errorf("%s at temperature %v, mask suppressed %v: counts %v are %.1f times the limit from %v", name, temperature, suppress, counts, x, want)
				}
				if x := chiSquare(counts, other); temperature == 1 && x < 1 {
					t.Errorf("%s, mask suppressed %v: the test cannot tell %v from %v", name, suppress, want, other)
				}
			}
		}
		truncated := Dream{MaxNewTokens: 1, Steps: 1, Eps: 1e-3, Temperature: 1, TopP: 1, TopK: 3, MaskID: 5, SuppressMask: suppress, Seed: 11}
		never := math.Inf(-1)
		want := distribution([]float64{never, 2, never, never, 3, 2.5}, 1) // the mask is one of the three
		if x := chiSquare(sampleOnce(t, truncated, rows, logits), want); x > 1 {
			t.Errorf("top_k 3, mask suppressed %v: counts are %.1f times the limit from %v", suppress, x, want)
		}
	}
}

func TestRandomRemaskingIsUniformAndReadsWhatItCommits(t *testing.T) {
	const rows, n = 8000, 5
	counts := make([]int, n)
	o := LLaDA{Steps: n, GenLength: n, BlockLength: n, Remasking: RandomOrder, MaskID: waveMask, OnStep: func(s StepInfo) {
		if s.Step == 2 {
			for _, row := range s.Committed {
				counts[row.Pos]++
			}
		}
	}}
	asked := 0
	_, err := o.Generate(t.Context(), make([][]int32, rows), func(ctx context.Context, p Pass) (lmhead.Logits, error) {
		asked += len(p.Rows)
		return asForward(t, waveLogits)(ctx, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	if asked != rows*n {
		t.Errorf("%d rows of logits asked for, want one a token, %d", asked, rows*n)
	}
	if x := chiSquare(counts, slices.Repeat([]float64{1. / n}, n)); x > 1 {
		t.Errorf("positions filled second: %v, %.1f times the limit from uniform", counts, x)
	}
}
