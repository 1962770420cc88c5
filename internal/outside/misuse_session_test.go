package outside_test

import (
	"context"
	"sync"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/models"
)

// sessions adds the cases of sessions. run does to a function that generates what is wrong
// with a generation.
func (a *architecture[O]) sessions(cases map[string]func(*misuse), closed func(*misuse) aModel[O],
	run func(*misuse, func(of aModel[O], ctx context.Context, prompt []int32, cfg pulsecol.Config, o O) error)) {
	cases["Model.NewSession"] = func(m *misuse) {
		of := a.model(m)
		for name, cfg := range badConfigs() {
			m.fails(name, func() error { return second(a.session(of, cfg)) }, pulsecol.ErrConfig)
		}
		m.fails("closed", func() error { return second(a.session(closed(m), sparse())) }, models.ErrClosed)
	}
	cases["Session.Generate"] = func(m *misuse) {
		run(m, func(of aModel[O], ctx context.Context, prompt []int32, cfg pulsecol.Config, o O) error {
			s, err := a.session(of, cfg)
			if err != nil {
				return err
			}
			defer s.Close()
			first := second(s.Generate(ctx, prompt, o))
			if first != nil && cfg.Pattern == nil && len(prompt) == 1 && prompt[0] != 1 { // the session is as good as before
				m.works("after it", func() error { return second(s.Generate(ctx, []int32{1}, a.small)) })
			}
			return first
		})
	}
	cases["Session.GenerateBatch"] = func(m *misuse) {
		s := must(a.session(a.model(m), cached()))(m)
		m.fails("no prompts", func() error { return second(s.GenerateBatch(m.Context(), nil, a.small)) }, models.ErrRequest)
		m.works("two prompts", func() error { return second(s.GenerateBatch(m.Context(), [][]int32{{5}, {5, 6}}, a.small)) })
		var group sync.WaitGroup
		for range 8 { // at once: each works or gets an error that the session is in use
			group.Go(func() { s.GenerateBatch(m.Context(), [][]int32{{5}}, a.small) })
		}
		group.Wait()
		m.works("close", s.Close)
		m.fails("closed", func() error { return second(s.GenerateBatch(m.Context(), [][]int32{{1}}, a.small)) }, pulsecol.ErrClosed)
	}
	cases["Session.Close"] = func(m *misuse) {
		s := must(a.session(a.model(m), sparse()))(m)
		m.works("unused", s.Close)
		m.works("twice", s.Close)
		m.fails("generate", func() error { return second(s.Generate(m.Context(), []int32{1}, a.small)) }, pulsecol.ErrClosed)
	}
}
