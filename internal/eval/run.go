package eval

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Runner answers samples, several at once.
type Runner struct {
	Jobs     int                                              // samples at once
	Answer   func(ctx context.Context, j Job) (Record, error) // fills in all but the Job; called by several goroutines
	Keep     func(Record) error                               // called by one goroutine at a time, as are the others
	Cost     func(Cell) float64                               // of a sample, above 0, in any unit; for the time left
	Progress func(Progress)                                   // called before the first sample and after every one
}

// Run answers those of jobs that have no record in have, in their order, and
// returns the records of jobs. After an error, of a sample or of ctx, the records
// that there are come along with it.
func (r *Runner) Run(ctx context.Context, jobs []Job, have []Record) ([]Record, error) {
	type sample struct {
		task  string
		seed  uint64
		index int
	}
	state := newTally(r, jobs)
	prompts := map[sample]string{} // by their hash
	for _, rec := range have {
		prompts[sample{rec.Task, rec.Seed, rec.Index}] = rec.PromptHash
		state.add(rec)
	}
	open := state.open(jobs)
	r.Progress(state.progress())

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // over all that follows
	var failed error
	finish := func(j Job, rec Record, err error, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		rec.Job = j
		if hash, ok := prompts[sample{j.Task, j.Seed, j.Index}]; err == nil && ok && hash != rec.PromptHash {
			err = fmt.Errorf("%w: the record of this sample has another prompt, from other data or another version of the task", ErrResults)
		}
		if err == nil {
			err = r.Keep(rec)
		}
		if err != nil {
			if failed == nil {
				failed = fmt.Errorf("%s, sample %d, %s: %w", j.Task, j.Index, j.Name, err)
			}
			cancel()
			return
		}
		state.answered(rec, took)
		r.Progress(state.progress())
	}

	next := make(chan Job)
	var wg sync.WaitGroup
	for range min(r.Jobs, len(open)) {
		wg.Go(func() {
			for j := range next {
				if ctx.Err() != nil {
					return
				}
				start := time.Now()
				rec, err := r.Answer(ctx, j)
				finish(j, rec, err, time.Since(start))
			}
		})
	}
	for _, j := range open {
		select {
		case next <- j:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	if failed == nil {
		failed = ctx.Err()
	}
	return state.records, failed
}
