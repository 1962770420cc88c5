package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTruncatedWeights: weights that were cut before the start are refused by name,
// wherever they were cut.
func TestTruncatedWeights(t *testing.T) {
	dir, weights := copied(t)
	file := read(t, weights)
	text, _ := header(t, file)
	ends := []int{0, 1, 7, 8, 9, 8 + len(text)/2, 8 + len(text) - 1, 8 + len(text), 8 + len(text) + 1, len(file) / 2, len(file) - 1}
	rng := rand.New(rand.NewPCG(0, 3))
	for range pick(2, 60) {
		ends = append(ends, rng.IntN(len(file)))
	}
	args := [][]string{
		append([]string{"generate", "--model", dir, "--prompt", "a"}, quick...), {"info", "--model", dir},
		append([]string{"eval", "--model", dir, "--task", "lists@80", "--samples", "1"}, quick...),
	}
	for i, end := range ends {
		write(t, weights, file[:end])
		c := pulsecol(args[i%len(args)]...)
		c.note = fmt.Sprintf("model.safetensors cut to %d bytes", end)
		trials.add("weights cut before the start")
		c.fails(t, weights)
	}
}

// TestWeightsCutWhileMapped: weights that are cut while a command reads them end it with
// one line that names them, unless it was over before.
func TestWeightsCutWhileMapped(t *testing.T) {
	long := []string{"--gen-length", "64", "--block-length", "64", "--steps", "64"}
	dir, weights := copied(t)
	file := read(t, weights)
	results := filepath.Join(t.TempDir(), "r.jsonl")
	commands := [][]string{
		append([]string{"generate", "--model", dir, "--prompt", "a"}, long...),
		append([]string{"generate", "--model", dir, "--prompt", "a", "--sparsity", "0.8", "--json"}, long...),
		{"eval", "--model", dir, "--task", "lists@80", "--samples", "6", "--jobs", "2"},
		{"eval", "--model", dir, "--task", "lists@80", "--samples", "6", "--results", results},
		{"inspect", "--model", dir, "--random-ids", "100"},
		{"convert", "--model", dir, "--type", "Q5_K_M", "--force", "--out", filepath.Join(t.TempDir(), "gguf")},
		{"logits", "--model", dir, "--ids", strings.Repeat("5,", 1500) + "5", "--out", filepath.Join(t.TempDir(), "logits")},
	}
	cutWhileMapped(t, weights, file, results, commands[:pick(1, len(commands))], "weights cut while mapped")
}

// cutWhileMapped runs commands that read a file and cuts it meanwhile. Some of them write
// results.
func cutWhileMapped(t *testing.T, path, file, results string, commands [][]string, kind string) {
	t.Helper()
	for k, args := range commands {
		_ = os.Remove(results)
		begin := time.Now()
		pulsecol(args...).succeeds(t)
		took := time.Since(begin)
		for seed := range seeds(pick(1, 20)) {
			_ = os.Remove(results)
			write(t, path, file)
			rng := rand.New(rand.NewPCG(uint64(seed), 10+uint64(k)))
			end := rng.IntN(len(file))
			c := pulsecol(args...)
			c.note = fmt.Sprintf("%s cut to %d bytes while it runs, seed %d", filepath.Base(path), end, seed)
			p := c.start(t)
			time.Sleep(time.Duration(rng.Int64N(int64(took))))
			must(t, os.Truncate(path, int64(end)))
			trials.add(kind)
			r := p.wait(t)
			switch r.status {
			case success:
			case failure:
				if c.oneLine(t, r); !strings.Contains(r.stderr, path) {
					t.Errorf("%s: %q does not name the file", c, shortened(r.stderr))
				}
				trials.add(kind + ", noticed")
			default:
				t.Errorf("%s: status %d, signal %v: %s", c, r.status, r.signal, shortened(r.stderr))
			}
			if _, err := os.Stat(results); err == nil {
				recordsOf(t, c, results, true)
			}
		}
		write(t, path, file)
	}
}
