package outside_test

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol"
)

var _ = misuses(map[string]func(*misuse){
	"pulsecol.Controller.StartEndless": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			switch {
			case state == "closed":
				m.fails(state, b.ctl.StartEndless, pulsecol.ErrClosed)
				return
			default:
				m.fails(state+", a schedule by the total", b.ctl.StartEndless, pulsecol.ErrConfig)
			}
			m.works(state, func() error { return b.ctl.SetSchedule(pulsecol.Every{Steps: 2}) })
			m.works(state, b.ctl.StartEndless)
			m.works(state+", twice", b.ctl.StartEndless)
			m.is(state, func() any { done, total := b.ctl.Step(); return [2]int{done, total} }, "[0 0]")
			m.fails(state+", a schedule by the total now", func() error { return b.ctl.SetSchedule(pulsecol.Skip{}) }, pulsecol.ErrConfig)
			m.works(state, func() error { return b.ctl.Start(2) })
		})
	},
	"pulsecol.Controller.SetSchedule": func(m *misuse) {
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			if state == "closed" {
				m.fails(state, func() error { return b.ctl.SetSchedule(pulsecol.Always{}) }, pulsecol.ErrClosed)
				return
			}
			for _, s := range []pulsecol.Schedule{&pulsecol.Always{}, (*pulsecol.Uniform)(nil), pulsecol.Uniform{Eta: math.NaN()}, pulsecol.Every{Steps: math.MinInt}} {
				m.fails(fmt.Sprintf("%s, %T", state, s), func() error { return b.ctl.SetSchedule(s) }, pulsecol.ErrConfig)
			}
			for _, s := range []pulsecol.Schedule{nil, pulsecol.Adaptive{}, pulsecol.AlwaysDense{}, pulsecol.Every{Steps: math.MaxInt}} {
				m.works(fmt.Sprintf("%s, %T", state, s), func() error { return b.ctl.SetSchedule(s) })
			}
			if state == "started" || state == "running" {
				m.works(state+", a step", machine.Step)
			}
		})
	},
	"pulsecol.Controller.SetSparsity": func(m *misuse) {
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			for _, x := range []float64{0, 1, -1, 2, math.NaN(), math.Inf(1), math.Inf(-1)} {
				if state == "closed" {
					m.fails(state, func() error { return b.ctl.SetSparsity(x) }, pulsecol.ErrClosed)
				} else {
					m.fails(fmt.Sprint(state, " ", x), func() error { return b.ctl.SetSparsity(x) }, pulsecol.ErrConfig)
				}
			}
			if state == "closed" {
				return
			}
			m.works(state, func() error { return b.ctl.SetSparsity(math.SmallestNonzeroFloat64) })
			m.works(state, func() error { return b.ctl.SetSparsity(math.Nextafter(1, 0)) })
			if state == "started" || state == "running" {
				m.is(state, func() any { return b.ctl.Mode() }, pulsecol.Refresh)
				m.works(state+", a step", machine.Step)
			}
		})
	},
	"pulsecol.Layer.Config": func(m *misuse) {
		m.is("nil", func() any { return (*pulsecol.Layer)(nil).Config() }, pulsecol.LayerConfig{})
		m.is("zero", func() any { return new(pulsecol.Layer).Config() }, pulsecol.LayerConfig{})
		cfg := sparse()
		cfg.Layers = func(int, pulsecol.LayerConfig) pulsecol.LayerConfig { panic("of the caller") }
		b := m.inputs()
		ctl := must(pulsecol.NewController(cfg))(m)
		m.is("a panic", func() any { return ctl.Layer(0).Config() }, pulsecol.LayerConfig{})
		m.fails("a panic", func() error { return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0))) }, pulsecol.ErrConfig)
	},
	"pulsecol.Every.Mode":   modes(pulsecol.Every{}, pulsecol.Every{Steps: -1}, pulsecol.Every{Steps: math.MinInt}, pulsecol.Every{Steps: math.MaxInt}),
	"pulsecol.Every.String": prints(pulsecol.Every{}, pulsecol.Every{Steps: math.MinInt}),
})
