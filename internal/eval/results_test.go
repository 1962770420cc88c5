package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var header = Header{Type: "llada", Model: "0123456789abcdef", Sampler: map[string]string{"steps": "16"}, Host: "here"}

// resultsFile writes a results file with records and returns its path.
func resultsFile(t *testing.T, records []Record) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "results.jsonl")
	r, err := OpenResults(path, header)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range records {
		if err := r.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestResultsRoundTrip(t *testing.T) {
	records := append(scored("a", pulse, 1, 0), scored("b <&>", full, 0.25)...)
	records[0].Output = "one\ntwo \u2028 \x00 <b>"
	path := resultsFile(t, records)
	r, err := OpenResults(path, header)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if diff := cmp.Diff(records, r.Records); diff != "" || r.Dropped != 0 {
		t.Errorf("%d bytes dropped; %s", r.Dropped, diff)
	}
}

// TestResultsCutOff cuts a file at every byte: whole lines stay, the rest is
// dropped, and the next record begins a line.
func TestResultsCutOff(t *testing.T) {
	records := scored("a", pulse, 1, 0)
	data, err := os.ReadFile(resultsFile(t, records))
	if err != nil {
		t.Fatal(err)
	}
	more := scored("b", full, 1)
	for n := range len(data) {
		path := filepath.Join(t.TempDir(), "results.jsonl")
		if err := os.WriteFile(path, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := OpenResults(path, header)
		if err != nil {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
		whole := strings.LastIndexByte(string(data[:n]), '\n') + 1
		if r.Dropped != n-whole {
			t.Errorf("%d of %d bytes: dropped %d, want %d", n, len(data), r.Dropped, n-whole)
		}
		want := records[:max(0, strings.Count(string(data[:n]), "\n")-1)]
		if len(r.Records) != len(want) {
			t.Errorf("%d of %d bytes: %d records, want %d", n, len(data), len(r.Records), len(want))
		}
		if err := r.Append(more[0]); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if r, err = OpenResults(path, header); err != nil {
			t.Fatalf("%d of %d bytes, and a record: %v", n, len(data), err)
		}
		r.Close()
		if diff := cmp.Diff(append(want[:len(want):len(want)], more...), r.Records); diff != "" {
			t.Errorf("%d of %d bytes, and a record: %s", n, len(data), diff)
		}
	}
}

// TestResultsBroken: what is wrong, and where.
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
	for _, c := range []struct{ content, want string }{
		{replace(1, `"method":`, `"method";`), `:2:21: invalid character ';' after object key`},
		{replace(1, `"seed":0`, `"seed":"x"`), `cannot unmarshal string into Go struct field`},
		{replace(2, `"score":0`, `"score":-1`), `:3:1: score is -1, want null or 0 to 1`},
		{replace(2, `"task":"a"`, `"task":""`), `:3:1: a record without task`},
		{replace(0, `"pulsecol_eval":1`, `"pulsecol_eval":2`), `pulsecol_eval is 2, want 1`},
		{replace(0, `0123`, `1123`), `made with another model: llada 1123456789ab, this one is llada 0123456789ab`},
		{replace(0, `"steps":"16"`, `"steps":"8"`), `other sampler options: map[steps:8], now map[steps:16]`},
		{lines(func(l []string) []string { return l[1:] }), `pulsecol_eval is 0`},
		{lines(func(l []string) []string { return append(l[:1], "\n") }), `:2:1: unexpected end of JSON input`},
		{"no JSON\n", `:1:2: invalid character 'o' in literal null`},
	} {
		path := filepath.Join(t.TempDir(), "results.jsonl")
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenResults(path, header)
		if !errors.Is(err, ErrResults) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v, want %s", err, c.want)
		}
		if after, _ := os.ReadFile(path); string(after) != c.content {
			t.Errorf("a refused file was changed: %s", after)
		}
	}
}

// TestResultsTwice: two evaluations that wrote to one file at the same time.
func TestResultsTwice(t *testing.T) {
	records := scored("a", pulse, 1, 0)
	r, err := OpenResults(resultsFile(t, append(records, records...)), header)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if diff := cmp.Diff(records, r.Records); diff != "" {
		t.Error(diff)
	}
}

// FuzzResults: any content is read or refused, and what was read can be written and
// read again.
func FuzzResults(f *testing.F) {
	f.Add([]byte("{\"pulsecol_eval\":1}\n{\"task\":\"a\",\"method\":\"full\",\"prompt_hash\":\"1\",\"score\":1}\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		want := Header{Format: format}
		records, err := parseResults("file", data, want)
		if err != nil {
			return
		}
		var again bytes.Buffer
		e := json.NewEncoder(&again)
		if err := e.Encode(want); err != nil {
			t.Fatal(err)
		}
		for _, rec := range records {
			if err := e.Encode(rec); err != nil {
				t.Fatal(err)
			}
		}
		got, err := parseResults("file", again.Bytes(), want)
		if diff := cmp.Diff(records, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	})
}
