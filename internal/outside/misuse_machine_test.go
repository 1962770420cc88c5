package outside_test

import (
	"context"
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// reenters is an observer that uses its machine in the middle of a step.
type reenters func()

func (f reenters) Observe(pulsecol.Observation) { f() }

// runs are the methods of a machine that run a step.
func runs(ctx context.Context) map[string]func(*pulsecol.Machine) error {
	return map[string]func(*pulsecol.Machine) error{
		"Step": (*pulsecol.Machine).Step, "RunAll": (*pulsecol.Machine).RunAll,
		"StepContext":   func(v *pulsecol.Machine) error { return v.StepContext(ctx) },
		"RunAllContext": func(v *pulsecol.Machine) error { return v.RunAllContext(ctx) },
	}
}

// stepping uses one of these methods in states in which there is no step.
func stepping(method string) func(*misuse) {
	return func(m *misuse) {
		run := runs(m.Context())[method]
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			step := func() error { return run(machine) }
			switch state {
			case "new":
				m.fails(state, step, pulsecol.ErrNotStarted)
			case "finished":
				m.fails(state, step, pulsecol.ErrFinished)
				m.fails(state+", again", step, pulsecol.ErrFinished)
			case "failed":
				if err := m.call(state, step); err == nil || err == errPanic {
					m.Errorf("%s: %v", state, err)
				}
			case "machine closed", "closed":
				m.fails(state, step, pulsecol.ErrClosed)
			default:
				m.works(state, step)
			}
		})
		m.fails("a zero machine", func() error { return run(new(pulsecol.Machine)) })
		done, cancel := context.WithCancel(m.Context())
		cancel()
		for name, ctx := range map[string]context.Context{"done": done, "nil": nil} {
			if run := runs(ctx)[method]; method == "StepContext" || method == "RunAllContext" {
				b := m.layer(sparse())
				machine := m.machine(b)
				m.works("start", func() error { return b.ctl.Start(1) })
				m.fails("a context that is "+name, func() error { return run(machine) })
				m.works("the step after it", machine.Step)
				m.works("close", machine.Close)
			}
		}
		// In the middle of a step everything that would change it is refused.
		var machine *pulsecol.Machine
		var b *bench
		var got []error
		cfg := sparse()
		cfg.Observer = reenters(func() {
			got = append(got, run(machine), machine.Close(), b.ctl.Close(), b.ctl.Start(1), machine.Load(m.Context(), nil))
		})
		b = m.layer(cfg)
		machine = m.machine(b)
		m.works("start", func() error { return b.ctl.Start(2) })
		m.works("a step that reenters", func() error { return run(machine) })
		if len(got) != 5 {
			m.Errorf("observed %d", len(got))
		}
		for i, err := range got {
			m.fails(fmt.Sprint("reentered ", i), func() error { return err }, pulsecol.ErrBusy)
		}
		m.works("close", machine.Close)
		// A schedule of others gives what is no mode, an observer panics.
		for name, cfg := range map[string]pulsecol.Config{
			"no mode":           {Sparsity: 0.5, Schedule: stepList{99}},
			"an observer fails": {Sparsity: 0.5, Observer: reenters(func() { panic("of the caller") })},
			"a schedule panics": {Sparsity: 0.5, Schedule: panics{}},
		} {
			b := m.layer(cfg)
			machine := m.machine(b)
			m.works("start", func() error { return b.ctl.Start(1) })
			if name == "an observer fails" {
				if err := m.call(name, func() error { return run(machine) }); err == nil || err == errPanic {
					m.Errorf("%s: %v", name, err)
				}
			} else {
				m.fails(name, func() error { return run(machine) }, pulsecol.ErrConfig)
			}
			b.ctl.SetDense(true)
			m.works(name+", close", machine.Close)
		}
	}
}

