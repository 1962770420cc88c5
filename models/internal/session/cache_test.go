package session_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/cacheref"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/internal/modeltest"
	"github.com/pulsecol/pulsecol/models/internal/session"
	"github.com/pulsecol/pulsecol/models/llada"
)

// subject is one of the models of testdata with its reference.
type subject struct {
	settings  session.Settings
	heads     int
	reference *cacheref.Model
	sampler   func(o cachedCase, onStep func(sampler.StepInfo)) session.Sampler
}

// cachedCase is a generation with a cache.
type cachedCase struct {
	tokens, block, steps int
	threshold, factor    float64
	guidance             float64
	temperature          float64
	seed                 uint64
}

func subjects(t *testing.T) map[string]*subject {
	l := modeltest.Opened(llada.Open(golden.Dir(t, "llada")))(t)
	d := modeltest.Opened(dream.Open(golden.Dir(t, "dream")))(t)
	settings := func(build session.Builder, c models.Config) session.Settings {
		return session.Settings{Build: build, Context: c.Context, Vocab: c.Vocab, MaskID: c.MaskID, PadID: c.PadID}
	}
	all := map[string]*subject{
		"llada": {settings(l.Build, l.Config()), l.Config().Heads, cacheref.LLaDA(t), func(c cachedCase, onStep func(sampler.StepInfo)) session.Sampler {
			return sampler.LLaDA{
				GenLength: c.tokens, BlockLength: c.block, Steps: c.steps, Threshold: c.threshold, Factor: c.factor, CFGScale: c.guidance,
				Temperature: c.temperature, Seed: c.seed, ConfidenceDType: lmhead.Float64, MaskID: l.Config().MaskID, Cached: true, OnStep: onStep,
			}
		}},
		"dream": {settings(d.Build, d.Config()), d.Config().Heads, cacheref.Dream(t), func(c cachedCase, onStep func(sampler.StepInfo)) session.Sampler {
			return sampler.Dream{
				MaxNewTokens: c.tokens, BlockLength: c.block, Steps: c.steps, Eps: 1e-3, TopP: 1, Alg: sampler.MaskgitPlus,
				Temperature: c.temperature, Seed: c.seed, MaskID: d.Config().MaskID, Cached: true, OnStep: onStep,
			}
		}},
	}
	all["dream"].settings.PositionsSkipPadding = true
	return all
}

// prompts draws prompts of the given lengths, without the mask.
func (s *subject) prompts(rng *rand.Rand, lengths ...int) (prompts [][]int32) {
	for _, n := range lengths {
		prompt := make([]int32, n)
		for i := range prompt {
			for prompt[i] = s.settings.MaskID; prompt[i] == s.settings.MaskID; {
				prompt[i] = rng.Int32N(int32(s.settings.Vocab))
			}
		}
		prompts = append(prompts, prompt)
	}
	return prompts
}

// session returns a session under a configuration.
func (s *subject) session(t *testing.T, cfg pulsecol.Config) *session.Session {
	t.Helper()
	settings := s.settings
	settings.Config = cfg
	return modeltest.Opened(session.New(settings))(t)
}

// generate runs a case in a session.
func (s *subject) generate(ctx context.Context, sess *session.Session, prompts [][]int32, c cachedCase, onStep func(models.Progress)) ([]models.Result, error) {
	o := session.Generation{NewTokens: c.tokens, BlockLength: c.block, Guided: c.guidance > 0, OnStep: onStep}
	return sess.Generate(ctx, prompts, o, func(onStep func(sampler.StepInfo)) session.Sampler { return s.sampler(c, onStep) })
}

