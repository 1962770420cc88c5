package eval

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// askScored identifies the samples of scored.
func askScored(j Job) (Asked, error) {
	return scored(j.Task, j.Method, make([]float64, j.Index+1)...)[j.Index].Asked, nil
}

// shards writes the records of an evaluation into the results files of n shards, and returns
// its jobs, the records and the files.
func shards(t *testing.T, n int) (jobs []Job, records []Record, paths []string) {
	t.Helper()
	records = append(scored("a", full, 1, 0, 0.5, 1), scored("a", pulse, 0, 0, 1, 1)...)
	for i, rec := range records {
		records[i].Seconds = float64(i)
		jobs = append(jobs, rec.Job)
	}
	have := byJob(records)
	for i := range n {
		var part []Record
		for _, j := range Shard(jobs, i+1, n) {
			part = append(part, have[j])
		}
		paths = append(paths, resultsFile(t, part))
	}
	return jobs, records, paths
}

// TestJoin: the records of all shards in any order of the files, which stay as they are.
func TestJoin(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		jobs, records, paths := shards(t, n)
		paths = append(paths[1:], paths[0], resultsFile(t, scored("other", full, 1)))
		got, err := Join(t.Context(), paths, header, jobs, askScored)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(records, got); diff != "" {
			t.Errorf("%d files: %s", n, diff)
		}
	}
}

// TestJoinOverlap: a sample may be in several files if its answers are equal.
func TestJoinOverlap(t *testing.T) {
	jobs, records, paths := shards(t, 2)
	again := records[0]
	again.Seconds = 99
	if _, err := Join(t.Context(), append(paths, resultsFile(t, []Record{again})), header, jobs, askScored); err != nil {
		t.Error(err)
	}
	again.Output = "another"
	other := resultsFile(t, []Record{again})
	_, err := Join(t.Context(), append(paths, other), header, jobs, askScored)
	want := other + ": has another answer than " + paths[0] + " to sample 0 of a, seed 0, full"
	if !errors.Is(err, ErrResults) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestJoinRefuses: errors name the file and what is wrong with it, and nothing is changed.
func TestJoinRefuses(t *testing.T) {
	jobs, _, paths := shards(t, 2)
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	second := read(paths[1])
	dir := t.TempDir()
	link := filepath.Join(dir, "link.jsonl")
	if err := os.Link(paths[0], link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content, want string
	}{
		"cut":     {second[:len(second)-5], "1 of 8 answers are missing, the first to sample 3 of a, seed 0, pulsecol (80 %); " + filepath.Join(dir, "cut") + " ends in a line that was cut off after"},
		"missing": {second[:strings.Index(second, "\n")+1], "4 of 8 answers are missing, the first to sample 1 of a, seed 0, full; the commands"},
		"begun":   {second[:20], "has no whole line"},
		"empty":   {"", "has no whole line"},
		"model":   {strings.Replace(second, "0123", "1123", 1), "made with another model"},
		"sampler": {strings.Replace(second, `"steps":"16"`, `"steps":"8"`, 1), "other sampler options: --steps 8, now --steps 16"},
		"data":    {strings.Replace(second, `"data_hash":"data"`, `"data_hash":"x"`, 1), "made with other data: sample 1 of a"},
		"broken":  {strings.Replace(second, `"method":`, `"method";`, 1), ":2:21: invalid character"},
		"program": {"{}\n", "is not a results file"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Join(t.Context(), []string{paths[0], path}, header, jobs, askScored)
		if !errors.Is(err, ErrResults) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
		if read(path) != c.content {
			t.Errorf("%s: the file has changed", name)
		}
	}
	if _, err := Join(t.Context(), []string{paths[0], paths[1], link}, header, jobs, askScored); err == nil || !strings.Contains(err.Error(), link+": is given twice, as "+paths[0]) {
		t.Errorf("a file given twice: %v", err)
	}
	if _, err := Join(t.Context(), []string{paths[0], filepath.Join(dir, "none")}, header, jobs, askScored); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Join(t.Context(), []string{paths[0], dir}, header, jobs, askScored); err == nil || !strings.Contains(err.Error(), dir+": is not a regular file") {
		t.Errorf("a folder: %v", err)
	}
}
