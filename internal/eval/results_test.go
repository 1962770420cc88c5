package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var header = Header{Type: "llada", Model: "0123456789abcdef", Sampler: map[string]string{"steps": "16"}, Host: "here"}

func openResults(t *testing.T, path string) *Results {
	t.Helper()
	r, err := OpenResults(path, header)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// resultsFile writes a results file with records and returns its path.
func resultsFile(t *testing.T, records []Record) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "results.jsonl")
	r := openResults(t, path)
	for _, rec := range records {
		if _, err := r.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// byJob lists records by their jobs.
func byJob(records []Record) map[Job]Record {
	out := map[Job]Record{}
	for _, rec := range records {
		out[rec.Job] = rec
	}
	return out
}

func TestResultsRoundTrip(t *testing.T) {
	records := append(scored("a", pulse, 1, 0), scored("b <&>", full, 0.25)...)
	records[0].Output = "one\ntwo \u2028 \x00 <b>"
	r := openResults(t, resultsFile(t, records))
	if diff := cmp.Diff(byJob(records), r.records); diff != "" || r.Dropped != 0 || r.Len() != 3 {
		t.Errorf("%d bytes dropped; %s", r.Dropped, diff)
	}
}

// TestResultsCutOff cuts a file at every byte: whole lines stay, the rest is
// dropped, and the next record begins a line, whether the file was opened before or
// after.
func TestResultsCutOff(t *testing.T) {
	records := scored("a", pulse, 1, 0)
	data, err := os.ReadFile(resultsFile(t, records))
	if err != nil {
		t.Fatal(err)
	}
	more := scored("b", full, 1)
	headed := bytes.IndexByte(data, '\n') + 1
	for n := range data {
		path := filepath.Join(t.TempDir(), "results.jsonl")
		var before *Results
		if n >= headed {
			if err := os.WriteFile(path, data[:headed], 0o600); err != nil {
				t.Fatal(err)
			}
			before = openResults(t, path)
		}
		if err := os.WriteFile(path, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		r := before
		if n < headed || n%2 == 0 {
			r = openResults(t, path)
		}
		if _, err := r.Append(more[0]); err != nil {
			t.Fatal(err)
		}
		whole := bytes.LastIndexByte(data[:n], '\n') + 1
		if r.Dropped != n-whole {
			t.Errorf("%d of %d bytes: dropped %d, want %d", n, len(data), r.Dropped, n-whole)
		}
		want := slices.Concat(records[:max(0, bytes.Count(data[:n], []byte("\n"))-1)], more)
		if diff := cmp.Diff(byJob(want), openResults(t, path).records); diff != "" {
			t.Errorf("%d of %d bytes, and a record: %s", n, len(data), diff)
		}
	}
}

// TestResultsBroken: an error names the problem, the place and the remedy; the file is not
// changed.
func TestResultsBroken(t *testing.T) {
	lines := func(edit func([]string) []string) string {
		data, err := os.ReadFile(resultsFile(t, scored("a", pulse, 1, 0)))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(edit(strings.SplitAfter(string(data), "\n")), "")
	}
	replace := func(line int, old, with string) string {
		return lines(func(l []string) []string {
			if !strings.Contains(l[line], old) {
				t.Fatalf("no %s in %s", old, l[line])
			}
			l[line] = strings.Replace(l[line], old, with, 1)
			return l
		})
	}
	const again, fresh, own = `; without this line its sample is answered again`, `; name a new file`, ` needs a file of its own`
	for _, c := range []struct{ content, want, advice string }{
		{replace(1, `"method":`, `"method";`), `:2:21: invalid character ';' after object key`, again},
		{replace(1, `"seed":0`, `"seed":"x"`), `: seed cannot be a JSON string`, again},
		{replace(2, `"score":0`, `"score":-1`), `:3:1: score is -1, want null or 0 to 1`, again},
		{replace(2, `"task":"a"`, `"task":""`), `:3:1: a record without task`, again},
		{replace(2, `"data_hash":"data"`, `"data_hash":""`), `:3:1: a record without task`, again},
		{replace(2, `"index":1`, `"index":-1`), `:3:1: index, tokens`, again},
		{replace(2, `"kept":`, `"kept":1`), `:3:1: kept is 10.2`, again},
		{replace(0, `"pulsecol_eval":2`, `"pulsecol_eval":1`), `has format 1, this version of pulsecol has 2`, own},
		{replace(0, `0123`, `1123`), `made with another model: llada 1123456789ab, this one is llada 0123456789ab`, own},
		{replace(0, `"steps":"16"`, `"steps":"8"`), `other sampler options: --steps 8, now --steps 16`, own},
		{replace(0, `"steps":"16"`, ``), `other sampler options: none, now --steps 16`, own},
		{lines(func(l []string) []string { return l[1:] }), `:1:1: is not a results file`, fresh},
		{lines(func(l []string) []string { return append(l[:1], "\n") }), `:2:1: unexpected end of JSON input`, again},
		{lines(func(l []string) []string { return append(l, "a note") }), `:4:1: has no end, and is not an answer that was cut off`, again},
		{lines(func(l []string) []string { return append(l, strings.Repeat("\x00", 100)) }), `:4:1: has no end`, again},
		{lines(func(l []string) []string { return append(l[:1], strings.Repeat(" ", maxLine+10), "\n") }), `:2:1: longer than`, again},

		// Files of other programs.
		{"no JSON\n", `:1:1: is not a results file`, fresh},
		{"no JSON", `:1:1: is not a results file`, fresh},
		{`{"answers":[1,2,3]}`, `:1:1: is not a results file`, fresh},
		{"\n", `:1:1: is not a results file`, fresh},
		{"\x7fELF\x00\x00", `:1:1: is not a results file`, fresh},
		{strings.Repeat("x", maxLine+10), `:1:1: is not a results file`, fresh},
		{headerStart + "\n", `:1:18: unexpected end of JSON input`, fresh},
	} {
		path := filepath.Join(t.TempDir(), "results.jsonl")
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenResults(path, header)
		if !errors.Is(err, ErrResults) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) || !strings.HasSuffix(err.Error(), c.advice) {
			t.Errorf("%v, want %s and %s", err, c.want, c.advice)
		}
		if after, _ := os.ReadFile(path); string(after) != c.content {
			t.Errorf("a refused file was changed: %.100q", after)
		}
	}
	for _, path := range []string{t.TempDir(), os.DevNull} {
		if _, err := OpenResults(path, header); !errors.Is(err, ErrResults) || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestResultsJoined: two files with the same samples, one after the other.
func TestResultsJoined(t *testing.T) {
	records := scored("a", pulse, 1, 0)
	path := resultsFile(t, records)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, data[bytes.IndexByte(data, '\n')+1:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byJob(records), openResults(t, path).records); diff != "" {
		t.Error(diff)
	}
}

// TestResultsReplaced: a file that was replaced or shortened is not written to.
func TestResultsReplaced(t *testing.T) {
	records := scored("a", pulse, 1, 0)
	for name, change := range map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 10) },
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, bytes.Repeat([]byte("other\n"), 200), 0o600))
		},
	} {
		path := resultsFile(t, nil)
		r := openResults(t, path)
		if _, err := r.Append(records[0]); err != nil {
			t.Fatal(err)
		}
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(path)
		_, err := r.Append(records[1])
		after, _ := os.ReadFile(path)
		if err == nil || !strings.Contains(err.Error(), path) || !bytes.Equal(before, after) {
			t.Errorf("%s: %v; the file has %q, then %q", name, err, before, after)
		}
	}
}

