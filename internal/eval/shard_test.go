package eval

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// manyJobs lists jobs as evaluations do: all tasks and methods of a sample, then the next one.
func manyJobs(samples map[string]int, tasks []string, seeds int, methods ...Method) []Job {
	var jobs []Job
	for seed := range uint64(seeds) {
		for i := range 100 {
			for _, task := range tasks {
				for _, m := range methods {
					if i < samples[task] {
						jobs = append(jobs, Job{Cell{task, m}, seed, i})
					}
				}
			}
		}
	}
	return jobs
}

// TestShard: shards have every job once, in their order; a sample is in one shard with all
// methods; numbers of samples differ by one at most, in all and in each task.
func TestShard(t *testing.T) {
	tasks := []string{"a", "b", "c"}
	jobs := manyJobs(map[string]int{"a": 7, "b": 1, "c": 12}, tasks, 2, full, pulse)
	type sample struct {
		task  string
		seed  uint64
		index int
	}
	for n := 1; n <= len(jobs)+1; n++ {
		var all []Job
		owner := map[sample]int{}
		sizes := map[string][]int{}
		for i := 1; i <= n; i++ {
			part := Shard(jobs, i, n)
			order := map[Job]int{}
			for at, j := range jobs {
				order[j] = at
			}
			if !slices.IsSortedFunc(part, func(a, b Job) int { return order[a] - order[b] }) {
				t.Errorf("shard %d/%d has another order", i, n)
			}
			count := map[string]int{}
			for _, j := range part {
				s := sample{j.Task, j.Seed, j.Index}
				if owner[s] != 0 && owner[s] != i {
					t.Errorf("%d shards: %v is in shards %d and %d", n, s, owner[s], i)
				}
				if owner[s] == 0 {
					count[j.Task]++
					count["all"]++
				}
				owner[s] = i
			}
			for _, task := range append(tasks, "all") {
				sizes[task] = append(sizes[task], count[task])
			}
			all = append(all, part...)
		}
		if diff := cmp.Diff(counted(jobs), counted(all)); diff != "" {
			t.Errorf("%d shards: %s", n, diff)
		}
		for task, s := range sizes {
			if slices.Max(s)-slices.Min(s) > 1 {
				t.Errorf("%d shards: samples of %s: %v", n, task, s)
			}
		}
	}
	if diff := cmp.Diff(jobs, Shard(jobs, 1, 1), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}
