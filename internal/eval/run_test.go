package eval

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
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

var asked = Asked{"p", "d", "e"}

// answering returns a runner that answers every sample correctly, and the jobs that it
// answers.
func answering(jobs int) (*Runner, *[]Job) {
	var mu sync.Mutex
	answered := new([]Job)
	one := 1.0
	return &Runner{
		Jobs: jobs,
		Ask:  func(Job) (Asked, error) { return asked, nil },
		Answer: func(_ context.Context, j Job) (Record, error) {
			mu.Lock()
			defer mu.Unlock()
			*answered = append(*answered, j)
			return Record{Asked: asked, Score: &one}, nil
		},
		Cost:     func(Cell) float64 { return 1 },
		Progress: func(Progress) {},
	}, answered
}

func jobsIn(records []Record) map[Job]int {
	out := map[Job]int{}
	for _, r := range records {
		out[r.Job]++
	}
	return out
}

// counted counts jobs.
func counted(jobs []Job) map[Job]int {
	out := map[Job]int{}
	for _, j := range jobs {
		out[j]++
	}
	return out
}

// TestRunResumes: samples with a record are not run again. Records of other runs do not
// count.
func TestRunResumes(t *testing.T) {
	jobs := jobsOf(5, full, pulse)
	r, answered := answering(3)
	path := resultsFile(t, []Record{
		{Job: jobs[0], Asked: asked}, {Job: jobs[7], Asked: asked}, {Job: Job{Cell{"other", full}, 0, 0}, Asked: Asked{"other", "other", ""}},
	})
	r.Results = openResults(t, path)
	records, err := r.Run(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	want := counted(jobs)
	if diff := cmp.Diff(want, jobsIn(records)); diff != "" {
		t.Errorf("all records: %s", diff)
	}
	delete(want, jobs[0])
	delete(want, jobs[7])
	if diff := cmp.Diff(want, counted(*answered)); diff != "" {
		t.Errorf("answered by this run: %s", diff)
	}
	*answered = nil
	r.Results = openResults(t, path)
	if again, err := r.Run(t.Context(), jobs); err != nil || len(again) != len(jobs) || len(*answered) != 0 {
		t.Errorf("a finished run: %d records, %d new, %v", len(again), len(*answered), err)
	}
}

// TestRunShares: a runner uses records that another one has added since its start, and the
// file has no record twice.
func TestRunShares(t *testing.T) {
	path, jobs := resultsFile(t, nil), jobsOf(20, full, pulse)
	first, answered := answering(2)
	first.Results = openResults(t, path)
	second, others := answering(3)
	second.Results = openResults(t, path)
	var once sync.Once
	good := first.Answer
	first.Answer = func(ctx context.Context, j Job) (Record, error) {
		once.Do(func() {
			if records, err := second.Run(t.Context(), jobs); err != nil || len(records) != len(jobs) {
				t.Errorf("the other one: %d records, %v", len(records), err)
			}
		})
		return good(ctx, j)
	}
	records, err := first.Run(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(counted(jobs), jobsIn(records)); diff != "" {
		t.Error(diff)
	}
	if len(*answered) > first.Jobs || len(*others) != len(jobs) {
		t.Errorf("answered %d and %d samples, of %d", len(*answered), len(*others), len(jobs))
	}
	if data, err := os.ReadFile(path); err != nil || bytes.Count(data, []byte("\n")) != 1+len(jobs) {
		t.Errorf("%v: %s", err, data)
	}
}

// TestRunAtOnce: the given number of samples run at once, in their order.
func TestRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := answering(3)
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
			return Record{Asked: asked}, nil
		}
		if _, err := r.Run(t.Context(), jobsOf(20, full)); err != nil {
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
		r, answered := answering(workers)
		good := r.Answer
		r.Answer = func(ctx context.Context, j Job) (Record, error) {
			if j.Index == 5 {
				return Record{}, broken
			}
			return good(ctx, j)
		}
		records, err := r.Run(t.Context(), jobsOf(1000, full))
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "a, sample 5, full: broken") {
			t.Errorf("error %v", err)
		}
		if len(records) != len(*answered) || len(records) > 999 || len(records) < 5-workers {
			t.Errorf("%d records, %d answered", len(records), len(*answered))
		}
		path := resultsFile(t, nil)
		r.Results = openResults(t, path)
		r.Answer = func(ctx context.Context, j Job) (Record, error) {
			os.Remove(path)
			return good(ctx, j)
		}
		if records, err := r.Run(t.Context(), jobsOf(10, full)); !errors.Is(err, fs.ErrNotExist) || len(records) != 0 {
			t.Errorf("nothing can be kept: %d records, error %v", len(records), err)
		}
	}
}

// TestRunPanics: a panic of Answer reaches the caller of Run, who can recover it.
func TestRunPanics(t *testing.T) {
	for _, jobs := range []int{1, 3} {
		r, _ := answering(jobs)
		r.Answer = func(context.Context, Job) (Record, error) { panic("boom") }
		got := func() (got any) {
			defer func() { got = recover() }()
			_, err := r.Run(t.Context(), jobsOf(10, full))
			t.Errorf("%d at once: error %v and no panic", jobs, err)
			return nil
		}()
		if got != "boom" {
			t.Errorf("%d at once: a panic about %v", jobs, got)
		}
	}
}

func TestRunCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, answered := answering(2)
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
	records, err := r.Run(ctx, jobsOf(1000, full))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, there := jobsIn(records)[Job{Cell{"a", full}, 0, 3}]; there || len(records) != len(*answered) {
		t.Errorf("%d records, %d answered, the interrupted one among them: %t", len(records), len(*answered), there)
	}
}

// TestRunOtherData: records with other hashes are an error, before the run and during it.
func TestRunOtherData(t *testing.T) {
	jobs := jobsOf(4, full, pulse)
	for _, c := range []struct {
		have Asked
		want string
	}{
		{Asked{"p", "D", "e"}, "other data: sample 2 of a differs"},
		{Asked{"P", "d", "E"}, "other exemplars: sample 2 of a differs"},
		{Asked{"P", "d", ""}, "other exemplars"},
		{Asked{"P", "d", "e"}, "other prompts"},
	} {
		rec := Record{Job: jobs[5], Asked: c.have}
		r, answered := answering(1)
		r.Results = openResults(t, resultsFile(t, []Record{rec}))
		records, err := r.Run(t.Context(), jobs)
		if !errors.Is(err, ErrResults) || !strings.Contains(err.Error(), c.want) || len(*answered)+len(records) != 0 {
			t.Errorf("%v after %d samples, want %s", err, len(*answered), c.want)
		}

		path := resultsFile(t, nil)
		r.Results = openResults(t, path)
		good := r.Answer
		r.Answer = func(ctx context.Context, j Job) (Record, error) {
			if j == jobs[3] {
				if _, err := openResults(t, path).Append(rec); err != nil {
					t.Error(err)
				}
			}
			return good(ctx, j)
		}
		records, err = r.Run(t.Context(), jobs)
		if !errors.Is(err, ErrResults) || !strings.Contains(err.Error(), c.want) || len(records) != 5 {
			t.Errorf("%v with %d records, want %s after 5", err, len(records), c.want)
		}
	}
}

// TestProgress: cells, scores, and a time left that depends on the open cells.
func TestProgress(t *testing.T) {
	slow := pulse
	slow.Sparsity = 0.5
	r, _ := answering(2)
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
