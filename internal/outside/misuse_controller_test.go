package outside_test

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// after makes controllers that are new, in the middle of a generation, at its end and
// closed.
func after(m *misuse, use func(state string, b *bench, machine *pulsecol.Machine)) {
	for _, state := range []string{"new", "started", "running", "finished", "failed", "machine closed", "closed"} {
		cfg, fail := sparse(), false
		cfg.Observer = reenters(func() {
			if fail {
				panic("of the caller")
			}
		})
		b := m.layer(cfg)
		machine := m.machine(b)
		steps := map[string]int{"running": 2, "finished": 3, "failed": 1, "machine closed": 2, "closed": 2}[state]
		if state != "new" {
			m.works(state, func() error { return b.ctl.Start(3) })
		}
		for range steps {
			m.works(state, machine.Step)
		}
		switch state {
		case "failed":
			fail = true
			if err := m.call(state, machine.Step); err == nil || err == errPanic {
				m.Errorf("%s: %v", state, err)
			}
		case "machine closed":
			m.works(state, machine.Close)
		case "closed":
			m.works(state, b.ctl.Close)
		}
		use(state, b, machine)
		m.works(state, machine.Close)
	}
}

var _ = misuses(map[string]func(*misuse){
	"pulsecol.Controller.Start": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			for _, n := range []int{0, -1, math.MinInt} {
				if state == "closed" {
					m.fails(state, func() error { return b.ctl.Start(n) }, pulsecol.ErrClosed)
				} else {
					m.fails(state, func() error { return b.ctl.Start(n) })
				}
			}
			if state != "closed" {
				m.works(state+", huge", func() error { return b.ctl.Start(math.MaxInt) })
				m.works(state+", twice", func() error { return b.ctl.Start(2) })
				m.is(state, func() any { done, total := b.ctl.Step(); return [2]int{done, total} }, "[0 2]")
			}
		})
	},
	"pulsecol.Controller.Close": func(m *misuse) {
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			m.works(state, b.ctl.Close)
			m.works(state+", twice", b.ctl.Close)
			m.fails(state, func() error { return b.ctl.Start(1) }, pulsecol.ErrClosed)
			m.fails(state, machine.Step, pulsecol.ErrClosed)
			m.fails(state, func() error { return second(b.ctl.Columns(0)) }, pulsecol.ErrStale)
			m.fails(state, func() error { return second(pulsecol.NewMachine(b.g, b.ctl)) }, pulsecol.ErrClosed)
			m.fails(state, func() error { return second(pulsecol.Attention(b.q, b.k, b.v, b.ctl.Layer(1))) }, pulsecol.ErrClosed)
		})
	},
	"pulsecol.Controller.Columns": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			for _, i := range []int{1, -1, math.MaxInt, math.MinInt} {
				m.fails(state, func() error { return second(b.ctl.Columns(i)) })
			}
			if steps, _ := b.ctl.Step(); steps == 0 || state == "closed" {
				m.fails(state, func() error { return second(b.ctl.Columns(0)) }, pulsecol.ErrStale)
				return
			}
			m.works(state, func() error {
				t, err := b.ctl.Columns(0)
				if err == nil {
					clear(t.Bits) // a copy
					t, err = b.ctl.Columns(0)
				}
				if err == nil && len(t.Keys(0, 0, 0)) != 2 {
					err = fmt.Errorf("keys %v", t.Keys(0, 0, 0))
				}
				return err
			})
		})
	},
	"pulsecol.Controller.BlockColumns": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			for _, i := range []int{1, -1, math.MaxInt, math.MinInt} {
				m.fails(state, func() error { return second(b.ctl.BlockColumns(i)) })
			}
			m.fails(state+", without a cache", func() error { return second(b.ctl.BlockColumns(0)) }, pulsecol.ErrStale)
		})
	},
	"pulsecol.Controller.ColumnBytes": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			m.is(state, func() any { return b.ctl.ColumnBytes(b.g) }, 2*2*4)
			m.is(state+", nil", func() any { return b.ctl.ColumnBytes(nil) }, 0)
			m.is(state+", an empty graph", func() any { return b.ctl.ColumnBytes(gorgonia.NewGraph()) }, 0)
		})
	},
	"pulsecol.Controller.Config": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			m.is(state, func() any { return b.ctl.Config().GroupSize }, 2)
			m.works(state, func() error { return b.ctl.Config().Validate() })
		})
	},
	"pulsecol.Controller.DeviceFor": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			for _, n := range numbers {
				m.is(state, func() any { return b.ctl.DeviceFor(n) }, pulsecol.CPU)
			}
		})
	},
	"pulsecol.Controller.PrecisionFor": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			for _, n := range numbers {
				m.is(state, func() any { return b.ctl.PrecisionFor(n) }, pulsecol.Float32)
			}
		})
	},
	"pulsecol.Controller.Drift": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			m.is(state, func() any { return b.ctl.Drift() }, 0)
		})
	},
	"pulsecol.Controller.Invalidate": func(m *misuse) {
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			m.does(state, b.ctl.Invalidate)
			m.does(state+", twice", b.ctl.Invalidate)
			want := pulsecol.Refresh
			if done, total := b.ctl.Step(); done == total {
				want = pulsecol.Dense
			}
			m.is(state, func() any { return b.ctl.Mode() }, want)
		})
	},
	"pulsecol.Controller.SetDense": func(m *misuse) {
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			for _, dense := range []bool{false, true, true} {
				m.does(state, func() { b.ctl.SetDense(dense) })
			}
			m.is(state, func() any { return b.ctl.Mode() }, pulsecol.Dense)
		})
	},
	"pulsecol.Controller.Mode": func(m *misuse) {
		want := map[string]pulsecol.Mode{"started": pulsecol.Refresh, "running": pulsecol.Reuse, "failed": pulsecol.Reuse, "machine closed": pulsecol.Reuse, "closed": pulsecol.Refresh}
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			m.is(state, func() any { return b.ctl.Mode() }, want[state])
		})
	},
	"pulsecol.Controller.Modes": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			m.is(state, func() any { return b.ctl.Modes() }, "[dense refresh reuse]")
		})
		m.is("a zero controller", func() any { return new(pulsecol.Controller).Modes() }, "[dense]")
	},
	"pulsecol.Controller.LastMode": func(m *misuse) {
		want := map[string]pulsecol.Mode{"running": pulsecol.Reuse, "finished": pulsecol.Reuse, "failed": pulsecol.Reuse, "machine closed": pulsecol.Reuse, "closed": pulsecol.Reuse}
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			m.is(state, func() any { return b.ctl.LastMode() }, want[state])
		})
	},
	"pulsecol.Controller.Step": func(m *misuse) {
		want := map[string]string{"new": "0 0", "started": "0 3", "running": "2 3", "finished": "3 3", "failed": "1 3", "machine closed": "2 3", "closed": "2 3"}
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			m.is(state, func() any { done, total := b.ctl.Step(); return fmt.Sprint(done, total) }, want[state])
		})
	},
	"pulsecol.Controller.Stats": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			done, _ := b.ctl.Step()
			m.is(state, func() any { return b.ctl.Stats().Steps }, done)
			m.is(state, func() any {
				s := b.ctl.Stats()
				for i := range s.RefreshSteps {
					s.RefreshSteps[i] = -1 // a copy
				}
				return fmt.Sprint(b.ctl.Stats().RefreshSteps)
			}, fmt.Sprint([]int{1}[:min(done, 1)]))
		})
	},
	"pulsecol.Controller.Layer": func(m *misuse) {
		after(m, func(state string, b *bench, _ *pulsecol.Machine) {
			for _, i := range []int{-1, 1 << 16, math.MaxInt, math.MinInt} {
				m.is(fmt.Sprint(state, " ", i), func() any { return b.ctl.Layer(i) == nil }, true)
			}
			m.is(state, func() any { return b.ctl.Layer(3) == b.ctl.Layer(3) && b.ctl.Layer(3) != nil }, true)
		})
	},
	"pulsecol.Layer.Precision": func(m *misuse) {
		m.is("nil", func() any { return (*pulsecol.Layer)(nil).Precision() }, pulsecol.AutoPrecision)
		m.is("zero", func() any { return new(pulsecol.Layer).Precision() }, pulsecol.AutoPrecision)
	},
	"pulsecol.Attention": func(m *misuse) {
		for i, is := range []string{"q", "k", "v"} {
			b := m.inputs()
			ctl := must(pulsecol.NewController(sparse()))(m)
			for name, n := range nodes(b.g, []*gorgonia.Node{b.q, b.k, b.v}[i]) {
				in := []*gorgonia.Node{b.q, b.k, b.v}
				in[i] = n
				m.fails(is+" is "+name, func() error { return second(pulsecol.Attention(in[0], in[1], in[2], ctl.Layer(0))) }, op.ErrShape)
			}
			m.works(is+", then right ones", func() error { return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0))) })
			m.fails("a layer twice", func() error { return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0))) })
			m.fails("no layer", func() error { return second(pulsecol.Attention(b.q, b.k, b.v, nil)) })
			m.fails("a zero layer", func() error { return second(pulsecol.Attention(b.q, b.k, b.v, new(pulsecol.Layer))) })
			m.fails("a layer that there is not", func() error { return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(-1))) })
		}
		b := m.inputs()
		ctl := must(pulsecol.NewController(sparse()))(m)
		m.fails("three heads on two", func() error {
			return second(pulsecol.Attention(floatInput(b.g, "q3", 1, 3, 4, 4), b.k, b.v, ctl.Layer(0)))
		}, op.ErrShape)
		m.fails("more keys", func() error {
			k := floatInput(b.g, "k5", 1, 2, 5, 4)
			return second(pulsecol.Attention(b.q, k, k, ctl.Layer(0)))
		}, op.ErrShape)
		fixed := must(pulsecol.NewController(pulsecol.Config{Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{nil, table(3, 1, 4, 2), table(1, 1, 9, 2)}}}))(m)
		for l := range 4 {
			m.fails(fmt.Sprint("a table that does not fit ", l), func() error { return second(pulsecol.Attention(b.q, b.k, b.v, fixed.Layer(l))) })
		}
	},
	"pulsecol.WithPaddingMask": func(m *misuse) {
		b := m.inputs()
		ctl := must(pulsecol.NewController(sparse()))(m)
		for name, n := range nodes(b.g, floatInput(b.g, "mask", 1, 4)) {
			if n != nil {
				m.fails("the mask is "+name, func() error {
					return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0), pulsecol.WithPaddingMask(n)))
				}, op.ErrShape)
			}
		}
		m.works("nil is none", func() error {
			return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0), pulsecol.WithPaddingMask(nil), nil))
		})
	},
	"pulsecol.WithRows": func(m *misuse) {
		b := m.inputs()
		ctl := must(pulsecol.NewController(sparse()))(m)
		for name, n := range nodes(b.g, intInput(b.g, "rows", 3)) {
			if n != nil && name != "a vector" || name == "a vector" {
				if n != nil {
					m.fails("rows are "+name, func() error {
						return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0), pulsecol.WithRows(n)))
					}, op.ErrShape)
				}
			}
		}
		for _, row := range []int32{4, math.MaxInt32} {
			b := m.inputs()
			ctl := must(pulsecol.NewController(sparse()))(m)
			b.ctl = ctl
			rows := input(b.g, "rows", []int32{0, row}, 2)
			m.works("rows", func() error {
				return second(pulsecol.Attention(b.q, b.k, b.v, ctl.Layer(0), pulsecol.WithRows(rows)))
			})
			machine := m.machine(b)
			m.works("start", func() error { return ctl.Start(3) })
			ctl.SetDense(true)
			m.fails(fmt.Sprint("row ", row), machine.Step, op.ErrValue)
			m.works("close", machine.Close)
		}
	},
})
