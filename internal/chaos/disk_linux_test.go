package chaos

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestFullDisk: a disk that is full after n blocks of 512 bytes leaves old files as they
// are, and no part of new ones.
func TestFullDisk(t *testing.T) {
	limits := []int{0, 1, 2, 3, 5, 8, 13, 21, 34, 55}
	for _, out := range outputs(t) {
		for _, n := range limits[:pick(1, len(limits))] {
			for _, old := range []bool{true, false}[:pick(1, 2)] {
				dir := t.TempDir()
				path := filepath.Join(dir, "out")
				c := command{args: out.args(path), ulimit: fmt.Sprintf("ulimit -f %d", n), note: fmt.Sprintf("ulimit -f %d", n)}
				unlimited := command{args: c.args}
				if unlimited.succeeds(t); !old {
					must(t, os.RemoveAll(path))
				}
				for file := range tree(t, path) {
					write(t, file, "old")
				}
				before := tree(t, path)
				trials.add("full disks")
				switch r := c.run(t); r.status {
				case success:
					continue // what it writes is small enough
				case failure:
					// Of several pictures the first ones may be there, whole.
					after := tree(t, path)
					for file, text := range after {
						if text != before[file] && !wholePicture(text) {
							t.Errorf("%s: left %d bytes in %s", c, len(text), file)
						}
					}
					for file := range before {
						if _, ok := after[file]; !ok {
							t.Errorf("%s: %s is gone", c, file)
						}
					}
					if !strings.Contains(r.stderr, "too large") || !strings.Contains(r.stderr, path) {
						t.Errorf("%s: %q does not say that %s is too large", c, r.stderr, path)
					}
				default:
					t.Errorf("%s: status %d, signal %v: %s", c, r.status, r.signal, shortened(r.stderr))
				}
				noneLeft(t, c, dir)
				noneLeft(t, c, path)
			}
		}
	}
}

// wholePicture reports whether a PNG file has its last chunk.
func wholePicture(text string) bool {
	return strings.HasPrefix(text, "\x89PNG\r\n\x1a\n") && strings.HasSuffix(text, "IEND\xaeB`\x82")
}

// TestResultsOnFullDisk: answers that do not fit are not in the file, those before are,
// and with space again the evaluation goes on to the table of one without trouble.
func TestResultsOnFullDisk(t *testing.T) {
	args := []string{"--task", "lists@80", "--samples", strconv.Itoa(pick(3, 8)), "--method", "full,pulsecol"}
	alone := filepath.Join(t.TempDir(), "alone.jsonl")
	table := evaluation(alone, args...).succeeds(t)
	want := recordsOf(t, args, alone, false)
	blocks := len(read(t, alone))/512 + 1
	for n := 0; n < blocks; n += pick(3, 1) {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		c := evaluation(path, args...)
		c.ulimit = fmt.Sprintf("ulimit -f %d", n)
		c.note = c.ulimit
		trials.add("full disks")
		c.fails(t, path)
		partial := recordsOf(t, c, path, true)
		c.ulimit, c.note = "", c.note+", and then without"
		if got := c.succeeds(t); got != table {
			t.Errorf("%s: prints\n%s\nwant\n%s", c, got, table)
		}
		now := recordsOf(t, c, path, false)
		holds(t, c, now, partial)
		sameRecords(t, c, now, want)
	}
}

// TestFullStandardOutput: what cannot be printed is a failure, however it is printed.
func TestFullStandardOutput(t *testing.T) {
	commands := [][]string{
		{"--version"}, {"--help"}, append([]string{"generate"}, quick...), append([]string{"generate", "--json"}, quick...),
		append([]string{"eval", "--task", "lists@80", "--samples", "1"}, quick...),
		append([]string{"eval", "--task", "lists@80", "--samples", "1", "--json"}, quick...),
		append([]string{"inspect", "--random-ids", "40"}, quick...),
		append([]string{"inspect", "--random-ids", "40", "--json"}, quick...),
		{"tokenize", "--text", "a"}, {"info"}, {"info", "--json"}, {"version"}, {"help"}, {"help", "generate"},
		{"completion", "bash"}, {"bench", "step", "--length", "64", "--steps-per-mode", "1"},
	}
	for _, args := range commands[:pick(4, len(commands))] {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		must(t, err)
		trials.add("full standard outputs")
		c := command{args: args, stdout: full, note: "> /dev/full"}
		c.fails(t, "no space left on device")
		must(t, full.Close())

		dir := t.TempDir()
		file, err := os.Create(filepath.Join(dir, "stdout"))
		must(t, err)
		c = command{args: args, stdout: file, ulimit: "ulimit -f 0", note: "> file; ulimit -f 0"}
		c.fails(t, "too large")
		must(t, file.Close())

		// A reader that has gone away, as head does, is no failure worth a message.
		r, w, err := os.Pipe()
		must(t, err)
		must(t, r.Close())
		trials.add("closed standard outputs")
		c = command{args: args, stdout: w, note: "| true"}
		if got := c.run(t); got.status == success || got.status == wrongUsage || got.status == interrupted {
			t.Errorf("%s: status %d", c, got.status)
		}
		must(t, w.Close())
	}
}

// TestResultsElsewhere: an evaluation that cannot make its results file changes nothing.
func TestResultsElsewhere(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "old")
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	before := tree(t, dir)
	for _, path := range []string{
		filepath.Join(dir, "none", "r.jsonl"), filepath.Join(dir, "file", "r.jsonl"), filepath.Join(dir, "loop"), filepath.Join(dir, "file"), dir, "/proc/r.jsonl",
		"/dev/full", "", strings.Repeat("x", 300), strings.Repeat("x/", 3000),
	} {
		trials.add("results files that cannot be")
		evaluation(path, "--task", "lists@80", "--samples", "1").fails(t)
	}
	if !maps.Equal(tree(t, dir), before) {
		t.Error("files changed")
	}
}