var _ = misuses(map[string]func(*misuse){
	"pulsecol.Machine.Step":          stepping("Step"),
	"pulsecol.Machine.RunAll":        stepping("RunAll"),
	"pulsecol.Machine.StepContext":   stepping("StepContext"),
	"pulsecol.Machine.RunAllContext": stepping("RunAllContext"),

	"pulsecol.Machine.Reset": func(m *misuse) {
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			m.does(state, machine.Reset)
			m.does(state+", twice", machine.Reset)
			if state == "running" {
				m.works(state, machine.Step)
			}
		})
		m.does("a zero machine", new(pulsecol.Machine).Reset)
	},
	"pulsecol.Machine.Close": func(m *misuse) {
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			m.works(state, machine.Close)
			m.works(state+", twice", machine.Close)
			m.fails(state, machine.Step, pulsecol.ErrClosed)
			if state == "closed" {
				return
			}
			m.works(state+", another machine", func() error {
				other, err := pulsecol.NewMachine(b.g, b.ctl)
				if err != nil {
					return err
				}
				return other.Close()
			})
		})
		m.does("a zero machine", func() { new(pulsecol.Machine).Close() })
	},
	"pulsecol.Machine.Controller": func(m *misuse) {
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			m.is(state, func() any { return machine.Controller() == b.ctl }, true)
		})
		m.is("a zero machine", func() any { return new(pulsecol.Machine).Controller() == nil }, true)
	},
	"pulsecol.Machine.Load": func(m *misuse) {
		after(m, func(state string, b *bench, machine *pulsecol.Machine) {
			load := func() error { return machine.Load(m.Context(), nil) }
			if state == "machine closed" {
				m.fails(state, load, pulsecol.ErrClosed)
			} else {
				m.works(state, load)
				m.does(state+", nil context", func() { machine.Load(nil, func(done, total int64) {}) })
			}
		})
		m.does("a zero machine", func() { new(pulsecol.Machine).Load(m.Context(), nil) })
	},
	"pulsecol.NewMachine": func(m *misuse) {
		b := m.layer(sparse())
		m.fails("no graph", func() error { return second(pulsecol.NewMachine(nil, b.ctl)) })
		m.fails("no controller", func() error { return second(pulsecol.NewMachine(b.g, nil)) })
		m.fails("neither", func() error { return second(pulsecol.NewMachine(nil, nil)) })
		m.fails("an empty graph", func() error { return second(pulsecol.NewMachine(gorgonia.NewGraph(), b.ctl)) })
		m.fails("a zero graph", func() error { return second(pulsecol.NewMachine(new(gorgonia.ExprGraph), b.ctl)) })
		other := must(pulsecol.NewController(sparse()))(m)
		m.fails("another controller", func() error { return second(pulsecol.NewMachine(b.g, other)) }, pulsecol.ErrOwner)
		m.fails("a zero controller", func() error { return second(pulsecol.NewMachine(b.g, new(pulsecol.Controller))) })
		m.fails("another graph", func() error { return second(pulsecol.NewMachine(m.inputs().g, b.ctl)) })
		machine := m.machine(b)
		m.fails("a second machine", func() error { return second(pulsecol.NewMachine(b.g, b.ctl)) }, pulsecol.ErrAttached)
		m.works("close", machine.Close)
		m.fails("a nil option", func() error { return second(pulsecol.NewMachine(b.g, b.ctl, nil)) })
		m.works("the machine after it", m.machine(b).Close)
		unnamed := m.inputs()
		gorgonia.NewTensor(unnamed.g, b.q.Dtype(), 1, gorgonia.WithShape(1))
		m.fails("an input without a name", func() error { return second(pulsecol.NewMachine(unnamed.g, other)) }, op.ErrGraph)
		// Inputs without a value, values of another type or size.
		for name, value := range map[string]any{"size": make([]float32, 1), "type": make([]float64, 32), "huge": math.MaxInt} {
			b := m.layer(sparse())
			machine := m.machine(b)
			m.works("start", func() error { return b.ctl.Start(1) })
			switch x := value.(type) {
			case []float32:
				m.does(name, func() { _ = gorgonia.Let(b.k, newTensor(x, 1)) })
			case []float64:
				m.does(name, func() { _ = gorgonia.Let(b.k, input(b.g, "wrong", x, 1, 2, 4, 4).Value()) })
			case int:
				m.does(name, func() { _ = gorgonia.Let(b.k, x) })
			}
			if b.k.Value() != nil && b.k.Value().Shape().TotalSize() != 32 {
				m.fails("a value of another "+name, machine.Step)
			}
			m.works("close", machine.Close)
		}
	},
	"pulsecol.Attach": func(m *misuse) {
		b := m.layer(sparse())
		vm := gorgonia.NewTapeMachine(b.g)
		m.fails("no machine", func() error { return second(pulsecol.Attach(nil, b.ctl)) })
		m.fails("no controller", func() error { return second(pulsecol.Attach(vm, nil)) })
		m.fails("another controller", func() error {
			return second(pulsecol.Attach(vm, must(pulsecol.NewController(sparse()))(m)))
		}, pulsecol.ErrOwner)
		machine := must(pulsecol.Attach(vm, b.ctl))(m)
		m.fails("a second machine", func() error { return second(pulsecol.Attach(vm, b.ctl)) }, pulsecol.ErrAttached)
		m.fails("a Machine", func() error { return second(pulsecol.Attach(machine, b.ctl)) }, pulsecol.ErrAttached)
		m.fails("not started", machine.Step, pulsecol.ErrNotStarted)
		m.works("close", machine.Close)
		m.fails("closed", machine.Step, pulsecol.ErrClosed)
		// Operators of a layer outside their machine.
		m.does("a machine of its own", func() {
			v := gorgonia.NewTapeMachine(b.g)
			defer v.Close()
			m.fails("a bare machine", v.RunAll)
		})
		// A Lisp machine runs once.
		b = m.layer(sparse())
		m.works("start", func() error { return b.ctl.Start(2) })
		machine = must(pulsecol.Attach(gorgonia.NewLispMachine(b.g, gorgonia.ExecuteFwdOnly()), b.ctl))(m)
		m.works("a Lisp machine", machine.Step)
		m.fails("a second step", machine.Step, pulsecol.ErrRanOnce)
		m.works("close", machine.Close)
		m.does("nil machines of a type", func() { pulsecol.Attach((*pulsecol.Machine)(nil), b.ctl) })
	},
})
