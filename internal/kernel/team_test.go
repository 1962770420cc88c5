package kernel_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// team is the team of tests that do not test teams.
var team kernel.Team

// step is one call of every kernel, on memory of its own.
type step struct {
	a             *kernel.Operands
	table         *kernel.Table
	ids, pos      []int32
	w             kernel.Matrix
	bias, weight  []float32
	out, lse      []float32
	scores        []float32
	y, dq, dk, dv []float32
	parts         []kernel.Projection
	y2            []float32
}

const stepGroup = 32

func newStep(t testing.TB, n int) *step {
	const features = 64
	r := attncase.Rand(11)
	a := operands(r, kernel.Shape{Batch: 1, Heads: 4, KVHeads: 2, Len: n, HeadDim: features / 4})
	groups := 4 * kernel.Groups(n, stepGroup)
	s := &step{
		a:     a,
		table: &kernel.Table{Bits: make([]uint32, groups*kernel.Words(n)), Group: stepGroup, Reach: -1},
		ids:   make([]int32, n), pos: make([]int32, n),
		w:    newMatrix(t, features, features, kernel.BF16, attncase.Normal(r, features*features, 1)),
		bias: attncase.Normal(r, features, 1), weight: attncase.Normal(r, features, 1),
		out: make([]float32, len(a.Q)), lse: make([]float32, 4*n), scores: make([]float32, groups*n),
		y: make([]float32, n*features), dq: make([]float32, len(a.Q)), dk: make([]float32, len(a.K)), dv: make([]float32, len(a.K)),
	}
	for i := range s.pos {
		s.pos[i] = int32(i)
	}
	s.parts, s.y2 = []kernel.Projection{{Weight: s.w, Bias: s.bias}, {Weight: s.w}}, make([]float32, 2*n*features)
	return s
}

func (s *step) run(team *kernel.Team) {
	n := s.a.Len
	rows := len(s.scores) / n
	team.Embed(s.y, s.ids, &s.w)
	team.RMSNorm(s.y, s.y, s.weight, 1e-5)
	team.Linear(s.out, s.y, n, &s.w, s.bias)
	team.RoPE(s.y, s.out, s.pos, 1, n, kernel.Heads{Count: 4, Dim: 16}, 1e4)
	team.SplitHeads(s.y, s.out, 1, n, kernel.Heads{Count: 4, Dim: 16})
	team.MergeHeads(s.out, s.y, 1, n, 4, 16)
	team.SwiGLU(s.y, s.out, n, s.parts[0], s.parts[1])
	team.Linears(s.y2, s.y, s.y2, n, s.parts)
	team.Add(s.y, s.y, s.out)
	team.Dense(s.out, s.lse, s.a)
	team.Scores(s.scores, n, s.a, stepGroup, 0)
	team.DenseScores(s.out, s.scores, s.a, stepGroup)
	team.SparseDRows(s.table.Bits[:rows/2*kernel.Words(n)], s.scores, rows/2, n, stepGroup, 0, 2, 2)
	team.BlockTopKRows(s.table.Bits, s.scores, rows, n, stepGroup, 2, nil)
	team.TopKRows(s.table.Bits, s.scores, rows, n, 20, nil)
	team.ColumnSparse(s.out, s.lse, s.a, s.table)
	team.AttentionGrad(s.dq, s.dk, s.dv, s.out, s.a, nil)
	team.AttentionGrad(s.dq, s.dk, s.dv, s.out, s.a, s.table)
}

// TestNoAllocations: calls after the first reuse the team's memory.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they hold")
	}
	s := newStep(t, 200)
	for _, workers := range []int{1, 2, 5} {
		team := &kernel.Team{Workers: workers, Done: make(chan struct{})}
		// A goroutine may run late and find its pool empty once, and a collection
		// of garbage empties pools.
		least := 1.0
		for try := 0; try < 20 && least > 0; try++ {
			least = min(least, testing.AllocsPerRun(1, func() { s.run(team) }))
		}
		if least > 0 {
			t.Errorf("%d workers: a step always allocates", workers)
		}
	}
}

