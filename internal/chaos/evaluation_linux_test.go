package chaos

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/eval"
)

// evaluation is the command line of an evaluation that keeps its answers in a file.
// Its answers are those of a model that does not think long about them.
func evaluation(results string, args ...string) command {
	return pulsecol(append([]string{"eval", "--results", results, "--gen-length", "8", "--block-length", "8", "--steps", "4"}, args...)...)
}

// recordsOf returns the records of a results file, and reports lines that are broken
// and samples that are there twice. A last line may lack its end if torn says so.
func recordsOf(t *testing.T, what any, path string, torn bool) map[eval.Job]eval.Record {
	t.Helper()
	records := map[eval.Job]eval.Record{}
	lines := strings.SplitAfter(read(t, path), "\n")
	for i, line := range lines {
		ended := strings.HasSuffix(line, "\n")
		switch {
		case line == "" && i == len(lines)-1, !ended && torn:
			continue
		case !ended:
			t.Errorf("%v: %s: line %d has no end: %q", what, path, i+1, line)
			continue
		}
		var rec eval.Record
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Errorf("%v: %s: line %d: %v", what, path, i+1, err)
		}
		if i == 0 {
			if !strings.HasPrefix(line, `{"pulsecol_eval":2,`) {
				t.Errorf("%v: %s begins with %q", what, path, line)
			}
			continue
		}
		if _, ok := records[rec.Job]; ok {
			t.Errorf("%v: %s: line %d is a second answer to sample %d of %s", what, path, i+1, rec.Index, rec.Task)
		}
		rec.Seconds = 0
		records[rec.Job] = rec
	}
	return records
}

// sameRecords wants equal answers, but for the time that they took.
func sameRecords(t *testing.T, what any, got, want map[eval.Job]eval.Record) {
	t.Helper()
	if diff := cmp.Diff(byName(want), byName(got)); diff != "" {
		t.Errorf("%v: answers differ (-want +got):\n%s", what, diff)
	}
}

// byName makes differences readable.
func byName(records map[eval.Job]eval.Record) map[string]eval.Record {
	out := map[string]eval.Record{}
	for j, rec := range records {
		out[fmt.Sprintf("%v", j)] = rec
	}
	return out
}

// holds wants that got has everything that was there before.
func holds(t *testing.T, what any, got, before map[eval.Job]eval.Record) {
	t.Helper()
	for j, rec := range before {
		if now, ok := got[j]; !ok || !cmp.Equal(now, rec) {
			t.Errorf("%v: sample %d of %s with %s was answered before, and is lost or another", what, j.Index, j.Task, j.Name)
		}
	}
}
