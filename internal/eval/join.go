package eval

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Join returns the records of jobs from the results files at paths, which it does not change:
// those of shards of one evaluation under h. ask identifies a sample; several goroutines call
// it. A job may have records in several files if these are equal but for their time. A job
// without a record, files with unequal records, a file given twice and everything that
// OpenResults and Runner.Run refuse are errors that wrap ErrResults.
func Join(ctx context.Context, paths []string, h Header, jobs []Job, ask func(Job) (Asked, error)) ([]Record, error) {
	var files []*Results
	for _, path := range paths {
		r, err := readResults(path, h)
		if err != nil {
			return nil, err
		}
		for _, other := range files {
			if os.SameFile(other.file, r.file) {
				return nil, r.errorf("is given twice, as %s too", other.path)
			}
		}
		files = append(files, r)
	}
	from := map[Job]*Results{}
	for _, r := range files {
		have, err := (&Runner{Ask: ask, Results: r}).known(ctx, jobs)
		if err != nil {
			return nil, err
		}
		for _, rec := range have {
			first := from[rec.Job]
			switch {
			case first == nil:
				from[rec.Job] = r
			case !sameAnswer(first.records[rec.Job], rec):
				return nil, r.errorf("has another answer than %s to %s; name the files of one run of each shard", first.path, describe(rec.Job))
			}
		}
	}
	var records []Record
	var missing []Job
	for _, j := range jobs {
		if r := from[j]; r != nil {
			records = append(records, r.records[j])
		} else {
			missing = append(missing, j)
		}
	}
	if len(missing) > 0 {
		return nil, missingError(files, missing, len(jobs))
	}
	return records, nil
}

// readResults reads the results file at path, which must have a header like h.
func readResults(path string, h Header) (_ *Results, err error) {
	h.Format = format
	r := &Results{path: path, header: h, records: map[Job]Record{}, readOnly: true}
	if err := r.checkRegular(); err != nil {
		return nil, err
	}
	f, err := lockedfile.Open(path)
	if err != nil {
		return nil, r.lockError(err)
	}
	defer f.Close()
	if r.file, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := r.read(f, r.file.Size()); err != nil {
		return nil, err
	}
	if r.lines == 0 {
		return nil, r.errorf("has no whole line; start the command of its shard again")
	}
	return r, nil
}

// sameAnswer says whether two records of a job are equal but for the time that they took.
func sameAnswer(a, b Record) bool {
	a.Seconds, b.Seconds = 0, 0
	return reflect.DeepEqual(a, b)
}

// missingError is the error for jobs without a record.
func missingError(files []*Results, missing []Job, all int) error {
	var paths []string
	cut := ""
	for _, r := range files {
		paths = append(paths, r.path)
		if r.Dropped > 0 {
			cut += fmt.Sprintf("%s ends in a line that was cut off after %d bytes; ", r.path, r.Dropped)
		}
	}
	return fmt.Errorf("%w %s: %d of %d answers are missing, the first to %s; %sthe commands of the shards, started again, answer what is missing",
		ErrResults, strings.Join(paths, ", "), len(missing), all, describe(missing[0]), cut)
}

// describe names a job in an error.
func describe(j Job) string {
	return fmt.Sprintf("sample %d of %s, seed %d, %s", j.Index, j.Task, j.Seed, Labels([]Method{j.Method})[0])
}
