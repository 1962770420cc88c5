package eval

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/pulsecol/pulsecol/internal/workgroup"
)

// Runner answers samples, several at once.
type Runner struct {
	Jobs     int                                              // samples at once
	Ask      func(j Job) (Asked, error)                       // identifies a sample; called by several goroutines
	Answer   func(ctx context.Context, j Job) (Record, error) // fills in all but the Job; called by several goroutines
	Results  *Results                                         // keeps the answers; may be nil
	Cost     func(Cell) float64                               // of a sample, above 0, in any unit; for the time left
	Progress func(Progress)                                   // called before the first sample and after every one, by one goroutine at a time
}

// Run answers those of jobs that have no record in Results, in their order, and returns the
// records of jobs. Records of other prompts or other data are an error before the first
// sample. On an error of a sample or of ctx, Run returns the records so far as well.
func (r *Runner) Run(ctx context.Context, jobs []Job) ([]Record, error) {
	state := newTally(r, jobs)
	if r.Results != nil {
		have, err := r.known(ctx, jobs)
		if err != nil {
			return nil, err
		}
		for _, rec := range have {
			state.add(rec)
		}
	}
	open := state.open(jobs)
	r.Progress(state.progress())

	var mu sync.Mutex // over state and Progress
	err := parallel(ctx, r.Jobs, open, func(ctx context.Context, j Job) error {
		start := time.Now()
		rec, fresh, err := r.answer(ctx, j)
		if err != nil {
			return fmt.Errorf("%s, sample %d, %s: %w", j.Task, j.Index, j.Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if fresh {
			state.answered(rec, time.Since(start))
		} else {
			state.add(rec)
		}
		r.Progress(state.progress())
		return nil
	})
	return state.records, err
}

// known returns the records that jobs have, after checking their hashes.
func (r *Runner) known(ctx context.Context, jobs []Job) ([]Record, error) {
	var have []Record
	type sample struct {
		task  string
		seed  uint64
		index int
	}
	records := map[sample][]Record{}
	var samples []Job
	for _, j := range jobs {
		rec, ok := r.Results.records[j]
		if !ok {
			continue
		}
		have = append(have, rec)
		s := sample{j.Task, j.Seed, j.Index}
		if records[s] == nil {
			samples = append(samples, j)
		}
		records[s] = append(records[s], rec)
	}
	return have, parallel(ctx, runtime.GOMAXPROCS(0), samples, func(_ context.Context, j Job) error {
		now, err := r.Ask(j)
		if err != nil {
			return err
		}
		for _, rec := range records[sample{j.Task, j.Seed, j.Index}] {
			if err := r.Results.checkAsked(rec, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// answer returns the record of a job: one that another evaluation has added meanwhile, or a
// new one.
func (r *Runner) answer(ctx context.Context, j Job) (rec Record, fresh bool, err error) {
	if r.Results != nil {
		rec, ok, err := r.Results.Find(j)
		if err != nil {
			return rec, false, err
		}
		if ok {
			now, err := r.Ask(j)
			if err != nil {
				return rec, false, err
			}
			return rec, false, r.Results.checkAsked(rec, now)
		}
	}
	rec, err = r.Answer(ctx, j)
	rec.Job = j
	if err != nil || r.Results == nil {
		return rec, true, err
	}
	kept, err := r.Results.Append(rec)
	if err != nil {
		return rec, true, err
	}
	return kept, true, r.Results.checkAsked(kept, rec.Asked)
}

// parallel calls do for jobs in their order, with at most n at once, until one
// fails or ctx ends, and returns the first error.
func parallel(ctx context.Context, n int, jobs []Job, do func(context.Context, Job) error) error {
	all, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan Job)
	var wg workgroup.Group
	var once sync.Once
	var failed error
	for range min(n, len(jobs)) {
		wg.Go(func() {
			panicked := true
			defer func() {
				if panicked { // no job may be left waiting for a worker
					cancel()
				}
			}()
			for j := range next {
				if all.Err() != nil {
					break
				}
				if err := do(all, j); err != nil {
					once.Do(func() { failed = err })
					cancel()
				}
			}
			panicked = false
		})
	}
	for _, j := range jobs {
		select {
		case next <- j:
			continue
		case <-all.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	if failed == nil {
		failed = ctx.Err()
	}
	return failed
}
