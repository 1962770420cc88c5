package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// signals are those that interrupt a command.
var signals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}

// busy is a command that takes long enough to be interrupted while it loads, works and
// writes.
type busy struct {
	name  string
	args  []string
	check func(stdout string) error // of what it printed before an interrupt; nil: any text
}

// busyCommands are all that are, writing into dir.
func busyCommands(t *testing.T, dir string) []busy {
	model := small(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	long := []string{"--gen-length", "64", "--block-length", "64", "--steps", "64"}
	inBlocks := []string{"--gen-length", "64", "--block-length", "8", "--steps", "64"}
	return []busy{
		{"generate", append([]string{"generate", "--model", model, "--prompt", "a"}, long...), nil},
		{"generate --json", append([]string{"generate", "--model", model, "--prompt", "a", "--json", "--watch"}, long...), jsonLines},
		{"generate --cache", append([]string{"generate", "--model", model, "--prompt", "a", "--json", "--cache", "dual", "--sparsity", "0.5"}, inBlocks...), cachedAnswer},
		{"inspect --cache", append([]string{"inspect", "--random-ids", "100", "--cache", "prefix", "--out", path("inspect"), "--json"}, inBlocks...), jsonLines},
		{"bench step --cache", []string{"bench", "step", "--length", "256", "--steps-per-mode", "10", "--cache", "dual", "--json"}, jsonLines},
		{"generate --prompts", append([]string{"generate", "--json", "--prompts", prompts(t)}, quick...), jsonLines},
		{"eval", []string{"eval", "--task", "lists@80", "--samples", "8"}, nil},
		{"eval --json", []string{"eval", "--task", "lists@80", "--samples", "4", "--sparsity", "0.5,0.8", "--json", "--plots", path("plots")}, jsonLines},
		{"inspect", []string{"inspect", "--random-ids", "100", "--out", path("inspect"), "--json"}, jsonLines},
		{"logits", []string{"logits", "--ids", strings.Repeat("5,", 1500) + "5", "--out", path("logits")}, nil},
		{"convert", []string{"convert", "--type", "Q5_K_M", "--force", "--out", path("gguf")}, nil},
		{"bench step", []string{"bench", "step", "--length", "256", "--steps-per-mode", "10", "--json"}, jsonLines},
		{"bench kernel", []string{"bench", "kernel", "--length", "256", "--heads", "4", "--head-dim", "64", "--op", "columnsparse", "--samples", "3", "--json"}, jsonLines},
	}
}

// prompts makes a file of prompts.
func prompts(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prompts")
	write(t, path, strings.Repeat("Please sort the list 3 1 2.\n", 40))
	return path
}

// jsonLines reports what is no line with a JSON object.
func jsonLines(stdout string) error {
	for line := range strings.Lines(stdout) {
		if !strings.HasSuffix(line, "\n") {
			return errors.New("the last line has no end")
		}
		if err := json.Unmarshal([]byte(line), new(map[string]any)); err != nil {
			return err
		}
	}
	return nil
}

// TestInterrupts: SIGINT and SIGTERM at any moment, once or twice, end a command with
// the status of an interrupt and one line, or by the signal itself; what it printed
// is whole, and so are its files.
func TestInterrupts(t *testing.T) {
	for k, cmd := range busyCommands(t, t.TempDir()) {
		if !whole && k != 1 && k != 2 {
			continue
		}
		begin := time.Now()
		pulsecol(cmd.args...).succeeds(t)
		took := time.Since(begin)
		for seed := range seeds(pick(2, 30)) {
			rng := rand.New(rand.NewPCG(uint64(seed), uint64(k)))
			sig := signals[seed%2]
			dir := t.TempDir()
			c := pulsecol(busyCommands(t, dir)[k].args...)
			c.note = fmt.Sprintf("%v, seed %d", sig, seed)
			p := c.start(t)
			time.Sleep(time.Duration(rng.Int64N(int64(took))))
			_ = p.Process.Signal(sig) // it may be over
			if rng.IntN(4) == 0 {
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				_ = p.Process.Signal(sig)
			}
			trials.add("interrupts of " + cmd.name)
			r := p.wait(t)
			c.interrupted(t, r, sig)
			if cmd.check != nil && r.signal == 0 {
				if err := cmd.check(r.stdout); err != nil {
					t.Errorf("%s: printed %q: %v", c, shortened(r.stdout), err)
				}
			}
			for file, text := range tree(t, dir) {
				temporary := strings.HasPrefix(filepath.Base(file), ".pulsecol-")
				if temporary && r.signal == 0 || !temporary && strings.HasSuffix(file, ".png") && !wholePicture(text) {
					t.Errorf("%s: left %d bytes in %s", c, len(text), file)
				}
			}
		}
	}
}

// interrupted wants the end of a command that got a signal: it was over, or says that
// it was interrupted, or did not listen yet or, at the second one, any more.
func (c command) interrupted(t *testing.T, r result, sig syscall.Signal) {
	t.Helper()
	switch {
	case r.signal == sig && (!strings.Contains(r.stderr, "pulsecol: ") || strings.HasSuffix(r.stderr, "pulsecol: interrupted\n")), r.status == success:
	case r.status == interrupted:
		if c.oneLine(t, r); !strings.HasSuffix(r.stderr, "pulsecol: interrupted\n") {
			t.Errorf("%s: %q", c, shortened(r.stderr))
		}
	default:
		t.Errorf("%s: status %d, signal %v: %s", c, r.status, r.signal, shortened(r.stderr))
	}
}

// TestInterruptEvaluation: interrupted again and again after some answers, and then
// left alone, an evaluation comes to the table of one that was never interrupted.
func TestInterruptEvaluation(t *testing.T) {
	args := []string{"--task", "lists@80", "--samples", strconv.Itoa(pick(6, 20)), "--jobs", "2"}
	alone := filepath.Join(t.TempDir(), "alone.jsonl")
	table := evaluation(alone, args...).succeeds(t)
	want := recordsOf(t, args, alone, false)
	for seed := range seeds(pick(1, 15)) {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		path := filepath.Join(t.TempDir(), "r.jsonl")
		c := evaluation(path, args...)
		c.note = fmt.Sprintf("seed %d", seed)
		for range 3 {
			sig := signals[rng.IntN(2)]
			p := c.start(t)
			for lines := 2 + rng.IntN(pick(4, 12)); strings.Count(orEmpty(path), "\n") < lines && p.runs(); {
				time.Sleep(time.Millisecond)
			}
			_ = p.Process.Signal(sig)
			trials.add("interrupts of eval --results")
			r := p.wait(t)
			c.interrupted(t, r, sig)
			now := recordsOf(t, c, path, false)
			partial := fmt.Sprintf("%d of %d samples", len(now), len(want))
			if r.status == interrupted && (!strings.Contains(r.stderr, partial) || !strings.Contains(r.stdout, "Partial: "+partial)) {
				t.Errorf("%s: %d samples are in the file; it says %q and prints %q", c, len(now), r.stderr, shortened(r.stdout))
			}
		}
		if got := c.succeeds(t); got != table {
			t.Errorf("%s: in the end it prints\n%s\nwant\n%s", c, got, table)
		}
		sameRecords(t, c, recordsOf(t, c, path, false), want)
	}
}

// TestInterruptWaiting: a command that waits for its input ends with the signal.
func TestInterruptWaiting(t *testing.T) {
	for _, args := range [][]string{
		{"chat"}, {"tokenize"}, {"generate", "--prompt", "-"}, {"generate", "--prompts", "-"}, {"generate", "--prompt-file", "/dev/stdin"},
		{"eval", "--task", "gsm8k", "--data", "/dev/stdin"},
	} {
		for seed := range seeds(pick(2, 10)) {
			r, w, err := os.Pipe()
			must(t, err)
			sig := signals[seed%2]
			c := pulsecol(args...)
			c.stdin, c.note = r, fmt.Sprintf("%v, seed %d", sig, seed)
			p := c.start(t)
			must(t, r.Close())
			time.Sleep(time.Duration(10*seed) * time.Millisecond)
			must(t, p.Process.Signal(sig))
			trials.add("interrupts of commands that wait")
			if got := p.wait(t); got.status == success {
				t.Errorf("%s: succeeded", c)
			} else {
				c.interrupted(t, got, sig)
			}
			must(t, w.Close())
		}
	}
}
