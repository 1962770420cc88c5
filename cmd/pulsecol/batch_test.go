package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/golden"
)

// promptsFile writes lines to a file.
func promptsFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prompts")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// answered runs generate --prompts --json.
func answered(t *testing.T, path string, args ...string) (all []numbered, said string) {
	t.Helper()
	out, said := command(t, append([]string{"generate", "--json", "--prompts", path}, args...)...)
	for line := range strings.Lines(out) {
		var g numbered
		if err := json.Unmarshal([]byte(line), &g); err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	return all, said
}

// TestPromptsEqualSingleRuns: prompts of several lengths give the same tokens alone and in
// batches.
func TestPromptsEqualSingleRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var lines []string
	var prompts [][]int32
	for _, n := range []int{5, 37, 5, 1, 5} {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(rng.IntN(290))
		}
		prompts = append(prompts, ids)
		lines = append(lines, fmt.Sprintf(`{"prompt_ids":[%s],"note":1}`, listed(ids)))
	}
	path := promptsFile(t, lines...)
	llada := []string{"--model", golden.Dir(t, "llada"), "--gen-length", "16"}
	dream := []string{"--model", golden.Dir(t, "dream"), "--max-new-tokens", "16"}
	for _, c := range []struct {
		name  string
		args  []string
		batch int // of the prompts of 5 tokens
	}{
		{"full", llada, 3},
		{"pulsecol", append(llada, "--sparsity", "0.5", "--block-length", "8"), 3},
		{"int16", append(llada, "--sparsity", "0.5", "--precision", "int16"), 3},
		{"int8", append(llada, "--precision", "int8"), 3},
		{"bfloat16", append(llada, "--precision", "bfloat16"), 3},
		{"guided", append(llada, "--cfg-scale", "0.5", "--method", "window", "--window", "8"), 3},
		{"sparsed", append(llada, "--method", "sparsed", "--block-size", "8"), 3},
		{"random", append(llada, "--temperature", "0.7", "--seed", "3"), 1},
		{"threshold", append(llada, "--threshold", "0.2"), 1},
		{"adaptive", append(llada, "--schedule", "adaptive", "--drift", "0.001"), 1},
		{"dream", append(dream, "--alg", "entropy", "--sparsity", "0.5", "--suppress-mask"), 3},
		{"dream with masks", append(dream, "--alg", "entropy"), 1},
		{"dream random", dream, 1},
		{"cache", append(llada, "--cache", "dual", "--block-length", "4", "--sparsity", "0.5", "--group-size", "4"), 3},
		{"one prefill", append(llada, "--cache", "prefix", "--prefill-every", "0", "--block-length", "8"), 3},
		{"dream and cache", append(dream, "--cache", "dual", "--block-length", "4", "--alg", "entropy"), 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want [][]int32
			for _, p := range prompts {
				want = append(want, generated(t, append(c.args, "--prompt-ids", listed(p))...).OutputIDs)
			}
			for _, size := range []int{1, 2, 3} {
				all, said := answered(t, path, append(c.args, "--batch", fmt.Sprint(size))...)
				if len(all) != len(prompts) {
					t.Fatalf("%d answers", len(all))
				}
				for i, g := range all {
					if g.Index != i || g.Line != i+1 || !slices.Equal(g.PromptIDs, prompts[i]) {
						t.Errorf("answer %d is index %d, line %d", i, g.Index, g.Line)
					}
					if !slices.Equal(g.OutputIDs, want[i]) {
						t.Errorf("batches of %d, prompt %d: got %v, want %v", size, i, g.OutputIDs, want[i])
					}
				}
				if got, want := all[0].Batch, min(c.batch, size); got != want {
					t.Errorf("--batch %d: %d at once, want %d", size, got, want)
				}
				if one := c.batch == 1 && size > 1; strings.Contains(said, "One prompt at a time") != one {
					t.Errorf("--batch %d: said %q", size, said)
				}
			}
		})
	}
}

