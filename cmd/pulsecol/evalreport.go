package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulsecol/pulsecol/internal/eval"
	"github.com/pulsecol/pulsecol/internal/outfile"
	"github.com/pulsecol/pulsecol/internal/task"
)

// checkOutputs reports outputs that cannot be written, or would overwrite what the
// command reads or prints.
func (e *evaluation) checkOutputs(std stdio) error {
	for _, path := range e.Results {
		if path == "" {
			return usagef("--results %s: a name is empty", strings.Join(e.Results, ","))
		}
		if err := checkFile("results", path, std); err != nil {
			return err
		}
	}
	if e.Completions != nil {
		if err := checkFile("completions", *e.Completions, std); err != nil {
			return err
		}
		read := map[string][]string{"results": e.Results, "data": {or(e.Data, "")}, "exemplars": {or(e.Exemplars, "")}}
		for flag, paths := range read {
			for _, path := range paths {
				if path != "" && sameFile(path, *e.Completions) {
					return usagef("--completions %s: is the file of --%s", *e.Completions, flag)
				}
			}
		}
		if err := outfile.Check(*e.Completions); err != nil {
			return fmt.Errorf("--completions %w", err)
		}
	}
	if e.Plots != nil {
		if err := outfile.CheckDir(*e.Plots); err != nil {
			return fmt.Errorf("--plots %s: %w", *e.Plots, err)
		}
	}
	return nil
}

// checkFile reports a path that is not that of a file, or that is where the command
// prints to, as /dev/stdout is.
func checkFile(flag, path string, std stdio) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil // it is new, or opening it gives the error
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("--%s %s: is not a regular file", flag, path)
	}
	for _, w := range []io.Writer{std.out, std.err} {
		f, ok := w.(*os.File)
		if !ok {
			continue
		}
		if stream, err := f.Stat(); err == nil && os.SameFile(info, stream) {
			return fmt.Errorf("--%s %s: is where the command prints to; want a file of its own", flag, path)
		}
	}
	return nil
}

// sameFile says whether two paths are one file, which need not be there.
func sameFile(a, b string) bool {
	if x, err := os.Stat(a); err == nil {
		y, err := os.Stat(b)
		return err == nil && os.SameFile(x, y)
	}
	x, errX := filepath.Abs(a)
	y, errY := filepath.Abs(b)
	return errX == nil && errY == nil && x == y
}

// report prints the table or its cells, and then writes the other outputs. An error in one
// output does not prevent the others. partial is that of print.
func (e *evaluation) report(w io.Writer, records []eval.Record, partial string) error {
	table := eval.NewTable(e.tasks, e.methods, records)
	errs := []error{e.print(w, table, partial), e.writeCompletions(records)}
	if e.Plots != nil {
		_, err := table.Plot(*e.Plots, e.PlotFormat, e.model.title())
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// reportPartial prints and writes the results of an interrupted run, and how to continue
// it. It draws no pictures.
func (e *evaluation) reportPartial(std stdio, records []eval.Record, total int) {
	if len(records) == 0 {
		return
	}
	counts := fmt.Sprintf("%d of %d samples", len(records), total)
	where := "were answered; without --results nothing keeps them but the table"
	if e.Results != nil {
		where = fmt.Sprintf("are in %s; the same command goes on from there", e.Results[0])
	}
	fmt.Fprintf(std.err, "%s %s\n", counts, where)
	table := eval.NewTable(e.tasks, e.methods, records)
	for _, err := range []error{e.print(std.out, table, counts), e.writeCompletions(records)} {
		if err != nil {
			fmt.Fprintf(std.err, "%s\n", err)
		}
	}
}

// print prints the table or its cells. partial says which of the samples are answered; "" if
// all are.
func (e *evaluation) print(w io.Writer, table *eval.Table, partial string) error {
	if e.JSON {
		for _, s := range table.Summaries() {
			s.Partial = partial != ""
			if err := printJSON(w, s); err != nil {
				return err
			}
		}
		return nil
	}
	if partial != "" {
		if _, err := fmt.Fprintf(w, "Partial: %s.\n\n", partial); err != nil {
			return err
		}
	}
	return table.WriteMarkdown(w)
}

// writeCompletions writes answers in the format of HumanEval's official checker.
func (e *evaluation) writeCompletions(records []eval.Record) error {
	if e.Completions == nil {
		return nil
	}
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b eval.Record) int {
		return cmp.Or(cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.Index, b.Index))
	})
	return outfile.Write(*e.Completions, func(w io.Writer) error {
		for _, rec := range records {
			line, err := task.HumanEvalCompletion(rec.ID, rec.Output)
			if err != nil {
				return err
			}
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
		return nil
	})
}
