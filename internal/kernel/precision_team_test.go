package kernel_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// TestPrecisionWorkerCount is TestWorkerCount with rounded products.
func TestPrecisionWorkerCount(t *testing.T) {
	a := operands(attncase.Rand(9), kernel.Shape{Batch: 1, Heads: 4, KVHeads: 2, Len: 301, HeadDim: 18})
	const group = 32
	groups := 4 * kernel.Groups(a.Len, group)
	w := newMatrix(t, 300, 63, kernel.BF16, attncase.Normal(attncase.Rand(10), 300*63, 1))
	x := attncase.Normal(attncase.Rand(11), 200*63, 1)
	table := &kernel.Table{Bits: make([]uint32, groups*kernel.Words(a.Len)), Group: group, Reach: -1}
	team.TopKRows(table.Bits, attncase.Normal(attncase.Rand(12), groups*a.Len, 1), groups, a.Len, 61, nil)
	run := func(team *kernel.Team) map[string][]float32 {
		out, sparse, scores := make([]float32, len(a.Q)), make([]float32, len(a.Q)), make([]float32, groups*a.Len)
		y := make([]float32, 200*300)
		team.DenseScores(out, scores, a, group)
		team.ColumnSparse(sparse, nil, a, table)
		team.Linear(y, x, 200, &w, nil)
		gated := make([]float32, 200*300)
		team.SwiGLU(gated, x, 200, kernel.Projection{Weight: w}, kernel.Projection{Weight: w, Bias: y[:300]})
		return map[string][]float32{"dense": out, "scores": scores, "sparse": sparse, "linear": y, "swiglu": gated}
	}
	eachPrecision(t, func(t *testing.T, p kernel.Precision) {
		a.Precision, w.Precision = p, p
		kernel.ForEachISA(t, func(t *testing.T) {
			want := run(&kernel.Team{Workers: 1})
			for _, workers := range []int{2, 7} {
				for name, x := range run(&kernel.Team{Workers: workers}) {
					tol.SameBits(t, name, x, want[name])
				}
			}
		})
	})
}

// TestPrecisionTeamsAtOnce runs more goroutines than processors, often interrupted, so that
// they change threads between routines. Some instruction sets configure a thread's registers.
func TestPrecisionTeamsAtOnce(t *testing.T) {
	eachPrecision(t, func(t *testing.T, p kernel.Precision) {
		kernel.ForEachISA(t, func(t *testing.T) {
			newStep := func() *step {
				s := newStep(t, 150)
				s.a.Precision, s.w.Precision, s.parts[0].Weight.Precision, s.parts[1].Weight.Precision = p, p, p, p
				return s
			}
			want := newStep()
			want.run(&kernel.Team{Workers: 1})
			var wg sync.WaitGroup
			steps := make([]*step, 4*runtime.GOMAXPROCS(0))
			for i := range steps {
				steps[i] = newStep()
				wg.Go(func() {
					for range 2 {
						steps[i].run(&kernel.Team{Workers: 1 + i%3})
						runtime.GC()
					}
				})
			}
			wg.Wait()
			for _, s := range steps {
				tol.SameBits(t, "out", s.out, want.out)
				tol.SameBits(t, "y2", s.y2, want.y2)
			}
		})
	})
}

// TestPrecisionAllocations is TestNoAllocations with rounded products.
func TestPrecisionAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they hold")
	}
	eachPrecision(t, func(t *testing.T, p kernel.Precision) {
		s := newStep(t, 200)
		s.a.Precision, s.w.Precision, s.parts[0].Weight.Precision, s.parts[1].Weight.Precision = p, p, p, p
		team, least := &kernel.Team{Workers: 2}, 1.0
		for try := 0; try < 20 && least > 0; try++ {
			least = min(least, testing.AllocsPerRun(1, func() { s.run(team) }))
		}
		if least > 0 {
			t.Error("a step always allocates")
		}
	})
}

// BenchmarkPrecision compares the speed of rounded products with that of float32
// products, run by turns: x-float32 is how many times as fast they are.
func BenchmarkPrecision(b *testing.B) {
	kernel.EachISABench(b, func(b *testing.B) {
		if kernel.Features() == "portable" {
			b.Skip("nothing to gain")
		}
		for _, p := range []kernel.Precision{kernel.BFloat16, kernel.Int16} {
			for _, dim := range []int{64, 128} {
				shape := kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 4096, HeadDim: dim}
				b.Run(fmt.Sprintf("%v/dense/d=%d", p, dim), func(b *testing.B) {
					a := operands(attncase.Rand(1), shape)
					out := make([]float32, len(a.Q))
					byTurns(b, p, func(p kernel.Precision) {
						a.Precision = p
						team.Dense(out, nil, a)
					})
				})
			}
			b.Run(fmt.Sprintf("%v/linear", p), func(b *testing.B) {
				const n = 1024
				x, y := attncase.Normal(attncase.Rand(1), n*n, 1), make([]float32, n*n)
				w := newMatrix(b, n, n, kernel.BF16, attncase.Normal(attncase.Rand(2), n*n, 1))
				byTurns(b, p, func(p kernel.Precision) {
					w.Precision = p
					team.Linear(y, x, n, &w, nil)
				})
			})
		}
	})
}

func byTurns(b *testing.B, p kernel.Precision, f func(kernel.Precision)) {
	var taken [2][]time.Duration
	for b.Loop() {
		for i, p := range []kernel.Precision{kernel.Float32, p} {
			start := time.Now()
			f(p)
			taken[i] = append(taken[i], time.Since(start))
		}
	}
	for _, t := range taken {
		slices.Sort(t)
	}
	b.ReportMetric(float64(taken[0][len(taken[0])/2])/float64(taken[1][len(taken[1])/2]), "x-float32")
}
