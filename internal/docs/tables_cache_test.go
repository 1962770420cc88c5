package main

import (
	"strings"
	"testing"
)

// cacheRecords are the records of the tables of cached steps, of a model and a length, with
// those of others that must not appear.
func cacheRecords() *bench {
	of := func(r record) record {
		all := record{"shape": "llada-8b", "n": 4096.0, "batch": 1.0, "cache": "dual", "block_length": 32.0, "gpu": "a GPU", "date": "2026-01-02"}
		for field, value := range r {
			all[field] = value
		}
		return all
	}
	theirs := func(kind, attention string, ms float64) record {
		return of(record{"code": "pytorch", "kind": kind, "mode": "dense", "attention": attention, "ms": ms})
	}
	step := func(kind, mode string, ms float64) record { return of(record{"kind": kind, "mode": mode, "ms": ms}) }
	columns := func(r record) record {
		r["group"], r["sparsity"], r["held_bytes"] = 32.0, 0.8, 3.5*(1<<30)
		return r
	}
	generation := func(mode string, every, ms float64) record {
		return of(record{"mode": mode, "steps": 128.0, "new_tokens": 128.0, "prefill_every": every, "ms": ms})
	}
	whole := columns(generation("pulsecol", 0, 77))
	whole["whole_ms"] = 78.0
	return &bench{"e2e": {
		theirs("block", "fa2", 6), theirs("block", "cudnn", 5), theirs("commit", "fa2", 7), theirs("prefill", "cudnn", 100),
		of(record{"code": "pytorch", "kind": "block", "mode": "dense", "batch": 16.0, "ms": 1.0}),
		of(record{"code": "pytorch", "kind": "block", "mode": "dense", "n": 1024.0, "ms": 1.0}),
		step("block", "dense", 4), step("commit", "dense", 4.5), step("prefill", "dense", 90),
		columns(step("block", "reuse", 3)), columns(step("commit", "dense", 5.5)), columns(step("prefill", "refresh", 110)), columns(step("prefill", "reuse", 80)),
		generation("full", 0, 1000), columns(generation("pulsecol", 0, 400)), whole,
		generation("full", 1, 2000), columns(generation("pulsecol", 1, 800)), columns(generation("pulsecol", 3, 600)),
	}}
}

func TestCacheTables(t *testing.T) {
	for name, want := range map[string]string{
		"cache-steps":    "| LLaDA-8B | 4,096 | 1 | 32 | 5.00 | 4.00 | 3.00 | 7.00 | 4.50 | 5.50 | 3.5 GiB |",
		"cache-prefills": "| LLaDA-8B | 4,096 | 1 | 32 | 100 | 90.0 | 110 | 80.0 |",
		// 4 blocks: 1 prefill, 3 commits and 124 block steps; 4 prefills; 2 prefills and 2 commits.
		"cache-generations": "| LLaDA-8B | 4,096 | 1 | 128 | 128 | 1 | 32 | 0.741 s | 1.00 s (0.74x) | 0.400 s (1.85x) |\n" +
			"| LLaDA-8B | 4,096 | 1 | 128 | 128 | 4 | 32 | 1.02 s | 2.00 s (0.51x) | 0.800 s (1.27x) |\n" +
			"| LLaDA-8B | 4,096 | 1 | 128 | 128 | 2 | 32 | 0.834 s |  | 0.600 s (1.39x) |",
	} {
		page := markBegin + name + markName + markEnd
		got, err := fill("docs/x.md", page, cacheRecords())
		if err != nil {
			t.Fatal(err)
		}
		_, rows, _ := strings.Cut(got, "---|\n")
		rows, _, _ = strings.Cut(rows, "\n\nMeasured on a GPU, 2026-01-02.")
		if rows != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, rows, want)
		}
		heading := strings.Count(strings.Split(got, "\n")[1], "|")
		for _, row := range strings.Split(rows, "\n") {
			if n := strings.Count(row, "|"); n != heading {
				t.Errorf("%s: a row of %d cells below a heading of %d", name, n-1, heading-1)
			}
		}
		if got, err = fill("docs/x.md", page, &bench{}); err != nil || !strings.Contains(got, "Not measured yet.") {
			t.Errorf("%s without records: %v\n%s", name, err, got)
		}
	}
	// PyTorch's sum needs all of its kinds.
	b := cacheRecords()
	(*b)["e2e"] = (*b)["e2e"][1:3] // the prefill is missing
	(*b)["e2e"] = append((*b)["e2e"], (*cacheRecords())["e2e"][14])
	got, err := fill("docs/x.md", markBegin+"cache-generations"+markName+markEnd, b)
	if want := "| 1 | 128 | 128 | 1 | 32 |  |  | 0.400 s |"; err != nil || !strings.Contains(got, want) {
		t.Errorf("%v\n%s\nwant %s", err, got, want)
	}
}

// TestCPUCacheTable: a row for each kind of step and number of rows, of one machine's records.
func TestCPUCacheTable(t *testing.T) {
	of := func(method, cache, kind, mode string, rows, ms float64) record {
		r := record{"model": "small", "n": 64.0, "method": method, "cache": cache, "mode": mode, "rows": rows, "ms": ms, "cpu": "a CPU", "date": "2026-01-02"}
		if kind != "" {
			r["kind"] = kind
		}
		return r
	}
	got, err := fill("docs/x.md", markBegin+"cpu-cache-steps"+markName+markEnd, &bench{"steps": {
		of("full", "none", "", "dense", 64, 9), of("full", "dual", "block", "dense", 8, 2), of("full", "prefix", "block", "dense", 24, 4),
		of("pulsecol", "none", "", "refresh", 64, 11), of("pulsecol", "none", "", "reuse", 64, 5),
		of("pulsecol", "dual", "block", "reuse", 8, 1), of("pulsecol", "prefix", "block", "reuse", 24, 3), of("pulsecol", "prefix", "block", "reuse", 16, 7),
		{"model": "other", "n": 64.0, "mode": "dense", "ms": 100.0, "cpu": "another CPU", "date": "2026-01-02"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := "| no cache | 64 | 9.00 ms | refresh 11.0 ms, 5.00 ms |\n" +
		"| block, dual cache | 8 | 2.00 ms | 1.00 ms |\n" +
		"| block, prefix cache | 24 | 4.00 ms | 3.00 ms |\n\nMeasured on a CPU, 2026-01-02."
	if !strings.Contains(got, want) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
