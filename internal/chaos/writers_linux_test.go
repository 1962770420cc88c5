package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol/internal/eval"
)

// TestWritersShareResults: commands that write a results file at the same time answer
// the same cells, some of them in common, or all different ones. Each prints the table
// that it would print alone, and the file has every answer once.
func TestWritersShareResults(t *testing.T) {
	groups := [][][]string{
		{{"--task", "lists@80"}, {"--task", "lists@80"}},
		{{"--task", "lists@80", "--method", "full"}, {"--task", "lists@80", "--method", "pulsecol"}},
		{{"--task", "lists@80", "--seed", "1"}, {"--task", "lists@80", "--seed", "2"}},
		{{"--task", "lists@80,retrieval@100"}, {"--task", "retrieval@100"}, {"--task", "arithmetic1,lists@80"}, {"--task", "lists@80", "--jobs", "3"}},
	}
	for k, group := range groups[:pick(1, len(groups))] {
		var alone []string
		want := map[eval.Job]eval.Record{}
		for _, args := range group {
			path := filepath.Join(t.TempDir(), "r.jsonl")
			c := evaluation(path, append(args, "--samples", "4")...)
			alone = append(alone, c.succeeds(t))
			maps.Copy(want, recordsOf(t, c, path, false))
		}
		for round := range pick(1, 15) {
			rng := rand.New(rand.NewPCG(uint64(k), uint64(round)))
			path := filepath.Join(t.TempDir(), "r.jsonl")
			var writers []*process
			for _, args := range group {
				c := evaluation(path, append(args, "--samples", "4")...)
				c.note = fmt.Sprintf("one of %d writers", len(group))
				writers = append(writers, c.start(t))
				trials.add("writers of a shared results file")
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
			}
			for i, w := range writers {
				if r := w.wait(t); r.status != success || r.stdout != alone[i] {
					t.Errorf("%s: status %d, printed\n%s%s, alone it prints\n%s", w.command, r.status, r.stdout, r.stderr, alone[i])
				}
			}
			sameRecords(t, fmt.Sprintf("%v, round %d", group, round), recordsOf(t, group, path, false), want)
		}
	}
}

// TestWriterOfAnotherKind: of two commands with different options one has the file, and
// the other is refused.
func TestWriterOfAnotherKind(t *testing.T) {
	for range pick(1, 10) {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		var writers []*process
		for _, args := range [][]string{{"--temperature", "0"}, {"--temperature", "0.5"}} {
			writers = append(writers, evaluation(path, append(args, "--task", "lists@80", "--samples", "4", "--method", "full")...).start(t))
			trials.add("writers of a shared results file")
		}
		statuses := map[int]int{}
		for _, w := range writers {
			r := w.wait(t)
			statuses[r.status]++
			if r.status != success {
				w.oneLine(t, r)
			}
		}
		if statuses[success] != 1 || statuses[failure] != 1 {
			t.Errorf("%v: statuses %v, want one success and one failure", writers[0].command, statuses)
		}
		if n := len(recordsOf(t, "two kinds", path, false)); n != 4 {
			t.Errorf("%v: %d answers in the file, want 4", writers[0].command, n)
		}
	}
}

// TestWritersOfOneFile: of two commands that replace a file at the same time the last
// one's file stays, whole.
func TestWritersOfOneFile(t *testing.T) {
	all := outputs(t)
	for _, out := range all[:pick(2, len(all))] {
		for range pick(1, 10) {
			dir := t.TempDir()
			path := filepath.Join(dir, "out")
			c := command{args: out.args(path)}
			c.succeeds(t)
			want := tree(t, path)
			var writers []*process
			for range 2 {
				writers = append(writers, c.start(t))
				trials.add("writers of a shared output")
			}
			for _, w := range writers {
				if r := w.wait(t); r.status != success {
					t.Errorf("%s: status %d: %s", c, r.status, r.stderr)
				}
			}
			if got := tree(t, path); !maps.Equal(got, want) {
				t.Errorf("%s: two at a time write other files than one", c)
			}
			noneLeft(t, c, dir)
			noneLeft(t, c, path)
		}
	}
}
