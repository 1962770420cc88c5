package eval

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// jobsOf returns the jobs of n samples of methods.
func jobsOf(n int, methods ...Method) []Job {
	var jobs []Job
	for i := range n {
		for _, m := range methods {
			jobs = append(jobs, Job{Cell{"a", m}, 0, i})
		}
	}
	return jobs
}

// answered is a runner that answers everything rightly, and what it kept.
func answered(jobs int) (*Runner, *[]Record) {
	kept := new([]Record)
	one := 1.0
	return &Runner{
		Jobs:     jobs,
		Answer:   func(_ context.Context, j Job) (Record, error) { return Record{PromptHash: "p", Score: &one}, nil },
		Keep:     func(r Record) error { *kept = append(*kept, r); return nil },
		Cost:     func(Cell) float64 { return 1 },
		Progress: func(Progress) {},
	}, kept
}

func jobsIn(records []Record) map[Job]int {
	out := map[Job]int{}
	for _, r := range records {
		out[r.Job]++
	}
	return out
}

// TestRunResumes: samples with a record are not run again, those of other runs do
// not count.
func TestRunResumes(t *testing.T) {
	jobs := jobsOf(5, full, pulse)
	r, kept := answered(3)
	have := []Record{{Job: jobs[0], PromptHash: "p"}, {Job: jobs[7], PromptHash: "p"}, {Job: Job{Cell{"other", full}, 0, 0}, PromptHash: "p"}}
	records, err := r.Run(t.Context(), jobs, have)
	if err != nil {
		t.Fatal(err)
	}
	want := map[Job]int{}
	for _, j := range jobs {
		want[j] = 1
	}
	if diff := cmp.Diff(want, jobsIn(records)); diff != "" {
		t.Errorf("all records: %s", diff)
	}
	delete(want, jobs[0])
	delete(want, jobs[7])
	if diff := cmp.Diff(want, jobsIn(*kept)); diff != "" {
		t.Errorf("records of this run: %s", diff)
	}
	*kept = nil
	if again, err := r.Run(t.Context(), jobs, records); err != nil || len(again) != len(jobs) || len(*kept) != 0 {
		t.Errorf("a finished run: %d records, %d new, %v", len(again), len(*kept), err)
	}
}

// TestRunAtOnce: as many samples run at once as were asked for, in their order.
func TestRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := answered(3)
		var mu sync.Mutex
		now, most, started := 0, 0, []int{}
		r.Answer = func(_ context.Context, j Job) (Record, error) {
			mu.Lock()
			now++
			most = max(most, now)
			started = append(started, j.Index)
			mu.Unlock()
			time.Sleep(time.Duration(1+j.Index%2) * time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return Record{PromptHash: "p"}, nil
		}
		if _, err := r.Run(t.Context(), jobsOf(20, full), nil); err != nil {
			t.Fatal(err)
		}
		if most != 3 {
			t.Errorf("%d at once, want 3", most)
		}
		for i, at := range started {
			if at > i+3 || at < i-3 {
				t.Errorf("sample %d was the %d-th to start", at, i)
			}
		}
	})
}

func TestRunFails(t *testing.T) {
	broken := errors.New("broken")
	for _, workers := range []int{1, 4} {
		r, kept := answered(workers)
		good := r.Answer
		r.Answer = func(ctx context.Context, j Job) (Record, error) {
			if j.Index == 5 {
				return Record{}, broken
			}
			return good(ctx, j)
		}
		records, err := r.Run(t.Context(), jobsOf(1000, full), nil)
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "a, sample 5, full: broken") {
			t.Errorf("error %v", err)
		}
		if len(records) != len(*kept) || len(records) > 999 || len(records) < 5-workers {
			t.Errorf("%d records, %d kept", len(records), len(*kept))
		}
		r.Answer = good
		r.Keep = func(Record) error { return broken }
		if records, err := r.Run(t.Context(), jobsOf(10, full), nil); !errors.Is(err, broken) || len(records) != 0 {
			t.Errorf("nothing can be kept: %d records, error %v", len(records), err)
		}
	}
}

func TestRunCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, kept := answered(2)
	good := r.Answer
	r.Answer = func(ctx context.Context, j Job) (Record, error) {
		if j.Index == 3 {
			cancel()
		}
		if err := ctx.Err(); err != nil {
			return Record{}, err
		}
		return good(ctx, j)
	}
	records, err := r.Run(ctx, jobsOf(1000, full), nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, there := jobsIn(records)[Job{Cell{"a", full}, 0, 3}]; there || len(records) != len(*kept) {
		t.Errorf("%d records, %d kept, the interrupted one among them: %t", len(records), len(*kept), there)
	}
}

// TestRunOtherPrompts: the records come from other data.
func TestRunOtherPrompts(t *testing.T) {
	r, kept := answered(1)
	have := []Record{{Job: Job{Cell{"a", full}, 0, 2}, PromptHash: "other"}}
	_, err := r.Run(t.Context(), jobsOf(4, full, pulse), have)
	if !errors.Is(err, ErrResults) || !strings.Contains(err.Error(), "a, sample 2, pulsecol") || len(*kept) != 4 {
		t.Errorf("after %d samples: %v", len(*kept), err)
	}
}

// TestProgress: cells, scores, and a time left that comes from the cells that are
// left.
func TestProgress(t *testing.T) {
	slow := pulse
	slow.Sparsity = 0.5
	r, _ := answered(2)
	r.Cost = func(c Cell) float64 { return map[Method]float64{full: 10, pulse: 5, slow: 20}[c.Method] }
	tally := newTally(r, jobsOf(3, full, pulse, slow))
	if p := tally.progress(); p.Left != 0 || p.Samples != 9 || p.Cells != 3 || !math.IsNaN(p.Score) {
		t.Errorf("before the start: %+v", p)
	}
	one, zero := 1.0, 0.0
	tally.add(Record{Job: Job{Cell{"a", full}, 0, 0}, Score: &one}) // of an earlier run
	tally.answered(Record{Job: Job{Cell{"a", full}, 0, 1}, Score: &zero}, 4*time.Second)
	// One more of full takes 4 s, as the last one did; pulse half of that and slow
	// twice as much, by their costs: 4 + 3·2 + 3·8 = 34 s, on two threads.
	want := Progress{Done: 2, Samples: 9, Cells: 3, Score: 0.5, Left: 17 * time.Second}
	if p := tally.progress(); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	tally.answered(Record{Job: Job{Cell{"a", full}, 0, 2}}, 6*time.Second)
	// Ten seconds for twice the cost of full: pulse 2.5 s, slow 10 s.
	want = Progress{Done: 3, Samples: 9, CellsDone: 1, Cells: 3, Score: 0.5, Left: 18750 * time.Millisecond}
	if p := tally.progress(); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
}