// TestCachedGenerationsEqualReference holds random generations with a cache to the
// reference's tokens, and the columns of its last block to the reference's: both caches, columns and full attention, batches of different prompt
// lengths, thresholds, guidance and temperature.
func TestCachedGenerationsEqualReference(t *testing.T) {
	compared, least := 0, 100
	if testing.Short() {
		least = 20
	}
	defer func() {
		if compared < least {
			t.Errorf("the columns of %d groups were compared, want at least %d", compared, least)
		}
	}()
	for name, s := range subjects(t) {
		seeds := uint64(24)
		if testing.Short() {
			seeds = 4
		}
		for seed := range seeds {
			rng := rand.New(rand.NewPCG(seed, 7))
			block, blocks := 1+rng.IntN(8), 1+rng.IntN(3)
			c := cachedCase{tokens: block * blocks, block: block, steps: blocks * (1 + rng.IntN(block)), seed: seed}
			cfg := pulsecol.Config{
				Precision: pulsecol.Float32, Cache: []pulsecol.Cache{pulsecol.PrefixCache, pulsecol.DualCache}[rng.IntN(2)], PrefillEvery: rng.IntN(3),
				GroupSize: 1 + rng.IntN(12),
			}
			o := cacheref.Options{Cache: cacheref.Cache(cfg.Cache.String()), PrefillEvery: cfg.PrefillEvery}
			if sparsity := []float64{0, 0.5, 0.8}[rng.IntN(3)]; sparsity > 0 {
				cfg.Sparsity, cfg.Schedule = sparsity, pulsecol.Uniform{Eta: 0.5, Refreshes: 3}
				o.Columns = &cacheref.Columns{Sparsity: sparsity, GroupSize: cfg.GroupSize}
				for step := 1; step <= c.steps; step++ {
					if cfg.Schedule.Mode(step, c.steps) == pulsecol.Refresh {
						o.Columns.Refresh = append(o.Columns.Refresh, step)
					}
				}
			}
			lengths := []int{10 + rng.IntN(30)}
			switch kind := rng.IntN(4); {
			case kind == 0:
				lengths = append(lengths, lengths[0]-7)
				o.Padding = []int{0, 7}
			case kind == 1 && name == "llada":
				c.guidance = 0.5
			case kind == 2:
				c.temperature = 0.7
			case kind == 3 && name == "llada" && o.Columns == nil:
				c.threshold = 0.05
			}
			kept := blockColumns{layers: map[int]pulsecol.BlockColumns{}}
			cfg.Observer = &kept
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				prompts := s.prompts(rng, lengths...)
				results, err := s.generate(t.Context(), s.session(t, cfg), prompts, c, nil)
				if err != nil {
					t.Fatal(err)
				}
				padded := slices.Clone(prompts)
				if len(padded) == 2 {
					padded[1] = slices.Concat(slices.Repeat([]int32{s.settings.PadID}, 7), padded[1])
				}
				run := s.reference.Run(o)
				want, err := s.sampler(c, nil).Generate(t.Context(), padded, run.Forward)
				if err != nil {
					t.Fatal(err)
				}
				for b, res := range results {
					if out := want.IDs[b][lengths[0]:]; !slices.Equal(res.OutputIDs, out) {
						t.Errorf("%+v, %+v, prompts of %v, row %d:\ngot  %v\nwant %v", cfg, c, lengths, b, res.OutputIDs, out)
					}
				}
				if len(results[0].Passes) != len(run.Steps) {
					t.Fatalf("%d passes, want %d", len(results[0].Passes), len(run.Steps))
				}
				for i, p := range results[0].Passes {
					if p.First != run.Steps[i].First || p.Rows != run.Steps[i].Rows {
						t.Errorf("pass %d is %+v, want %+v", i, p, run.Steps[i])
					}
				}
				if (len(kept.layers) > 0) != (o.Columns != nil) {
					t.Errorf("columns of blocks in %d layers, columns are %+v", len(kept.layers), o.Columns)
				}
				compared += kept.compare(t, run)
			})
		}
	}
}

// blockColumns is an observer that keeps the columns of the latest block, by layer.
type blockColumns struct {
	block  pulsecol.Block
	layers map[int]pulsecol.BlockColumns
}

func (k *blockColumns) Observe(o pulsecol.Observation) {
	if o.BlockColumns != nil {
		b := *o.BlockColumns
		b.Bits = slices.Clone(b.Bits)
		k.block, k.layers[o.Layer] = o.Block, b
	}
}

// compare holds the columns to those of the reference after its latest forward, and returns
// the number of groups. The reference does not count the keys of the block among them.
func (k *blockColumns) compare(t *testing.T, run *cacheref.Run) (groups int) {
	t.Helper()
	outside := func(keys []int) []int {
		return slices.DeleteFunc(slices.Clone(keys), func(j int) bool { return j >= k.block.First && j < k.block.End })
	}
	for layer, b := range k.layers {
		for row := range b.Batch {
			for head := range b.Heads {
				for group := range b.Groups() {
					groups++
					got, want := outside(b.Keys(row, head, group)), outside(run.Block(row, layer, head, group))
					if !slices.Equal(got, want) {
						t.Errorf("row %d, layer %d, head %d, group %d keeps %v, want %v", row, layer, head, group, got, want)
					}
				}
			}
		}
	}
	return groups
}

