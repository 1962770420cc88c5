package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol/internal/eval"
)

// TestKillEvaluation: an evaluation that is killed again and again, at random moments
// and sometimes in the middle of a line, comes to the table of one that is left alone.
func TestKillEvaluation(t *testing.T) {
	evaluations := [][]string{
		{"--task", "retrieval@100", "--samples", strconv.Itoa(pick(4, 8)), "--jobs", "1", "--json"},
		{"--task", "lists@80,arithmetic1", "--samples", "6", "--method", "full,pulsecol,window", "--window", "32"},
	}
	for _, args := range evaluations[:pick(1, 2)] {
		alone := filepath.Join(t.TempDir(), "alone.jsonl")
		begin := time.Now()
		table := untimed(evaluation(alone, args...).succeeds(t))
		took := time.Since(begin)
		want := recordsOf(t, args, alone, false)

		seeded(pick(1, 12), func(seed int) {
			rng := rand.New(rand.NewPCG(uint64(seed), 0))
			path := filepath.Join(t.TempDir(), "r.jsonl")
			c := evaluation(path, args...)
			c.note = fmt.Sprintf("seed %d", seed)
			before := map[eval.Job]eval.Record{}
			for range pick(2, 8) {
				p := c.start(t)
				time.Sleep(time.Duration(rng.Int64N(int64(took))))
				if _, err := os.Stat(path); err == nil { // what a reader has seen may not be lost
					before = recordsOf(t, c, path, true)
				}
				_ = p.Process.Kill() // it may be over
				trials.add("evaluations killed and continued")
				if r := p.wait(t); r.status == success && untimed(r.stdout) != table {
					t.Errorf("%s: printed\n%s\nwant\n%s", c, r.stdout, table)
				}
				if _, err := os.Stat(path); err != nil {
					continue
				}
				now := recordsOf(t, c, path, true)
				holds(t, c, now, before)
				before = now
				tear(t, path, rng)
			}
			if got := untimed(c.succeeds(t)); got != table {
				t.Errorf("%s: in the end it prints\n%s\nwant\n%s", c, got, table)
			}
			now := recordsOf(t, c, path, false)
			holds(t, c, now, before)
			sameRecords(t, c, now, want)
		})
	}
}

// untimed returns the cells of a table without the seconds that they took.
func untimed(table string) string { return seconds.ReplaceAllString(table, "") }

var seconds = regexp.MustCompile(`,"seconds":[^,}]*`)

// tear adds the beginning of a line to a results file, as a process leaves it that is
// killed while it writes.
func tear(t *testing.T, path string, rng *rand.Rand) {
	t.Helper()
	text := read(t, path)
	line := `{"task":"lists-80","method":"full","seed":0,"index":77,"id":"77","output":"` + strings.Repeat("x", rng.IntN(2000)) + "\n" // longer than a whole line, or shorter
	if text == "" {
		line = `{"pulsecol_eval":2,"model_type":"llada"` + "\n"
	}
	if strings.HasSuffix(text, "\n") || text == "" {
		write(t, path, text+line[:rng.IntN(len(line))])
	}
}

// TestKillWriter: a command that is killed leaves the file that was there, or the whole
// new one.
func TestKillWriter(t *testing.T) {
	for _, out := range outputs(t) {
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		c := command{args: out.args(path)}
		begin := time.Now()
		c.succeeds(t)
		took := time.Since(begin)
		written := tree(t, path)
		for file := range written {
			write(t, file, "old")
		}
		for seed := range seeds(pick(1, 30)) {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			c.note = fmt.Sprintf("seed %d", seed)
			p := c.start(t)
			time.Sleep(time.Duration(rng.Int64N(int64(took) + 1)))
			_ = p.Process.Kill()
			p.wait(t)
			trials.add("writers of files killed")
			for file, text := range tree(t, path) {
				if strings.HasPrefix(filepath.Base(file), ".pulsecol-") { // as documented
					continue
				}
				if want, ok := written[file]; !ok || text != want && text != "old" {
					t.Errorf("%s: %s has %d bytes, neither those of before nor those of the end", c, file, len(text))
				}
			}
		}
	}
}
