package outside_test

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
)

// cached is a config with a cache of keys and values.
func cached() pulsecol.Config {
	cfg := sparse()
	cfg.Cache = pulsecol.DualCache
	return cfg
}

// badBlocks are blocks that no sequence has.
func badBlocks() []pulsecol.Block {
	bad := []pulsecol.Block{{}, {Len: 4}, {Len: 4, First: 2, End: 2}, {Len: 4, First: 3, End: 2}, {Len: 4, End: 5}, {Len: -4, First: -3, End: -2}}
	for _, x := range numbers {
		if x != 0 {
			bad = append(bad, pulsecol.Block{Len: 4, First: x, End: 4})
		}
		bad = append(bad, pulsecol.Block{Len: 4, End: x}, pulsecol.Block{Len: min(x, 3), End: 4})
	}
	return bad
}

var _ = misuses(map[string]func(*misuse){
	"pulsecol.Cache.String": prints(pulsecol.Cache(99), pulsecol.PassKind(99)),
	"pulsecol.Controller.SetBlock": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			want := pulsecol.ErrConfig
			if state == "closed" {
				want = pulsecol.ErrClosed
			}
			m.fails(state, func() error { return b.ctl.SetBlock(pulsecol.Block{Len: 4, End: 4}) }, want)
		})
		ctl := must(pulsecol.NewController(cached()))(m)
		m.fails("not started", func() error { return ctl.SetBlock(pulsecol.Block{Len: 4, End: 4}) }, pulsecol.ErrNotStarted)
		m.works("start", func() error { return ctl.Start(4) })
		for _, b := range badBlocks() {
			m.fails(fmt.Sprintf("%+v", b), func() error { return ctl.SetBlock(b) })
		}
		m.works("a block", func() error { return ctl.SetBlock(pulsecol.Block{Len: 4, End: 2}) })
		m.works("the same", func() error { return ctl.SetBlock(pulsecol.Block{Len: 4, End: 2}) })
		m.fails("another length", func() error { return ctl.SetBlock(pulsecol.Block{Len: 5, End: 2}) })
		m.works("of a new generation", func() error {
			if err := ctl.Start(math.MaxInt); err != nil {
				return err
			}
			return ctl.SetBlock(pulsecol.Block{Len: math.MaxInt, First: math.MaxInt - 1, End: math.MaxInt})
		})
	},
	"pulsecol.Controller.Pass": func(m *misuse) {
		m.is("a zero controller", func() any { return new(pulsecol.Controller).Pass() == pulsecol.Pass{} }, true)
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			m.is(state, func() any { return b.ctl.Pass().Mode }, b.ctl.Mode())
		})
		ctl := must(pulsecol.NewController(cached()))(m)
		m.is("not started", func() any { return ctl.Pass() == pulsecol.Pass{} }, true)
		m.works("start", func() error { return ctl.Start(4) })
		m.is("no block", func() any { return ctl.Pass() == pulsecol.Pass{} }, true)
		m.works("a block", func() error { return ctl.SetBlock(pulsecol.Block{Len: 4, End: 2}) })
		m.is("a block", func() any { return ctl.Pass().Rows }, 4)
	},
	"pulsecol.Controller.CacheBytes": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			for _, n := range numbers {
				m.is(state+", no cache", func() any { return b.ctl.CacheBytes(nil, n) }, 0)
				m.does(state, func() { b.ctl.CacheBytes(b.g, n) })
			}
		})
	},
	"pulsecol.WithCache": func(m *misuse) {
		b := m.inputs()
		with, without := must(pulsecol.NewController(cached()))(m), must(pulsecol.NewController(sparse()))(m)
		attention := func(ctl *pulsecol.Controller, opts ...pulsecol.AttentionOption) error {
			return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0), opts...))
		}
		m.fails("a cache without the option", func() error { return attention(with) }, pulsecol.ErrConfig)
		m.fails("the option without a cache", func() error { return attention(without, pulsecol.WithCache(4)) }, pulsecol.ErrConfig)
		for _, n := range []int{0, -1, math.MinInt, 3} {
			m.fails(fmt.Sprint(n, " tokens"), func() error { return attention(with, pulsecol.WithCache(n)) })
		}
		m.fails("a mask of the rows", func() error {
			b := m.inputs()
			ctl := must(pulsecol.NewController(cached()))(m)
			return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0), pulsecol.WithCache(8), pulsecol.WithPaddingMask(floatInput(b.g, "mask", 1, 4))))
		}, op.ErrShape)
		m.works("right", func() error { return attention(with, pulsecol.WithCache(4)) })
		m.fails("twice in a graph", func() error { return attention(with, pulsecol.WithCache(4)) })
		b.ctl = with
		machine := m.machine(b)
		m.fails("not started", machine.Step, pulsecol.ErrNotStarted)
		m.works("start", func() error { return with.Start(4) })
		m.fails("no block", machine.Step, pulsecol.ErrNoBlock)
		m.works("a block", func() error { return with.SetBlock(pulsecol.Block{Len: 4, End: 2}) })
		m.works("a prefill", machine.Step)
		m.fails("a block step in the graph of a prefill", machine.Step)
		m.works("close", machine.Close)
		m.fails("closed", machine.Step, pulsecol.ErrClosed)
		m.does("a huge sequence", func() {
			b := m.inputs()
			ctl := must(pulsecol.NewController(cached()))(m)
			pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0), pulsecol.WithCache(math.MaxInt))
		})
	},
	"op.NewKVCache": func(m *misuse) {
		m.params(func(p op.AttentionParams) error { return second(op.NewKVCache("c", 0, p)) })
		for _, n := range numbers {
			m.fails(fmt.Sprint(n, " tokens and no layer"), func() error {
				return second(op.NewKVCache("c", 0, op.AttentionParams{Cached: n}))
			}, op.ErrValue)
			if n != 0 {
				m.fails(fmt.Sprint(n, " tokens and no layer"), func() error {
					return second(op.NewScoreCollect("c", op.AttentionParams{Cached: n}))
				}, op.ErrValue)
			}
		}
		m.fails("no half of a cache", func() error { return second(op.NewKVCache("c", 99, op.AttentionParams{Cached: 4})) }, op.ErrValue)
	},
})

// badCaches are configs with a cache that cannot be.
func badCaches() map[string]pulsecol.Config {
	return map[string]pulsecol.Config{
		"no cache": {Cache: 99}, "prefills": {Cache: pulsecol.DualCache, PrefillEvery: -1}, "prefills without a cache": {PrefillEvery: 1},
		"adaptive cache": {Cache: pulsecol.PrefixCache, Schedule: pulsecol.Adaptive{}}, "SparseD's cache": {Cache: pulsecol.DualCache, Pattern: pulsecol.SparseD{}},
		"fixed cache": {Cache: pulsecol.DualCache, Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{table(1, 1, 4, 2)}}},
	}
}
