package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol/internal/eval"
)

// results opens the results file; nil if none was asked for.
func (e *evaluation) results(line *kong.Context, std stdio) (*eval.Results, error) {
	if e.Results == nil {
		return nil, nil
	}
	h, err := e.header(line)
	if err != nil {
		return nil, err
	}
	r, err := eval.OpenResults(e.Results[0], h)
	if err != nil {
		return nil, err
	}
	if r.Dropped > 0 {
		fmt.Fprintf(std.err, "%s: dropped its last line, which was cut off after %d bytes\n", e.Results[0], r.Dropped)
	}
	return r, nil
}

// joins says whether the command makes a table of the results files of shards.
func (c *evalCmd) joins() bool { return len(c.Results) > 1 }

// join reports the answers in the results files of shards.
func (e *evaluation) join(ctx context.Context, line *kong.Context, std stdio) error {
	h, err := e.header(line)
	if err != nil {
		return err
	}
	records, err := eval.Join(ctx, e.Results, h, e.jobs(), e.ask)
	if err != nil {
		return err
	}
	return e.report(std.out, records, "")
}

// header describes this evaluation to a results file.
func (e *evaluation) header(line *kong.Context) (eval.Header, error) {
	hash, err := e.Open.hash()
	if err != nil {
		return eval.Header{}, err
	}
	host := thisHost()
	return eval.Header{
		Type: e.model.kind(), Model: hash, Sampler: samplerOptions(line),
		Host:    fmt.Sprintf("%s, %d threads, %s", host.CPU, host.Threads, host.Features),
		Version: version(), Created: time.Now().UTC().Format(time.RFC3339),
	}, nil
}

// samplerOptions returns the sampler's flags that were given, but for the seed,
// which every record has.
func samplerOptions(line *kong.Context) map[string]string {
	given := map[string]string{}
	for _, p := range line.Path {
		if p.Flag != nil && p.Flag.Group != nil && strings.Contains(strings.ToLower(p.Flag.Group.Key), "sampler") && p.Flag.Name != "seed" {
			given[p.Flag.Name] = fmt.Sprint(reflect.Indirect(p.Flag.Target))
		}
	}
	return given
}
