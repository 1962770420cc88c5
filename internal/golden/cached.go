package golden

import (
	"slices"
	"testing"
)

// CachedGeneration is a generation with a cache of keys and values: a case of the sets
// cache/fastdllm or cache/columns.
type CachedGeneration struct {
	Name         string
	Published    bool   // by Fast-dLLM's samplers; else by the rules of internal/cacheref
	Cache        string // "prefix" or "dual"
	GenLength    int    `json:"gen_length"`
	MaxNewTokens int    `json:"max_new_tokens"` // in place of GenLength, of Dream's published sampler
	BlockLength  int    `json:"block_length"`
	Steps        int
	Alg          string // of Dream
	Threshold    float64
	Sparsity     *float64 // nil is full attention
	GroupSize    int      `json:"group_size"`
	Eta          float64  // of the uniform schedule
	Refreshes    int
	PrefillEvery *int `json:"prefill_every"` // nil is 1
	Forwards     int
	IdleForwards int `json:"idle_forwards"` // of them, after a block was full

	RowsPerForward []int    `json:"rows_per_forward"` // of a published sampler
	Rows           []int    // of the forwards, of the others
	FirstRows      []int    `json:"first_rows"`
	Modes          []string // "dense", "refresh", "first" or "block"

	set *Set
}

// CachedGenerations runs f for every case of a model, "llada" or "dream".
func CachedGenerations(t *testing.T, model string, f func(t *testing.T, c *CachedGeneration)) {
	count := 0
	for _, file := range []string{"fastdllm", "columns"} {
		set := Open(t, "cache/"+file)
		var cases map[string][]*CachedGeneration
		set.JSON(&cases)
		for _, c := range cases[model] {
			c.set, c.Published = set, file == "fastdllm"
			t.Run(c.Name, func(t *testing.T) { f(t, c) })
			count++
		}
	}
	if count == 0 {
		t.Fatalf("no cases of %q", model)
	}
}

// NewTokens is the number of tokens that the case generates.
func (c *CachedGeneration) NewTokens() int { return c.GenLength + c.MaxNewTokens }

// Every is PrefillEvery, 1 by default.
func (c *CachedGeneration) Every() int {
	if c.PrefillEvery == nil {
		return 1
	}
	return *c.PrefillEvery
}

// Prompt returns the token ids of the prompt.
func (c *CachedGeneration) Prompt() []int32 {
	ids, _ := c.set.Int32s(c.Name + ".prompt")
	return ids
}

// Out returns the token ids of the generation, without the prompt.
func (c *CachedGeneration) Out() []int32 {
	ids, _ := c.set.Int32s(c.Name + ".out")
	return ids[len(ids)-c.NewTokens():]
}

// AllRows returns the number of rows of each forward.
func (c *CachedGeneration) AllRows() []int { return slices.Concat(c.Rows, c.RowsPerForward) }

// HasLogits reports whether there are logits of the case, which some have.
func (c *CachedGeneration) HasLogits() bool { return c.set.Has(c.Name + ".logits_first_cached") }

// FirstCached returns the logits [rows, vocabulary] of the first forward that is no prefill.
func (c *CachedGeneration) FirstCached() []float32 { return c.logits("first_cached") }

// Last returns the logits [rows, vocabulary] of the last forward.
func (c *CachedGeneration) Last() []float32 {
	if c.Published {
		return c.logits("last_cached")
	}
	return c.logits("last")
}

func (c *CachedGeneration) logits(which string) []float32 {
	x, _ := c.set.Float32s(c.Name + ".logits_" + which)
	return x
}