// TestSession: generations in one session, of several lengths and batches, are those of
// sessions of their own; also after one that was stopped at any step, and one that failed.
func TestSession(t *testing.T) {
	configs := map[string]pulsecol.Config{
		"none":    {Sparsity: 0.6, GroupSize: 4},
		"dual":    {Sparsity: 0.6, GroupSize: 4, Cache: pulsecol.DualCache},
		"prefix":  {Cache: pulsecol.PrefixCache, PrefillEvery: 1},
		"sparsed": {Sparsity: 0.6, Pattern: pulsecol.SparseD{BlockSize: 4}},
	}
	s := subjects(t)["llada"]
	rng := rand.New(rand.NewPCG(1, 2))
	batches := [][][]int32{s.prompts(rng, 20), s.prompts(rng, 9), s.prompts(rng, 30, 12), s.prompts(rng, 20)}
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			sess := s.session(t, cfg)
			for round := range 2 {
				for i, prompts := range batches {
					c := cachedCase{tokens: 8 + 4*(i%2), block: 4, steps: 8 + 4*(i%2), seed: 3}
					ctx, stop := context.WithCancel(t.Context())
					_, err := s.generate(ctx, sess, prompts, c, func(p models.Progress) {
						if p.Step == 1+round*3 {
							stop()
						}
					})
					if !errors.Is(err, context.Canceled) {
						t.Fatalf("a generation that was stopped: %v", err)
					}
					if _, err := s.generate(t.Context(), sess, [][]int32{{-1}}, c, nil); !errors.Is(err, models.ErrRequest) {
						t.Fatalf("a prompt that there cannot be: %v", err)
					}
					got, err := s.generate(t.Context(), sess, prompts, c, nil)
					if err != nil {
						t.Fatal(err)
					}
					want, err := s.generate(t.Context(), s.session(t, cfg), prompts, c, nil)
					if err != nil {
						t.Fatal(err)
					}
					for b := range want {
						if !slices.Equal(got[b].OutputIDs, want[b].OutputIDs) || !slices.Equal(got[b].Passes, want[b].Passes) {
							t.Errorf("batch %d, row %d: %v %v, want %v %v", i, b, got[b].OutputIDs, got[b].Passes, want[b].OutputIDs, want[b].Passes)
						}
						for l, layer := range got[b].Stats.Layers {
							if other := want[b].Stats.Layers[l]; layer.Refreshes != other.Refreshes || math.Abs(layer.Density-other.Density) > 0 {
								t.Errorf("batch %d, layer %d: %+v, want %+v", i, l, layer, other)
							}
						}
					}
				}
			}
		})
	}
}

// TestSessionMemory: on the CPU the memory of a session is bounded by its largest generation and the
// number of graphs that it keeps, and the cache takes what was predicted.
func TestSessionMemory(t *testing.T) {
	s := subjects(t)["llada"]
	cfg := pulsecol.Config{Sparsity: 0.5, GroupSize: 4, Cache: pulsecol.DualCache, Device: pulsecol.CPU}
	sess := s.session(t, cfg)
	rng := rand.New(rand.NewPCG(1, 2))
	run := func(length int) int64 {
		t.Helper()
		results, err := s.generate(t.Context(), sess, s.prompts(rng, length), cachedCase{tokens: 8, block: 4, steps: 8}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var bytes int64
		for _, l := range results[0].Stats.Layers {
			bytes += l.Cache
		}
		return bytes
	}
	largest := run(80)
	for length := 1; length <= 60; length++ {
		if got := run(length); got > largest {
			t.Fatalf("the cache takes %d bytes for a prompt of %d tokens, before %d for 80", got, length, largest)
		}
	}
	if graphs := sess.Graphs(); graphs > 32 {
		t.Errorf("the session keeps %d graphs, want at most 32", graphs)
	}
	mem, err := session.PredictMemory(s.settings.Build, models.Shape{Batch: 1, Len: 88, Cached: 88, Rows: 5}, cfg, 4)
	if err != nil {
		t.Fatal(err)
	}
	// The scores of a block, one group of queries, are one layer's at a time.
	if held := largest + 4*int64(s.heads)*88; mem.Cache != held {
		t.Errorf("%d bytes predicted for the cache, held %d", mem.Cache, held)
	}
}
