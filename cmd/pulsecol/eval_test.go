package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/eval"
)

// evaluated runs eval --json and returns its cells.
func evaluated(t *testing.T, args ...string) (cells []eval.Summary) {
	t.Helper()
	out, _ := command(t, append([]string{"eval", "--json"}, args...)...)
	for line := range strings.Lines(out) {
		var s eval.Summary
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		cells = append(cells, s)
	}
	return cells
}

// TestEvalOrder: full attention answers, PulseCol nearly as often, and a window that does
// not reach the answer's tokens does not.
func TestEvalOrder(t *testing.T) {
	if raceEnabled {
		t.Skip("takes a minute with the race detector, and internal/eval tests that samples run at once")
	}
	for _, small := range []string{"llada", "dream"} {
		c := evaluated(t, "--small", small, "--task", "retrieval@128", "--samples", "3", "--method", "full,pulsecol,window", "--sparsity", "0.6", "--window", "32")
		if len(c) != 3 || c[0].Name != "full" || c[1].Name != "pulsecol" || c[2].Name != "window" {
			t.Fatalf("%s: cells %+v", small, c)
		}
		full, pulse, window := c[0].Score.Mean, c[1].Score.Mean, c[2].Score.Mean
		if full < 0.6 || full < pulse || pulse <= window {
			t.Errorf("%s: full %.2f, pulsecol %.2f, window %.2f", small, full, pulse, window)
		}
		if c[1].VsFull.Mean != pulse-full || c[1].VsFull.N != 3 {
			t.Errorf("%s: difference %+v", small, c[1].VsFull)
		}
	}
}

