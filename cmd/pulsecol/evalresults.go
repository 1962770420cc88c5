package main

import (
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
	hash, err := e.Open.hash()
	if err != nil {
		return nil, err
	}
	host := thisHost()
	r, err := eval.OpenResults(*e.Results, eval.Header{
		Type: e.model.kind(), Model: hash, Sampler: samplerOptions(line),
		Host:    fmt.Sprintf("%s, %d threads, %s", host.CPU, host.Threads, host.Features),
		Version: version(), Created: time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return nil, err
	}
	if r.Dropped > 0 {
		fmt.Fprintf(std.err, "%s: dropped its last line, which was cut off after %d bytes\n", *e.Results, r.Dropped)
	}
	return r, nil
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
