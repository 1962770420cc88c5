package main

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol/internal/eval"
)

// settingLists are lists of settings, whose product is measured.
type settingLists settings[[]float64, []int, []string]

// product returns every method with every combination of those settings that
// apply to it.
func (l *settingLists) product(line *kong.Context, methods []string, refreshes int) ([]eval.Method, error) {
	var out []eval.Method
	used := map[string]bool{}
	for _, method := range methods {
		p := product{line: line, method: method, made: []oneSetting{{}}, used: used}
		// The schedule comes first, because other flags apply to some schedules only.
		times(&p, "schedule", l.Schedule, func(s *oneSetting, v *string) { s.Schedule = v })
		times(&p, "sparsity", l.Sparsity, func(s *oneSetting, v *float64) { s.Sparsity = v })
		times(&p, "group-size", l.GroupSize, func(s *oneSetting, v *int) { s.GroupSize = v })
		times(&p, "eta", l.Eta, func(s *oneSetting, v *float64) { s.Eta = v })
		times(&p, "refreshes", l.Refreshes, func(s *oneSetting, v *int) { s.Refreshes = v })
		times(&p, "drift", l.Drift, func(s *oneSetting, v *float64) { s.Drift = v })
		times(&p, "window", l.Window, func(s *oneSetting, v *int) { s.Window = v })
		times(&p, "sinks", l.Sinks, func(s *oneSetting, v *float64) { s.Sinks = v })
		times(&p, "block-size", l.BlockSize, func(s *oneSetting, v *int) { s.BlockSize = v })
		times(&p, "skip", l.Skip, func(s *oneSetting, v *float64) { s.Skip = v })
		times(&p, "score-scale", l.ScoreScale, func(s *oneSetting, v *float64) { s.ScoreScale = v })
		if p.err != nil {
			return nil, p.err
		}
		for _, s := range p.made {
			if err := s.validate(); err != nil {
				return nil, err
			}
			if m := s.of(method, refreshes); !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	for _, p := range line.Path {
		if p.Flag != nil && p.Flag.Tag.Get("method") != "" && !used[p.Flag.Name] {
			return nil, usagef("--%s does not apply to --method %s", p.Flag.Name, strings.Join(methods, ","))
		}
	}
	return out, nil
}

// cached returns every method with every cache that it can have.
func (c *evalCmd) cached(methods []eval.Method) (out []eval.Method, err error) {
	for _, m := range methods {
		all, err := c.cacheLists.product(m.Name, m.Schedule)
		if err != nil {
			return nil, err
		}
		for _, k := range all {
			m.Cache, m.PrefillEvery = k.name, k.prefillEvery
			if !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return out, nil
}

// product is a partial product of lists of settings, for one method.
type product struct {
	line   *kong.Context
	method string
	made   []oneSetting
	used   map[string]bool // flags that apply to some setting
	err    error
}

// maxSettings bounds the rows of a method.
const maxSettings = 1000

// times multiplies the settings to which a flag applies by the flag's values.
func times[T any](p *product, flag string, values []T, set func(*oneSetting, *T)) {
	at := slices.IndexFunc(p.line.Flags(), func(f *kong.Flag) bool { return f.Name == flag })
	f := p.line.Flags()[at]
	var out []oneSetting
	if len(p.made)*max(1, len(values)) > maxSettings {
		p.err = usagef("--%s: the lists multiply to more than %d settings of %s", flag, maxSettings, p.method)
		return
	}
	for _, s := range p.made {
		if len(values) == 0 || !applies(f, "method", p.method) || !applies(f, "schedule", s.scheduleOf(p.method)) {
			out = append(out, s)
			continue
		}
		p.used[flag] = true
		for _, v := range values {
			set(&s, &v)
			out = append(out, s)
		}
	}
	p.made = out
}
