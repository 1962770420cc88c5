package kernel_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// peak measures the speed of the processors on registers alone, in GFLOP/s, which no routine
// of the isa in use can exceed. The clock of many machines changes within seconds, so it is
// measured with every benchmark.
func peak() float64 {
	const rounds = 1 << 14
	best := 0.0
	for range 10 {
		start := time.Now()
		flops := make(chan int)
		workers := runtime.GOMAXPROCS(0)
		for range workers {
			go func() {
				total := 0
				for range 64 {
					total += kernel.PeakFMA(rounds)
				}
				flops <- total
			}()
		}
		total := 0
		for range workers {
			total += <-flops
		}
		best = max(best, float64(total)/float64(time.Since(start).Nanoseconds()))
	}
	return best
}

// measure runs f and reports the speed of its fastest run, given its number of
// floating-point operations, with the peak measured just before and after. Other programs
// disturb the fastest run least.
func measure(b *testing.B, flops float64, f func()) {
	before := peak()
	fastest := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		f()
		fastest = min(fastest, time.Since(start))
	}
	speed := flops / float64(fastest.Nanoseconds())
	best := max(before, peak())
	b.ReportMetric(speed, "GFLOP/s")
	b.ReportMetric(best, "peak-GFLOP/s")
	b.ReportMetric(100*speed/best, "%peak")
}

// eachSize runs a benchmark over instruction sets and shapes of attention.
func eachSize(b *testing.B, f func(b *testing.B, a *kernel.Operands)) {
	kernel.EachISABench(b, func(b *testing.B) {
		for _, s := range []kernel.Shape{
			{Batch: 1, Heads: 8, KVHeads: 8, Len: 1024, HeadDim: 64},
			{Batch: 1, Heads: 8, KVHeads: 8, Len: 1024, HeadDim: 128},
			{Batch: 1, Heads: 8, KVHeads: 8, Len: 4096, HeadDim: 64},
			{Batch: 1, Heads: 8, KVHeads: 8, Len: 4096, HeadDim: 128},
		} {
			if kernel.Features() == "portable" && s.Len > 1024 {
				continue
			}
			b.Run(fmt.Sprintf("n=%d/d=%d", s.Len, s.HeadDim), func(b *testing.B) {
				f(b, operands(attncase.Rand(1), s))
			})
		}
	})
}

func attentionFlops(a *kernel.Operands) float64 {
	return 4 * float64(a.Batch*a.Heads) * float64(a.Len) * float64(a.Len) * float64(a.HeadDim)
}

func BenchmarkDense(b *testing.B) {
	eachSize(b, func(b *testing.B, a *kernel.Operands) {
		out := make([]float32, len(a.Q))
		measure(b, attentionFlops(a), func() { team.Dense(out, nil, a) })
	})
}

func BenchmarkDenseScores(b *testing.B) {
	eachSize(b, func(b *testing.B, a *kernel.Operands) {
		out := make([]float32, len(a.Q))
		scores := make([]float32, a.Heads*kernel.Groups(a.Len, 32)*a.Len)
		measure(b, attentionFlops(a), func() { team.DenseScores(out, scores, a, 32) })
	})
}

func BenchmarkColumnSparse(b *testing.B) {
	for _, sparsity := range []int{80, 90} {
		for _, group := range []int{32, 128} {
			b.Run(fmt.Sprintf("sparsity=%d/group=%d", sparsity, group), func(b *testing.B) {
				eachSize(b, func(b *testing.B, a *kernel.Operands) {
					groups, words := kernel.Groups(a.Len, group), kernel.Words(a.Len)
					keep := a.Len * (100 - sparsity) / 100
					table := &kernel.Table{Bits: make([]uint32, a.Heads*groups*words), Group: group, Reach: -1}
					random := attncase.Normal(attncase.Rand(2), a.Heads*groups*a.Len, 1)
					team.TopKRows(table.Bits, random, a.Heads*groups, a.Len, keep, nil)
					out := make([]float32, len(a.Q))
					measure(b, attentionFlops(a)*float64(keep)/float64(a.Len), func() { team.ColumnSparse(out, nil, a, table) })
				})
			})
		}
	}
}

