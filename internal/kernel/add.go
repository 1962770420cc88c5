package kernel

// Add computes dst = a + b. dst may be a or b.
func (t *Team) Add(dst, a, b []float32) {
	checkLen("Add", "dst", len(dst), len(a))
	checkLen("Add", "b", len(b), len(a))
	s := spans{len(a), elementGrain}
	run(t, &t.add, s.tasks(), addJob{dst, a, b, s})
}

type addJob struct {
	dst, a, b []float32
	spans
}

func (j *addJob) run(_ *scratch, task int) {
	lo, hi := j.bounds(task)
	dst, b := j.dst[lo:hi], j.b[lo:hi]
	for i, x := range j.a[lo:hi] {
		dst[i] = x + b[i]
	}
}
