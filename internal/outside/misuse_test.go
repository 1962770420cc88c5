package outside_test

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// misuse makes calls that are wrong in some way.
type misuse struct {
	*testing.T
	calls int
}

// longest is the length of a message that still holds no dump of parameters.
const longest = 300

// call runs f and reports a panic, and a run that does not end.
func (m *misuse) call(what string, f func() error) (err error) {
	m.Helper()
	m.calls++
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("%w: %v, in %s", errPanic, r, place(debug.Stack()))
			}
		}()
		done <- f()
	}()
	select {
	case err = <-done:
	case <-time.After(10 * time.Second):
		m.Fatalf("%s: does not return", what)
	}
	if errors.Is(err, errPanic) {
		m.Errorf("%s: %v", what, err)
		return errPanic
	}
	return err
}

var errPanic = errors.New("panic")

// place is the innermost function of the module on a stack, outside the tests.
func place(stack []byte) string {
	for line := range strings.Lines(string(stack)) {
		if strings.HasPrefix(line, module) && !strings.Contains(line, "outside_test") {
			return strings.TrimSpace(line)
		}
	}
	return "the tests"
}

// fails checks that a call returns an error, which wraps those of is.
func (m *misuse) fails(what string, f func() error, is ...error) {
	m.Helper()
	err := m.call(what, f)
	if err == nil {
		m.Errorf("%s: no error", what)
	}
	if err == nil || err == errPanic {
		return
	}
	for _, want := range is {
		if !errors.Is(err, want) {
			m.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	for s := range strings.Lines(err.Error()) { // a line for each problem
		if len(s) >= longest || strings.Contains(s, "goroutine ") {
			m.Errorf("%s: a message of %d bytes: %s", what, len(s), s)
		}
	}
	if errors.Is(err, op.ErrInternal) {
		m.Errorf("%s: %v", what, err)
	}
}

// works checks that a call returns no error.
func (m *misuse) works(what string, f func() error) {
	m.Helper()
	if err := m.call(what, f); err != nil && err != errPanic {
		m.Errorf("%s: %v", what, err)
	}
}

// does makes a call that returns nothing to look at.
func (m *misuse) does(what string, f func()) {
	m.Helper()
	m.works(what, func() error { f(); return nil })
}

// is checks what a call returns.
func (m *misuse) is(what string, f func() any, want any) {
	m.Helper()
	var got any
	m.does(what, func() { got = f() })
	if got != nil && fmt.Sprint(got) != fmt.Sprint(want) {
		m.Errorf("%s is %v, want %v", what, got, want)
	}
}

// wrong are numbers that no share is.
var wrong = []float64{-1, -math.SmallestNonzeroFloat64, math.NaN(), math.Inf(1), math.Inf(-1)}

// second returns the error of a call with a result.
func second[T any](_ T, err error) error { return err }

// bench is a controller with a layer in a graph.
type bench struct {
	g       *gorgonia.ExprGraph
	q, k, v *gorgonia.Node
	ctl     *pulsecol.Controller
	y       *gorgonia.Node
}

// layer makes a graph with a layer that works: 1 row, 2 heads, 4 tokens, 4 features.
func (m *misuse) layer(cfg pulsecol.Config) *bench {
	m.Helper()
	b := m.inputs()
	b.ctl = must(pulsecol.NewController(cfg))(m)
	b.y = must(pulsecol.Attention(b.q, b.k, b.v, b.ctl.Layer(0)))(m)
	return b
}

func (m *misuse) inputs() *bench {
	b := &bench{g: gorgonia.NewGraph()}
	b.q, b.k, b.v = floatInput(b.g, "q", 1, 2, 4, 4), floatInput(b.g, "k", 1, 2, 4, 4), floatInput(b.g, "v", 1, 2, 4, 4)
	return b
}

func (m *misuse) machine(b *bench) *pulsecol.Machine {
	m.Helper()
	return must(pulsecol.NewMachine(b.g, b.ctl))(m)
}

func sparse() pulsecol.Config {
	return pulsecol.Config{Sparsity: 0.5, GroupSize: 2, Schedule: pulsecol.Uniform{Eta: 0.01}}
}

// floatInput is an input of ones.
func floatInput(g *gorgonia.ExprGraph, name string, shape ...int) *gorgonia.Node {
	x := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range x {
		x[i] = 1
	}
	return input(g, name, x, shape...)
}

func intInput(g *gorgonia.ExprGraph, name string, shape ...int) *gorgonia.Node {
	return input(g, name, make([]int32, tensor.Shape(shape).TotalSize()), shape...)
}

// nodes are what an operator may get in place of an input of the given shape: nothing, a
// number, another type, rank or size, a statement, a node of another graph, one that is
// in no graph.
func nodes(g *gorgonia.ExprGraph, like *gorgonia.Node) map[string]*gorgonia.Node {
	s := like.Shape()
	larger := s.Clone()
	larger[len(larger)-1]++
	zero := new(gorgonia.Node)
	of := map[string]*gorgonia.Node{
		"nil":           nil,
		"a zero Node":   zero,
		"a scalar":      gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("scalar"), gorgonia.WithValue(float32(1))),
		"float64":       input(g, "float64", make([]float64, s.TotalSize()), s...),
		"another rank":  floatInput(g, "rank", append([]int{1}, s...)...),
		"another size":  floatInput(g, "size", larger...),
		"a statement":   gorgonia.Read(floatInput(g, "read", 1, 1), new(gorgonia.Value)),
		"another graph": floatInput(gorgonia.NewGraph(), "other", s...),
		"a vector":      floatInput(g, "vector", 3),
		"bool":          input(g, "bool", make([]bool, s.TotalSize()), s...),
	}
	if like.Dtype() == tensor.Float32 {
		of["int32"] = intInput(g, "int32", s...)
	} else {
		of["float32"] = floatInput(g, "float32", s...)
		delete(of, "another size") // is of another type too
	}
	return of
}