// FuzzResults: any file is accepted or refused. A refused file is not changed. An accepted
// one loses at most an incomplete last line, and a record can be added and read back.
func FuzzResults(f *testing.F) {
	head := `{"pulsecol_eval":2,"model_type":"llada","model_sha256":"0123456789abcdef","sampler":{"steps":"16"}}` + "\n"
	rec := `{"task":"a","method":"full","seed":1,"index":2,"prompt_hash":"1","data_hash":"2","score":1}` + "\n"
	for _, seed := range []string{"", "\n", "{}\n", `{"a":1}`, headerStart, head, head + rec, head + rec + rec, head + rec + rec[:20], head + rec + "x", head + head, strings.TrimSpace(head)} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "results.jsonl")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := OpenResults(path, header)
		after, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if err != nil {
			if !errors.Is(err, ErrResults) || strings.Contains(err.Error(), "Go ") || !bytes.Equal(after, data) {
				t.Errorf("%v; %q has become %q", err, data, after)
			}
			return
		}
		whole := bytes.LastIndexByte(data, '\n') + 1
		if tail := data[whole:]; whole > 0 && !bytes.Equal(after, data[:whole]) || r.Dropped != len(tail) ||
			len(tail) > 0 && tail[0] != '{' {
			t.Errorf("%q has become %q", data, after)
		}
		added := Record{Job: Job{Cell{"fuzz", full}, 7, 7}, Asked: asked}
		if added, err = r.Append(added); err != nil {
			t.Fatal(err)
		}
		again, err := OpenResults(path, header)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r.records, again.records, cmpopts.EquateEmpty()); diff != "" || again.Len() == 0 {
			t.Error(diff)
		}
		for _, rec := range slices.Collect(maps.Values(again.records)) {
			if _, err := json.Marshal(rec); err != nil {
				t.Error(err)
			}
		}
	})
}
