package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pulsecol/pulsecol/internal/golden"
)

// machine returns the system files of a machine with so many KiB available.
func machine(kib int, files ...string) fs.FS {
	system := fstest.MapFS{"proc/meminfo": {Data: []byte(fmt.Sprintf("MemTotal:  99999999 kB\nMemAvailable:  %d kB\n", kib))}}
	for i := 0; i < len(files); i += 2 {
		system[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return system
}

func TestAvailableMemory(t *testing.T) {
	for _, c := range []struct {
		name   string
		system fs.FS
		want   int64
	}{
		{"unknown", fstest.MapFS{}, 0},
		{"no limit", machine(1000), 1000 << 10},
		{"version 2", machine(1000, "proc/self/cgroup", "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max", "max\n", "sys/fs/cgroup/a/b/memory.current", "5\n",
			"sys/fs/cgroup/a/memory.max", "600000\n", "sys/fs/cgroup/a/memory.current", "300000\n",
			"sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n"), 400000},
		{"a container", machine(1000, "proc/self/cgroup", "0::/../../host\n",
			"sys/fs/cgroup/memory.max", "5000\n", "sys/fs/cgroup/memory.current", "6000\n"), 1},
		{"version 1", machine(1000, "proc/self/cgroup", "4:cpu:/x\n3:memory:/x\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n", "sys/fs/cgroup/memory/x/memory.usage_in_bytes", "900\n",
			"sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 300\n"), 400},
	} {
		if got := availableMemory(c.system); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestTooLittleMemory: a run that does not fit is refused before anything is computed.
func TestTooLittleMemory(t *testing.T) {
	before := systemFiles
	systemFiles = machine(64)
	t.Cleanup(func() { systemFiles = before })
	llada, out := golden.Dir(t, "llada"), t.TempDir()
	for _, args := range [][]string{
		{"generate", "--model", llada, "--prompt-ids", "1,2,3", "--gen-length", "8"},
		{"inspect", "--model", llada, "--prompt-ids", "1,2,3", "--gen-length", "8"},
		{"bench", "step", "--model", llada, "--length", "64"},
		{"bench", "e2e", "--model", llada, "--length", "128", "--new-tokens", "8"},
		{"bench", "kernel", "--op", "dense", "--length", "1048576", "--head-dim", "1024", "--heads", "1024"},
		{"eval", "--task", "lists", "--samples", "1", "--results", out + "/r.jsonl"},
	} {
		var stdout, said bytes.Buffer
		status := run(args, stdio{strings.NewReader(""), &stdout, &said})
		if status != exitFailure || !strings.Contains(said.String(), "this machine has 64.0 KiB available") || stdout.Len() > 0 {
			t.Errorf("%q: exit status %d: %s", args, status, said.String())
		}
	}
	command(t, "generate", "--model", llada, "--prompt-ids", "1,2,3", "--gen-length", "8", "--ignore-memory") // as the error says
	systemFiles = fstest.MapFS{}                                                                              // of a system without the files
	command(t, "generate", "--model", llada, "--prompt-ids", "1,2,3", "--gen-length", "8")
}

// TestTooLittleMemoryForAPrompt: of a file of prompts that do not all fit, none is answered.
func TestTooLittleMemoryForAPrompt(t *testing.T) {
	before := systemFiles
	t.Cleanup(func() { systemFiles = before })
	prompt := func(tokens int) string {
		return `{"prompt_ids":[` + strings.TrimSuffix(strings.Repeat("7,", tokens), ",") + "]}\n"
	}
	generate := func(kib int, lines ...string) (status int, said string) {
		t.Helper()
		systemFiles = machine(kib)
		file := filepath.Join(t.TempDir(), "prompts.jsonl")
		if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		args := []string{"generate", "--model", golden.Dir(t, "llada"), "--prompts", file, "--batch", "2", "--gen-length", "8", "--block-length", "8", "--steps", "1"}
		status = run(args, stdio{strings.NewReader(""), &out, &errs})
		if status != 0 && out.Len() > 0 {
			t.Errorf("%d KiB: answered %q", kib, out.String())
		}
		return status, errs.String()
	}
	need := func(lines ...string) (mib float64) { // of memory, as the error says
		t.Helper()
		_, said := generate(64, lines...)
		_, text, _ := strings.Cut(said, "the run needs about ")
		if _, err := fmt.Sscanf(text, "%f MiB", &mib); err != nil {
			t.Fatalf("said %q: %v", said, err)
		}
		return mib
	}
	short, pair, long := need(prompt(90)), need(prompt(90), prompt(90)), need(prompt(400))
	if short >= pair || pair >= long {
		t.Fatalf("a short prompt needs %g MiB, two %g, a long one %g", short, pair, long)
	}
	lines := []string{prompt(20), prompt(30), prompt(400), prompt(30)}
	status, said := generate(int(0.98*1024*long), lines...)
	if status != exitFailure || !strings.Contains(said, "--prompts: line 3: the run needs about") {
		t.Errorf("exit status %d: %s", status, said)
	}
	if status, said := generate(int(1.02*1024*long), lines...); status != 0 {
		t.Errorf("exit status %d: %s", status, said)
	}
}

// TestAdviceOfTheSmallModel: advice is printed for prompts of other kinds only, and its
// statements are true.
func TestAdviceOfTheSmallModel(t *testing.T) {
	_, said := command(t, "generate", "--gen-length", "8", "--block-length", "8", "--steps", "1", "--prompt", "Why is the sky blue?")
	for _, want := range []string{smallExample, "GSAI-ML/LLaDA-8B-Instruct", "GSAI-ML/LLaDA-1.5", "Dream-org/Dream-v0-Instruct-7B", "about 16 GB", "hf download "} {
		if !strings.Contains(said, want) {
			t.Errorf("said %q, want %q in it", said, want)
		}
	}
	for _, small := range []string{"llada", "dream"} {
		out, said := command(t, "generate", "--small", small, "--prompt", smallExample)
		if strings.TrimSpace(out) != "62 47 50 66." || strings.Contains(said, "huggingface") {
			t.Errorf("%s answered %q and said %q", small, out, said)
		}
	}
	if _, said := command(t, "generate", "--gen-length", "8", "--block-length", "8", "--steps", "1"); strings.Contains(said, "huggingface") {
		t.Errorf("said %q to its own question", said)
	}
}
