package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const root = "../.." // of the module

func allPages(t *testing.T) []string {
	t.Helper()
	found, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("%d pages", len(found))
	}
	return found
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func records(t *testing.T) *bench {
	t.Helper()
	b, err := readBench(os.DirFS(filepath.Join(root, "bench")))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTables: the tables of the pages are those of the records, and every table has a page.
func TestTables(t *testing.T) {
	b := records(t)
	used := map[string]bool{}
	for _, page := range allPages(t) {
		text := read(t, page)
		for name := range tables {
			used[name] = used[name] || strings.Contains(text, markBegin+name+markName)
		}
		filled, err := fill(page, text, b)
		if err != nil {
			t.Errorf("%s: %v", page, err)
		} else if filled != text {
			t.Errorf("%s is not what the records of bench make: go run ./internal/docs", page)
		}
	}
	for name := range tables {
		if !used[name] {
			t.Errorf("no page has the table %s", name)
		}
	}
}

// TestSparsityChart: a line for each method and one for full attention, with the scores of the
// records.
func TestSparsityChart(t *testing.T) {
	made := table{bench: records(t)}
	c := sparsityChart(&made)
	if made.err != nil {
		t.Fatal(made.err)
	}
	var labels []string
	for _, l := range c.Lines {
		labels = append(labels, fmt.Sprintf("%s %d", l.Label, len(l.Points)))
	}
	want := "full attention 2,PulseCol 2,SparseD 2,BS+PR (blocks, refreshed) 2,CS+SS (columns, not refreshed) 2,sliding window 1,streaming 1"
	if got := strings.Join(labels, ","); got != want {
		t.Errorf("lines %s, want %s", got, want)
	}
	r := made.answer("dream", "tracking@1024", "pulsecol", 0.9)
	if p := c.Lines[1].Points[1]; p.Y != r.number("score") || p.Below <= 0 || p.Above <= 0 {
		t.Errorf("PulseCol at 90 %%: %+v, want %v", p, r)
	}
	empty := table{bench: &bench{}}
	if sparsityChart(&empty); empty.err == nil {
		t.Error("no error without records")
	}
}

// TestRecords: a record says what was measured, where, when and how, and is the only one of
// its benchmark.
func TestRecords(t *testing.T) {
	aside := []string{ // fields that do not identify a benchmark
		"ms", "ms_range", "runs_ms", "rounds", "whole_ms", "load_ms", "need_bytes", "held_bytes", "tflops", "gbs", "gflops", "peak_gflops",
		"percent_of_peak", "percent_of_peak_cpu", "percent_of_passes", "gflops_of_passes", "fa2_ms", "cudnn_ms", "cpu", "gpu", "go", "torch", "modules",
		"commit", "date", "command", "samples", "timing", "score", "stderr", "kept", "refreshes_mean", "times_float32", "error_rms", "error_max",
		"relative_error", "same", "union", "alloc_mb", "rounded", "parts",
	}
	day := regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	for file, rows := range *records(t) {
		seen := map[string]int{}
		for i, r := range rows {
			at := fmt.Sprintf("bench/%s.jsonl, line %d", file, i+1)
			if !day.MatchString(r.text("date")) || r.text("command") == "" || r.machine() == "" {
				t.Errorf("%s: want a date, a command and a cpu or gpu", at)
			}
			if r.text("code") != "pytorch" && r.text("commit") == "" {
				t.Errorf("%s: want a commit", at)
			}
			what := record{}
			for field, value := range r {
				if !slices.Contains(aside, field) {
					what[field] = value
				}
			}
			if file == "steps" || file == "cpu" { // these are of several machines
				what["cpu"] = r["cpu"]
			}
			what["whole"] = r["whole_ms"] != nil // a generation that ran, in place of a sum of steps
			key := fmt.Sprint(what)
			if seen[key] > 0 {
				t.Errorf("%s: line %d has the same benchmark: %s", at, seen[key], key)
			}
			seen[key] = i + 1
		}
	}
}

// TestFill: text outside of the marks does not change, and errors name mistakes in marks.
func TestFill(t *testing.T) {
	b := records(t)
	page := "one\n" + markBegin + "cpu-error" + markName + "stale\n" + markEnd + "\ntwo\n"
	got, err := fill("docs/x.md", page, b)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got, "one\n") || !strings.HasSuffix(got, "\ntwo\n") || strings.Contains(got, "stale") || !strings.Contains(got, "](../bench/precision.jsonl)") {
		t.Errorf("filled:\n%s", got)
	}
	if again, err := fill("docs/x.md", got, b); err != nil || again != got {
		t.Errorf("filled again: %v\n%s", err, again)
	}
	for text, want := range map[string]string{
		markBegin + "nothing" + markName + markEnd: "no such table",
		markBegin + "cpu-error" + markName:         "want a name",
		markBegin + "cpu-error":                    "want a name",
	} {
		if _, err := fill("docs/x.md", text, b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := fill("docs/x.md", page, &bench{}); err == nil || !strings.Contains(err.Error(), "0 records match") {
		t.Errorf("without records: %v", err)
	}
	if _, err := readBench(fstest.MapFS{"a.jsonl": {Data: []byte("{}\n{\n")}}); err == nil || !strings.Contains(err.Error(), "a.jsonl: line 2") {
		t.Errorf("a file that is no JSON: %v", err)
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.00344: "0.00344", 0.12: "0.120", 0.0499: "0.0499", 3.2: "3.20", 37.13: "37.1", 554.2: "554", 8398.9: "8,399", 6222492: "6,222,492"} {
		if got := number(x); got != want {
			t.Errorf("number(%v) = %s, want %s", x, got, want)
		}
	}
}

// mostWords is the largest number of words of a page.
const mostWords = 1500

// TestPages: pages are short, use the field's words, and do not refer to versions of the code,
// which readers do not have.
func TestPages(t *testing.T) {
	hash := regexp.MustCompile("\\b[0-9a-f]{7,40}\\b")
	for _, page := range allPages(t) {
		text := read(t, page)
		if n := len(strings.Fields(text)); n >= mostWords {
			t.Errorf("%s has %d words, want fewer than %d", page, n, mostWords)
		}
		for n, line := range strings.Split(text, "\n") {
			if found := oddWords.FindString(line); found != "" {
				t.Errorf("%s:%d: %q", page, n+1, found)
			}
			for _, h := range hash.FindAllString(line, -1) {
				if strings.ContainsAny(h, "0123456789") && strings.ContainsAny(h, "abcdef") {
					t.Errorf("%s:%d: commit %s", page, n+1, h)
				}
			}
		}
	}
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks: files and headings that pages link to exist.
func TestLinks(t *testing.T) {
	for _, page := range allPages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if u.Scheme != "" {
				continue
			}
			target := page
			if u.Path != "" {
				target = path.Join(path.Dir(page), u.Path)
			}
			if _, err := fs.Stat(os.DirFS(root), target); err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
				continue
			}
			if u.Fragment == "" {
				continue
			}
			var anchors []string
			for _, h := range heading.FindAllStringSubmatch(read(t, target), -1) {
				anchors = append(anchors, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
			}
			if !slices.Contains(anchors, u.Fragment) {
				t.Errorf("%s: link to %s: no such heading", page, m[1])
			}
		}
	}
}
