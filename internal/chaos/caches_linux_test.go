package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// cachedLines are command lines with caches that are right and take no time.
func cachedLines(t *testing.T) [][]string {
	generation := append([]string{"generate", "--model", small(t), "--prompt", "a"}, quick...)
	dream := []string{"generate", "--small", "dream", "--prompt-ids", "5,6", "--max-new-tokens", "4", "--block-length", "2", "--steps", "4"}
	return [][]string{
		append(slices.Clone(generation), "--cache", "dual"),
		append(slices.Clone(generation), "--cache", "prefix", "--prefill-every", "1", "--sparsity", "0.5", "--json"),
		append(slices.Clone(dream), "--cache", "dual"),
		append(slices.Clone(dream), "--cache", "prefix", "--prefill-every", "1", "--alg", "entropy", "--first-token-at-prefill"),
		append([]string{"inspect", "--random-ids", "40", "--cache", "dual"}, quick...),
		append([]string{"eval", "--task", "lists@80", "--samples", "1", "--method", "full,pulsecol", "--cache", "none,dual"}, quick...),
		{"bench", "step", "--length", "64", "--steps-per-mode", "1", "--cache", "dual", "--block-length", "4"},
		{"info", "--length", "64", "--gen-length", "16", "--block-length", "8", "--cache", "prefix"},
	}
}

// cacheFlags are those that caches depend on, and those that they exclude.
var cacheFlags = []string{
	"--cache", "--prefill-every", "--block-length", "--steps", "--gen-length", "--max-new-tokens", "--first-token-at-prefill", "--infill", "--method", "--schedule",
	"--sparsity", "--group-size", "--threshold", "--factor", "--alg", "--device", "--precision", "--cfg-scale", "--batch", "--prompt-ids", "--random-ids", "--length",
}

// TestBadCachedLines: command lines with caches, and flags that have odd values or do not
// belong to them.
func TestBadCachedLines(t *testing.T) {
	all := cachedLines(t)
	for _, args := range all {
		pulsecol(args...).succeeds(t)
	}
	seeded(pick(25, 1500), func(seed int) {
		rng := rand.New(rand.NewPCG(uint64(seed), 500))
		args, odd := badLine(rng, oneOf(rng, all), cacheFlags)
		scratch(t, func(dir string) {
			c := command{args: args, dir: dir, note: fmt.Sprintf("seed %d", seed)}
			trials.add("bad lines with caches")
			c.bad(t, append(odd, "pulsecol --help", "pulsecol help", "config.json", "sampler: ")...)
			noneLeft(t, c, dir)
		})
	})
}

// cachedAnswer reports what an answer of generate --cache --json cannot be: passes that are
// not those of its forwards, or do not begin with a prefill.
func cachedAnswer(stdout string) error {
	if err := jsonLines(stdout); err != nil {
		return err
	}
	for line := range strings.Lines(stdout) {
		var answer struct {
			OutputIDs []int32 `json:"output_ids"`
			Forwards  int     `json:"forwards"`
			Passes    []struct {
				Kind string `json:"kind"`
				Rows int    `json:"rows"`
			} `json:"passes"`
		}
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			return err
		}
		if len(answer.Passes) != answer.Forwards || len(answer.OutputIDs) != 64 {
			return fmt.Errorf("%d tokens, %d passes of %d forwards", len(answer.OutputIDs), len(answer.Passes), answer.Forwards)
		}
		for i, p := range answer.Passes {
			if (p.Kind == "prefill") != (i == 0) || p.Rows < 1 {
				return errors.New("a pass of kind " + p.Kind)
			}
		}
	}
	return nil
}