// TestEvalProduct: lists of settings give a row for each combination that applies.
func TestEvalProduct(t *testing.T) {
	uniform := eval.Method{Name: "pulsecol", Sparsity: 0.8, GroupSize: 32, Schedule: "uniform", Eta: 0.3, Refreshes: 16}
	with := func(m eval.Method, change func(*eval.Method)) eval.Method {
		change(&m)
		return m
	}
	full := eval.Method{Name: "full"}
	for _, c := range []struct {
		args string
		want []eval.Method
	}{
		{"", []eval.Method{full, uniform}},
		{"--sparsity 0.5,0.9", []eval.Method{full,
			with(uniform, func(m *eval.Method) { m.Sparsity = 0.5 }),
			with(uniform, func(m *eval.Method) { m.Sparsity = 0.9 }),
		}},
		{"--method full,window,streaming,sparsed --sparsity 0.5 --window 8,16 --sinks 0.2", []eval.Method{full,
			{Name: "window", Window: 8}, {Name: "window", Window: 16},
			{Name: "streaming", Window: 8, Sinks: 0.2}, {Name: "streaming", Window: 16, Sinks: 0.2},
			{Name: "sparsed", Sparsity: 0.5, BlockSize: 128, Schedule: "skip", Skip: 0.2},
		}},
		{"--method pulsecol --group-size 8,16 --refreshes 1,4", []eval.Method{
			with(uniform, func(m *eval.Method) { m.GroupSize, m.Refreshes = 8, 1 }),
			with(uniform, func(m *eval.Method) { m.GroupSize, m.Refreshes = 8, 4 }),
			with(uniform, func(m *eval.Method) { m.GroupSize, m.Refreshes = 16, 1 }),
			with(uniform, func(m *eval.Method) { m.GroupSize, m.Refreshes = 16, 4 }),
		}},
		// --refreshes does not apply to skip, and --skip only to it.
		{"--method pulsecol --schedule random,adaptive,skip --refreshes 2,4 --skip 0.1", []eval.Method{
			with(uniform, func(m *eval.Method) { m.Schedule, m.Refreshes = "random", 2 }),
			with(uniform, func(m *eval.Method) { m.Schedule, m.Refreshes = "random", 4 }),
			with(uniform, func(m *eval.Method) { m.Schedule, m.Refreshes, m.Eta, m.Drift = "adaptive", 2, 1, 0.02 }),
			with(uniform, func(m *eval.Method) { m.Schedule, m.Refreshes, m.Eta, m.Drift = "adaptive", 4, 1, 0.02 }),
			{Name: "pulsecol", Sparsity: 0.8, GroupSize: 32, Schedule: "skip", Skip: 0.1},
		}},
		// A method named twice, or a default spelled out, is one row.
		{"--method pulsecol,pulsecol --sparsity 0.8,0.8", []eval.Method{uniform}},
		{"--method block-pr,column-ss --block-size 16", []eval.Method{
			with(uniform, func(m *eval.Method) { m.Name, m.BlockSize = "block-pr", 16 }),
			{Name: "column-ss", Sparsity: 0.8, GroupSize: 32, Schedule: "skip", Skip: 0.2},
		}},
	} {
		var line cli
		parser, err := kong.New(&line, flagVars())
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.Parse(append([]string{"eval", "--task", "lists"}, strings.Fields(c.args)...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := line.Eval.settingLists.product(parsed, line.Eval.Method, 16)
		if err != nil {
			t.Fatalf("%s: %v", c.args, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.args, diff)
		}
	}
}

// TestEvalInterrupt: complete records of samples answered before an interrupt are kept.
func TestEvalInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted here")
	}
	path := filepath.Join(t.TempDir(), "results.jsonl")
	args := []string{"eval", "--task", "arithmetic1", "--method", "full", "--results", path, "--samples"}
	cmd := exec.Command("pulsecol", append(args, "1000")...)
	var said, printed bytes.Buffer
	cmd.Stderr, cmd.Stdout = &said, &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for lines < 3 { // a header and two records
		time.Sleep(10 * time.Millisecond)
		data, _ := os.ReadFile(path) // not there yet at first
		lines = bytes.Count(data, []byte("\n"))
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v, want exit status %d", err, exitInterrupted)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := bytes.Count(data, []byte("\n")) - 1
	want := fmt.Sprintf("%d of 1000 samples are in %s; the same command goes on from there\npulsecol: interrupted\n", kept, path)
	if said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
	if want := fmt.Sprintf("Partial: %d of 1000 samples.\n\nScore in %%,", kept); !strings.HasPrefix(printed.String(), want) {
		t.Errorf("printed %q, want %q", printed.String(), want)
	}
	if out, said := command(t, append(args, "3")...); said != "" || !strings.Contains(out, "samples a cell: 3.") {
		t.Errorf("went on with %q %q", out, said)
	}
	if after, _ := os.ReadFile(path); !bytes.HasPrefix(after, data) {
		t.Error("what was there has changed")
	}
}

// TestEvalInterruptWithoutResults: after an interrupt the table of the answered samples is
// printed, and their completions are written.
func TestEvalInterruptWithoutResults(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted here")
	}
	dir := t.TempDir()
	data, completions := filepath.Join(dir, "HumanEval.jsonl"), filepath.Join(dir, "completions.jsonl")
	var problems strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&problems, "{\"task_id\":\"HumanEval/%d\",\"prompt\":\"def f():\\n\"}\n", i)
	}
	if err := os.WriteFile(data, []byte(problems.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// The progress shows when there are answers; without a terminal it is printed once a minute.
	cmd := exec.Command("pulsecol-progress", "eval", "--json", "--task", "humaneval", "--data", data, "--samples", "1000",
		"--gen-length", "8", "--method", "full", "--completions", completions)
	var printed bytes.Buffer
	cmd.Stdout = &printed
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "3/") {
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var last [2]string
	for lines.Scan() {
		last[0], last[1] = last[1], lines.Text()
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("%v, want exit status %d", err, exitInterrupted)
	}
	var cell eval.Summary
	if err := json.Unmarshal(printed.Bytes(), &cell); err != nil {
		t.Fatalf("%v: %s", err, printed.String())
	}
	want := [2]string{fmt.Sprintf("%d of 1000 samples were answered; without --results nothing keeps them but the table", cell.Samples), "pulsecol: interrupted"}
	if last != want {
		t.Errorf("said %q, want %q", last, want)
	}
	if !cell.Partial || cell.Samples < 3 || cell.Samples >= 1000 {
		t.Errorf("printed %+v", cell)
	}
	if text, err := os.ReadFile(completions); err != nil || bytes.Count(text, []byte("\n")) != cell.Samples {
		t.Errorf("%d samples, completions %v %s", cell.Samples, err, text)
	}
}