// TestPromptsAsText: answers in order, each under its line.
func TestPromptsAsText(t *testing.T) {
	path := promptsFile(t, "Please sort the list 9 3 77 21.", "", "Please reverse the list 66 50 47 62.\r", "Please sort the list 9 3 77 22.")
	want := "==> line 1 <==\n3 9 21 77.\n\n==> line 3 <==\n62 47 50 66.\n\n==> line 4 <==\n3 9 22 77.\n\n"
	out, said := command(t, "generate", "--prompts", path, "--batch", "2")
	if out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if !strings.Contains(said, "line 1, 4: 32 steps in") {
		t.Errorf("said %q", said)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var piped, errs bytes.Buffer
	if status := run([]string{"generate", "--prompts", "-"}, stdio{bytes.NewReader(data), &piped, &errs}); status != 0 || piped.String() != want {
		t.Errorf("from the standard input: status %d, %q, %s", status, piped.String(), errs.String())
	}
}

// TestPromptsRefused: an invalid line is an error before any prompt is answered.
func TestPromptsRefused(t *testing.T) {
	good := `{"prompt_ids":[1]}`
	for _, c := range []struct {
		lines []string
		args  string
		want  string
	}{
		{[]string{good, "", `{"prompt_ids":[1,320]}`}, "", ":3: token id 320 at position 1 is outside the vocabulary, 0 to 319"},
		{[]string{good, `{"prompt_ids":[null]}`}, "", ":2: null at position 0"},
		{[]string{good, `{"prompt_ids":[1.5]}`}, "", ":2:16: "},
		{[]string{good, `{"prompt_ids":[1`}, "", ":2:17: ends in the middle"},
		{[]string{good, "text"}, "", ":2:2: "},
		{[]string{good, `{"prompt":"a","prompt_ids":[1]}`}, "", ":2: want prompt or prompt_ids, and not both"},
		{[]string{good, `{"text":"a"}`}, "", ":2: want prompt or prompt_ids"},
		{[]string{good, `{"prompt":"a"}`}, "", ":2: "},
		{[]string{good, "\xff"}, "", ":2:1: byte 0xff is not valid UTF-8"},
		{[]string{good, fmt.Sprintf(`{"prompt_ids":[%s1]}`, strings.Repeat("1,", 511))}, "", ":2: a prompt of 512 tokens"},
		{[]string{"", " "}, "", "has no prompt"},
		{[]string{good}, "--batch 0", "--batch 0: want 1 to 65536"},
		{[]string{good}, "--batch 65537", "--batch 65537: want 1 to 65536"},
		{[]string{good}, "--prompt-ids 1", "can't be used together"},
		{[]string{good}, "--raw", "--raw does not apply"},
	} {
		var out, said bytes.Buffer
		args := append([]string{"generate", "--model", golden.Dir(t, "llada"), "--gen-length", "8", "--prompts", promptsFile(t, c.lines...)}, strings.Fields(c.args)...)
		status := run(args, stdio{strings.NewReader(""), &out, &said})
		if status == 0 || !strings.Contains(said.String(), c.want) || out.Len() > 0 || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("%.60q %s: status %d, output %q, said %q, want %q", c.lines, c.args, status, out.String(), said.String(), c.want)
		}
	}
	for args, want := range map[string]string{
		"--prompts /nonexistent/file": "--prompts: ", "--batch 2": "--batch needs --prompts", "text --prompts x": `the prompt "text" can't be used`,
	} {
		var out, said bytes.Buffer
		if status := run(append([]string{"generate"}, strings.Fields(args)...), stdio{strings.NewReader(""), &out, &said}); status == 0 || !strings.Contains(said.String(), want) {
			t.Errorf("%s: status %d, said %q", args, status, said.String())
		}
	}
}

// TestPromptsInterrupted: finished answers and the part of the one in progress are printed.
func TestPromptsInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted here")
	}
	path := promptsFile(t, slices.Repeat([]string{`{"prompt_ids":[1,2,3]}`}, 500)...)
	cmd := exec.Command("pulsecol", "generate", "--json", "--watch", "--model", golden.Dir(t, "llada"), "--prompts", path, "--gen-length", "32")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last, finished := "", 0
	for lines := bufio.NewScanner(said); lines.Scan(); last = lines.Text() {
		if strings.HasPrefix(lines.Text(), "line ") {
			if finished++; finished == 2 {
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitInterrupted || last != "pulsecol: interrupted" {
		t.Errorf("%v, want exit status %d; the last line is %q", err, exitInterrupted, last)
	}
	lines := strings.SplitAfter(out.String(), "\n")
	lines = lines[:len(lines)-1]
	if len(lines) < finished || len(lines) > finished+1 {
		t.Errorf("%d answers, %d were finished", len(lines), finished)
	}
	for i, line := range lines {
		var g numbered
		if err := json.Unmarshal([]byte(line), &g); err != nil {
			t.Fatal(err)
		}
		if g.Index != i || g.Interrupted != (i >= finished) {
			t.Errorf("line %d: index %d, interrupted %t", i, g.Index, g.Interrupted)
		}
	}
}
