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

// uniform returns the refresh steps of the paper's schedule.
func uniform(total int, eta float64, refreshes int) []int {
	within := max(1, int(math.Floor(eta*float64(total)+1e-9)))
	var steps []int
	for r := range refreshes {
		steps = append(steps, 1+r*(within-1)/max(1, refreshes-1))
	}
	return steps
}

// options returns the options of a case's run.
func options(c *golden.CachedGeneration) cacheref.Options {
	o := cacheref.Options{Cache: cacheref.Cache(c.Cache), PrefillEvery: c.Every()}
	if c.Sparsity != nil {
		o.Columns = &cacheref.Columns{Sparsity: *c.Sparsity, GroupSize: c.GroupSize, Refresh: uniform(c.Steps, c.Eta, c.Refreshes)}
	}
	return o
}

// recorded is a run that keeps the logits of its forwards.
type recorded struct {
	*cacheref.Run
	logits [][][][]float32
}

func (r *recorded) forward(ctx context.Context, p sampler.Pass) (lmhead.Logits, error) {
	logits, err := r.Forward(ctx, p)
	if err != nil {
		return nil, err
	}
	r.logits = append(r.logits, r.Logits)
	return logits, nil
}

// testCases runs every case of a model.
func testCases(t *testing.T, model string, open func(testing.TB) *cacheref.Model) {
	golden.CachedGenerations(t, model, func(t *testing.T, c *golden.CachedGeneration) {
		rows := 0
		for _, n := range c.AllRows() {
			rows += n
		}
		if rows > 300 { // all but one case of each file
			long(t)
		}
		m := open(t)
		run := &recorded{Run: m.Run(options(c))}
		got, err := generatorOf(c, m.MaskID).Generate(t.Context(), [][]int32{c.Prompt()}, run.forward)
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Concat(c.Prompt(), c.Out()); !slices.Equal(got.IDs[0], want) {
			t.Errorf("got  %v\nwant %v", got.IDs[0], want)
		}
		if forwards := c.Forwards - c.IdleForwards; got.Forwards != forwards || got.Steps != forwards {
			t.Errorf("%d forwards in %d steps, want %d", got.Forwards, got.Steps, forwards)
		}
		checkSteps(t, c, run.Steps)
		if !c.HasLogits() {
			return
		}
		first := slices.IndexFunc(run.Steps, func(s cacheref.Step) bool { return s.Rows < len(got.IDs[0]) })
		tol.Close(t, slices.Concat(run.logits[first][0]...), c.FirstCached(), 1e-4)
		tol.Close(t, slices.Concat(run.logits[len(run.logits)-1][0]...), c.Last(), 1e-4)
	})
}

// checkSteps compares modes and rows of the forwards.
func checkSteps(t *testing.T, c *golden.CachedGeneration, steps []cacheref.Step) {
	t.Helper()
	var modes []string
	var firsts, rows []int
	for _, s := range steps {
		modes, firsts, rows = append(modes, string(s.Mode)), append(firsts, s.First), append(rows, s.Rows)
	}
	if want := c.AllRows(); !slices.Equal(rows, want) {
		t.Errorf("rows of the forwards %v, want %v", rows, want)
	}
	if c.Modes != nil && (!slices.Equal(modes, c.Modes) || !slices.Equal(firsts, c.FirstRows)) {
		t.Errorf("modes and first rows of the forwards %v %v, want %v %v", modes, firsts, c.Modes, c.FirstRows)
	}
}

// generatorOf returns a case's sampler; for Dream that of Fast-dLLM if it is published.
func generatorOf(c *golden.CachedGeneration, mask int32) generator {
	if strings.HasPrefix(c.Name, "llada") {
		return sampler.LLaDA{
			GenLength: c.GenLength, BlockLength: c.BlockLength, Steps: c.Steps, Threshold: c.Threshold,
			ConfidenceDType: lmhead.Float64, MaskID: mask, Cached: true,
		}
	}
	return sampler.Dream{
		MaxNewTokens: c.NewTokens(), BlockLength: c.BlockLength, Steps: c.Steps, Eps: 1e-3, TopP: 1,
		Alg: sampler.Alg(c.Alg), Threshold: c.Threshold, MaskID: mask, Cached: true, FirstTokenAtPrefill: c.Published,
	}
}

// The published models by the samplers that Fast-dLLM published, and by the rules of this
// package in PyTorch.
func TestLLaDAEqualsPublished(t *testing.T) { testCases(t, "llada", cacheref.LLaDA) }
func TestDreamEqualsPublished(t *testing.T) { testCases(t, "dream", cacheref.Dream) }
