package eval

// Shard returns the jobs of shard i of n, counted from 1. Samples are numbered task by task in
// their order, and sample k is of shard k mod n: the shards of a task differ by one sample at
// most, and a sample is answered with all methods in one shard.
func Shard(jobs []Job, i, n int) []Job {
	type sample struct {
		task  string
		seed  uint64
		index int
	}
	var tasks []string
	samples := map[string][]sample{}
	seen := map[sample]bool{}
	for _, j := range jobs {
		s := sample{j.Task, j.Seed, j.Index}
		if seen[s] {
			continue
		}
		seen[s] = true
		if samples[j.Task] == nil {
			tasks = append(tasks, j.Task)
		}
		samples[j.Task] = append(samples[j.Task], s)
	}
	part := map[sample]bool{}
	k := 0
	for _, task := range tasks {
		for _, s := range samples[task] {
			part[s] = k%n == i-1
			k++
		}
	}
	var out []Job
	for _, j := range jobs {
		if part[sample{j.Task, j.Seed, j.Index}] {
			out = append(out, j)
		}
	}
	return out
}
