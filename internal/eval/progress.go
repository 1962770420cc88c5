package eval

import "time"

// Progress is the progress of a run.
type Progress struct {
	Done, Samples    int // answered, those of earlier runs included, and all
	CellsDone, Cells int
	Score            float64       // mean of all marked samples; NaN without any
	Left             time.Duration // estimate
}

// tally counts the samples of a run.
type tally struct {
	runner  *Runner
	records []Record
	left    map[Job]bool
	cells   map[Cell]*cellTally
	marked  []float64

	cost, took float64 // of the samples answered by this run, and their seconds
}

type cellTally struct {
	left       int     // samples without an answer
	cost       float64 // of one
	done, took float64 // samples answered by this run, and their seconds
}

func newTally(r *Runner, jobs []Job) *tally {
	t := &tally{runner: r, left: map[Job]bool{}, cells: map[Cell]*cellTally{}}
	for _, j := range jobs {
		t.left[j] = true
		if t.cells[j.Cell] == nil {
			t.cells[j.Cell] = &cellTally{cost: r.Cost(j.Cell)}
		}
		t.cells[j.Cell].left++
	}
	return t
}

// add counts a record, if it is of the run and was not counted yet.
func (t *tally) add(rec Record) {
	if !t.left[rec.Job] {
		return
	}
	t.left[rec.Job] = false
	t.cells[rec.Cell].left--
	t.records = append(t.records, rec)
	if rec.Score != nil {
		t.marked = append(t.marked, *rec.Score)
	}
}

// answered counts a record of this run.
func (t *tally) answered(rec Record, took time.Duration) {
	t.add(rec)
	c := t.cells[rec.Cell]
	c.done++
	c.took += took.Seconds()
	t.cost += c.cost
	t.took += took.Seconds()
}

// open returns those of jobs that have no record.
func (t *tally) open(jobs []Job) []Job {
	var open []Job
	for _, j := range jobs {
		if t.left[j] {
			open = append(open, j)
		}
	}
	return open
}

func (t *tally) progress() Progress {
	p := Progress{Done: len(t.records), Samples: len(t.left), Cells: len(t.cells), Score: MeanOf(t.marked).Mean}
	seconds := 0.0
	for _, c := range t.cells {
		switch {
		case c.left == 0:
			p.CellsDone++
		case c.done > 0:
			seconds += float64(c.left) * c.took / c.done
		case t.cost > 0: // with the time per cost of the cells seen so far
			seconds += float64(c.left) * c.cost * t.took / t.cost
		}
	}
	p.Left = time.Duration(seconds / float64(t.runner.Jobs) * float64(time.Second))
	return p
}
