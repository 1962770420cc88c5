package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol"
)

// cacheFlags select which keys and values a generation keeps.
type cacheFlags struct {
	Cache        *string `group:"Attention" enum:"none,prefix,dual" placeholder:"NAME" help:"Keep keys and values from step to step, so that most steps compute one block of --block-length: none, prefix (those before the block) or dual (those after it, too). Default: none, and for answers of a small model dual, where it applies."`
	PrefillEvery *int    `group:"Attention" placeholder:"N" help:"With --cache: compute all tokens in the first step of every N-th block, or with 0 of the first block alone. Default: 0."`
}

// cacheLists are lists of caches, whose product is measured.
type cacheLists struct {
	Cache        []string `group:"Attention" enum:"none,prefix,dual" default:"none" placeholder:"NAME" help:"Keep keys and values from step to step, so that most steps compute one block of --block-length: none, prefix (those before the block) or dual (those after it, too). Default: none."`
	PrefillEvery []int    `group:"Attention" placeholder:"N" help:"With --cache: compute all tokens in the first step of every N-th block, or with 0 of the first block alone. Default: 0."`
}

// caches are the values of --cache.
var caches = map[string]pulsecol.Cache{"none": pulsecol.NoCache, "prefix": pulsecol.PrefixCache, "dual": pulsecol.DualCache}

// caching is a cache of keys and values. The zero value is none.
type caching struct {
	name         string // of the cache; "" for none
	prefillEvery int    // blocks from one prefill to the next; 0 is one prefill
}

// set makes c keep the keys and values.
func (k caching) set(c *pulsecol.Config) {
	if k.name != "" {
		c.Cache, c.PrefillEvery = caches[k.name], k.prefillEvery
	}
}

// cache returns what the flags select for a method with a schedule.
func (f *cacheFlags) cache(method, schedule string) (caching, error) {
	var every []int
	if f.PrefillEvery != nil {
		every = []int{*f.PrefillEvery}
	}
	all, err := (&cacheLists{[]string{or(f.Cache, "none")}, every}).product(method, schedule)
	if err != nil {
		return caching{}, err
	}
	return all[0], nil
}

// product returns every combination of the lists, for a method with a schedule. Of several
// caches a method gets those that it can have. None comes first: tables compare with the
// first row of a method.
func (l *cacheLists) product(method, schedule string) ([]caching, error) {
	var b bounds
	for _, n := range l.PrefillEvery {
		b.between(0, maxTokens, "prefill-every", &n)
	}
	if err := b.err(); err != nil {
		return nil, err
	}
	every := l.PrefillEvery
	if every == nil {
		every = []int{0}
	}
	var out []caching
	var refused error
	if slices.Contains(l.Cache, "none") {
		out = append(out, caching{})
	}
	kept := false
	for _, name := range l.Cache {
		if name == "none" {
			continue
		}
		kept = true
		if err := cacheApplies(name, method, schedule); err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		for _, n := range every {
			out = append(out, caching{name, n})
		}
	}
	switch {
	case !kept && l.PrefillEvery != nil:
		return nil, usagef("--prefill-every needs --cache prefix or dual")
	case out == nil:
		return out, refused
	}
	return out, nil
}

// cacheApplies reports a method or a schedule without caches.
func cacheApplies(name, method, schedule string) error {
	switch {
	case method == "sparsed":
		return usagef("--cache %s does not apply to --method sparsed", name)
	case schedule == "adaptive":
		return usagef("--cache %s does not apply to --schedule adaptive", name)
	}
	return nil
}

// pass is what a forward computed, in generate --json.
type pass struct {
	Kind  string `json:"kind"`  // prefill, commit or block
	Rows  int    `json:"rows"`  // of the sequence
	First int    `json:"first"` // of them; padding counts
	Mode  string `json:"mode"`
}

func describePasses(passes []pulsecol.Pass) []pass {
	var out []pass
	for _, p := range passes {
		out = append(out, pass{p.Kind.String(), p.Rows, p.First, p.Mode.String()})
	}
	return out
}

// passesText counts the steps of each kind: "1 prefill, 3 commits and 28 block steps".
func passesText(s pulsecol.Stats) string {
	count := func(n int, what string) string {
		if n != 1 {
			what += "s"
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	text := count(s.Prefills, "prefill")
	if s.Commits > 0 {
		text += ", " + count(s.Commits, "commit")
	}
	return text + " and " + count(s.BlockSteps, "block step")
}
