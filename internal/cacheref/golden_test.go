package cacheref_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/cacheref"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// goldenCase is a case of testdata/cache: of fastdllm.json, or with modes of columns.json.
type goldenCase struct {
	Name           string
	Cache          cacheref.Cache
	GenLength      int `json:"gen_length"`
	MaxNewTokens   int `json:"max_new_tokens"`
	BlockLength    int `json:"block_length"`
	Steps          int
	Alg            string
	Threshold      float64
	Sparsity       *float64
	GroupSize      int `json:"group_size"`
	Eta            float64
	Refreshes      int
	PrefillEvery   *int `json:"prefill_every"`
	Forwards       int
	IdleForwards   int   `json:"idle_forwards"`
	RowsPerForward []int `json:"rows_per_forward"`
	Rows           []int
	FirstRows      []int `json:"first_rows"`
	Modes          []cacheref.Mode
}

// uniform returns the refresh steps of the paper's schedule.
func uniform(total int, eta float64, refreshes int) []int {
	within := max(1, int(math.Floor(eta*float64(total)+1e-9)))
	var steps []int
	for r := range refreshes {
		steps = append(steps, 1+r*(within-1)/max(1, refreshes-1))
	}
	return steps
}

// options returns the options of the case's run.
func (c *goldenCase) options() cacheref.Options {
	o := cacheref.Options{Cache: c.Cache, PrefillEvery: 1}
	if c.PrefillEvery != nil {
		o.PrefillEvery = *c.PrefillEvery
	}
	if c.Sparsity != nil {
		o.Columns = &cacheref.Columns{Sparsity: *c.Sparsity, GroupSize: c.GroupSize, Refresh: uniform(c.Steps, c.Eta, c.Refreshes)}
	}
	return o
}

// recorded is a run that keeps the logits of its forwards.
type recorded struct {
	*cacheref.Run
	mask   int32
	logits [][][][]float32
}

// forward gives the mask token the logit -Inf, as the cases do. Samplers that never
// propose it leave it in the softmax.
func (r *recorded) forward(ctx context.Context, p sampler.Pass) (lmhead.Logits, error) {
	logits, err := r.Forward(ctx, p)
	if err != nil {
		return nil, err
	}
	r.logits = append(r.logits, r.Logits)
	out := slices.Clone(logits.(lmhead.Host))
	for i := range out {
		out[i] = slices.Clone(out[i])
		out[i][r.mask] = float32(math.Inf(-1))
	}
	return out, nil
}

// testCases runs every case of testdata/cache/name for both models.
func testCases(t *testing.T, name string) {
	set := golden.Open(t, "cache/"+name)
	var cases map[string][]goldenCase
	set.JSON(&cases)
	for _, c := range append(cases["llada"], cases["dream"]...) {
		t.Run(c.Name, func(t *testing.T) {
			rows := 0
			for _, n := range slices.Concat(c.Rows, c.RowsPerForward) {
				rows += n
			}
			if rows > 300 { // all but one case of each file
				long(t)
			}
			prompt, _ := set.Int32s(c.Name + ".prompt")
			want, _ := set.Int32s(c.Name + ".out")
			if name == "columns" {
				want = slices.Concat(prompt, want)
			}
			m := llada
			if strings.HasPrefix(c.Name, "dream") {
				m = dream
			}
			run := &recorded{Run: m(t).Run(c.options()), mask: m(t).MaskID}
			got, err := c.sampler(m(t).MaskID, name == "fastdllm").Generate(t.Context(), [][]int32{prompt}, run.forward)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.IDs[0], want) {
				t.Errorf("got  %v\nwant %v", got.IDs[0], want)
			}
			if forwards := c.Forwards - c.IdleForwards; got.Forwards != forwards || got.Steps != forwards {
				t.Errorf("%d forwards in %d steps, want %d", got.Forwards, got.Steps, forwards)
			}
			c.checkSteps(t, run.Steps)
			first := slices.IndexFunc(run.Steps, func(s cacheref.Step) bool { return s.Rows < len(want) })
			last := "last"
			if name == "fastdllm" {
				last = "last_cached"
			}
			for at, which := range map[int]string{first: "first_cached", len(run.logits) - 1: last} {
				logits, _ := set.Float32s(c.Name + ".logits_" + which)
				tol.Close(t, slices.Concat(run.logits[at][0]...), logits, 1e-4)
			}
		})
	}
}

// checkSteps compares modes and rows of the forwards.
func (c *goldenCase) checkSteps(t *testing.T, steps []cacheref.Step) {
	t.Helper()
	var modes []cacheref.Mode
	var firsts, rows []int
	for _, s := range steps {
		modes, firsts, rows = append(modes, s.Mode), append(firsts, s.First), append(rows, s.Rows)
	}
	if want := slices.Concat(c.Rows, c.RowsPerForward); !slices.Equal(rows, want) {
		t.Errorf("rows of the forwards %v, want %v", rows, want)
	}
	if c.Modes != nil && (!slices.Equal(modes, c.Modes) || !slices.Equal(firsts, c.FirstRows)) {
		t.Errorf("modes and first rows of the forwards %v %v, want %v %v", modes, firsts, c.Modes, c.FirstRows)
	}
}

// sampler returns the case's sampler; for Dream that of Fast-dLLM if published.
func (c *goldenCase) sampler(mask int32, published bool) generator {
	if strings.HasPrefix(c.Name, "llada") {
		return sampler.LLaDA{
			GenLength: c.GenLength, BlockLength: c.BlockLength, Steps: c.Steps, Threshold: c.Threshold,
			ConfidenceDType: lmhead.Float64, MaskID: mask, Cached: true,
		}
	}
	return sampler.Dream{
		MaxNewTokens: c.GenLength + c.MaxNewTokens, BlockLength: c.BlockLength, Steps: c.Steps, Eps: 1e-3, TopP: 1,
		Alg: sampler.Alg(c.Alg), Threshold: c.Threshold, MaskID: mask, Cached: true, FirstTokenAtPrefill: published,
	}
}

// The samplers that Fast-dLLM published, over the published models.
func TestEqualsFastDLLM(t *testing.T) { testCases(t, "fastdllm") }

// The rules of this package in PyTorch, over the published models.
func TestEqualsColumns(t *testing.T) { testCases(t, "columns") }