func BenchmarkLinear(b *testing.B) {
	kernel.EachISABench(b, func(b *testing.B) {
		for _, s := range []struct{ rows, in, out int }{
			{2048, 256, 1024}, {1024, 1024, 1024}, {128, 4096, 4096}, {32, 4096, 4096},
		} {
			for _, t := range []kernel.DType{kernel.F32, kernel.BF16} {
				b.Run(fmt.Sprintf("%dx%dx%d/%v", s.rows, s.in, s.out, t), func(b *testing.B) {
					r := attncase.Rand(1)
					w := newMatrix(b, s.out, s.in, t, attncase.Normal(r, s.out*s.in, 1))
					x, y := attncase.Normal(r, s.rows*s.in, 1), make([]float32, s.rows*s.out)
					measure(b, 2*float64(s.rows)*float64(s.in)*float64(s.out), func() { team.Linear(y, x, s.rows, &w, nil) })
				})
			}
		}
	})
}

// BenchmarkSwiGLU counts the operations of its two products.
func BenchmarkSwiGLU(b *testing.B) {
	kernel.EachISABench(b, func(b *testing.B) {
		const rows, in, out = 1024, 512, 1536
		r := attncase.Rand(1)
		gate := kernel.Projection{Weight: newMatrix(b, out, in, kernel.F32, attncase.Normal(r, out*in, 1))}
		up := kernel.Projection{Weight: newMatrix(b, out, in, kernel.F32, attncase.Normal(r, out*in, 1))}
		x, y := attncase.Normal(r, rows*in, 1), make([]float32, rows*out)
		measure(b, 2*2*rows*in*out, func() { team.SwiGLU(y, x, rows, gate, up) })
	})
}

func BenchmarkTopKRows(b *testing.B) {
	const rows, n = 256, 4096
	scores := attncase.Normal(attncase.Rand(1), rows*n, 1)
	bits := make([]uint32, rows*kernel.Words(n))
	for b.Loop() {
		team.TopKRows(bits, scores, rows, n, n/5, nil)
	}
	b.ReportMetric(float64(rows*n*b.N)/float64(b.Elapsed().Nanoseconds()), "Gscores/s")
}

// BenchmarkLayers measures the layers between the products, at the size of one position block
// of an 8B model.
func BenchmarkLayers(b *testing.B) {
	const n, heads, dim = 512, 32, 128
	x := attncase.Normal(attncase.Rand(1), n*heads*dim, 1)
	y := make([]float32, len(x))
	weight := attncase.Normal(attncase.Rand(4), heads*dim, 1)
	pos := make([]int32, n)
	for i := range pos {
		pos[i] = int32(i)
	}
	for _, c := range []struct {
		name string
		size int
		call func()
	}{
		{"RMSNorm", len(x), func() { team.RMSNorm(y, x, weight, 1e-5) }},
		{"RoPE", len(x), func() { team.RoPE(y, x, pos, 1, n, kernel.Heads{Count: heads, Dim: dim}, 5e5) }},
		{"MergeHeads", len(x), func() { team.MergeHeads(y, x, 1, n, heads, dim) }},
		{"Add", len(x), func() { team.Add(y, y, x) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			kernel.EachISABench(b, func(b *testing.B) {
				for b.Loop() {
					c.call()
				}
				b.ReportMetric(float64(c.size*b.N)/float64(b.Elapsed().Nanoseconds()), "Gelements/s")
			})
		})
	}
}

// newMatrix encodes values as a weight matrix.
func newMatrix(t testing.TB, rows, cols int, d kernel.DType, values []float32) kernel.Matrix {
	var data []byte
	switch d {
	case kernel.F32:
		data = make([]byte, 4*len(values))
		for i, f := range values {
			putFloat32(data[4*i:], f)
		}
	case kernel.BF16:
		data = make([]byte, 2*len(values))
		bf16.Encode(data, values)
	case kernel.F16:
		data = make([]byte, 2*len(values))
		bf16.EncodeHalf(data, values)
	}
	m, err := kernel.NewMatrix(rows, cols, d, data)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