// TestTeamsAtOnce: teams that run at the same time do not affect each other.
func TestTeamsAtOnce(t *testing.T) {
	want := newStep(t, 150)
	want.run(&kernel.Team{Workers: 1})
	var wg sync.WaitGroup
	steps := make([]*step, 6)
	for i := range steps {
		steps[i] = newStep(t, 150)
		wg.Go(func() {
			team := &kernel.Team{Workers: 1 + i%3}
			for range 3 {
				steps[i].run(team)
			}
		})
	}
	wg.Wait()
	for _, s := range steps {
		tol.SameBits(t, "out", s.out, want.out)
		tol.SameBits(t, "dk", s.dk, want.dk)
	}
}

// TestNoGoroutineStays: a team has no goroutines between calls.
func TestNoGoroutineStays(t *testing.T) {
	before := runtime.NumGoroutine()
	newStep(t, 100).run(&kernel.Team{Workers: 8})
	for try := 0; runtime.NumGoroutine() > before; try++ {
		if try == 1000 {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
		time.Sleep(time.Millisecond)
	}
}

// TestPanicReachesCaller checks that the caller can recover a panic of a worker, and that the
// team can be used afterwards.
func TestPanicReachesCaller(t *testing.T) {
	const cols = 1 << 14 // one row is a task
	w := kernel.Matrix{Rows: 2, Cols: cols, Data: make([]byte, 2*cols*4)}
	y := make([]float32, 50*cols)
	for _, workers := range []int{1, 4} {
		team := &kernel.Team{Workers: workers}
		ids := make([]int32, 50)
		ids[20] = 2
		func() {
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, "row is 2") {
					t.Errorf("%d workers: recovered %q", workers, r)
				}
			}()
			team.Embed(y, ids, &w)
		}()
		team.Embed(y, make([]int32, 50), &w)
	}
}

// TestTwoCallsAtOnce: a team that two calls use at once panics.
func TestTwoCallsAtOnce(t *testing.T) {
	team := &kernel.Team{Workers: 1}
	s := newStep(t, 100)
	var got any
	kernel.CountProducts(func(int) {
		defer func() { got = recover() }()
		team.Add(s.out, s.out, s.out)
	}, func() { team.Dense(s.out, nil, s.a) })
	if r, _ := got.(string); !strings.Contains(r, "two calls") {
		t.Errorf("got %v", got)
	}
	team.Add(s.out, s.out, s.out) // one after the other is fine
}

// TestDone: a call that is stopped computes at most a few more blocks, and a call after that
// computes nothing. A later call without a stop gives the usual results.
func TestDone(t *testing.T) {
	s := newStep(t, 320)
	const rows, in, out = 1000, 300, 300
	r := attncase.Rand(12)
	w := newMatrix(t, out, in, kernel.F32, attncase.Normal(r, out*in, 1))
	x := attncase.Normal(r, rows*in, 1)
	for name, call := range map[string]func(team *kernel.Team, y []float32){
		"Dense":         func(team *kernel.Team, y []float32) { team.Dense(y[:len(s.a.Q)], nil, s.a) },
		"DenseScores":   func(team *kernel.Team, y []float32) { team.DenseScores(y[:len(s.a.Q)], s.scores, s.a, stepGroup) },
		"AttentionGrad": func(team *kernel.Team, y []float32) { team.AttentionGrad(y[:len(s.a.Q)], nil, nil, s.a.Q, s.a, nil) },
		"Linear":        func(team *kernel.Team, y []float32) { team.Linear(y, x, rows, &w, nil) },
		"SwiGLU": func(team *kernel.Team, y []float32) {
			team.SwiGLU(y, x, rows, kernel.Projection{Weight: w}, kernel.Projection{Weight: w})
		},
	} {
		for _, workers := range []int{1, 3} {
			want := make([]float32, rows*out)
			whole := kernel.CountProducts(func(int) {}, func() { call(&kernel.Team{Workers: workers}, want) })

			stop := make(chan struct{})
			team := &kernel.Team{Workers: workers, Done: stop}
			y := make([]float32, rows*out)
			at := whole / 4
			count := kernel.CountProducts(func(n int) {
				if n == at {
					close(stop)
				}
			}, func() { call(team, y) })
			// The panels of a block of keys, or of weights, are not interrupted.
			if most := at + 20*workers; count > most || most >= whole {
				t.Errorf("%s, %d workers: %d products of %d, stopped at %d", name, workers, count, whole, at)
			}
			if count := kernel.CountProducts(func(int) {}, func() { call(team, y) }); count != 0 {
				t.Errorf("%s, %d workers: %d products after the end", name, workers, count)
			}

			team.Done = nil
			call(team, y)
			tol.SameBits(t, name, y, want)
		}
	}
}
