package kernelbench

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// linearCase repeats a few rows of weights: no speed depends on what they are.
func linearCase(rows, in, out int, t kernel.DType, p kernel.Precision) benchCase {
	row := Row{Op: "linear", DType: t.String(), Precision: p.String(), Rows: rows, In: in, Out: out}
	const different = 64
	prepare := func() func() {
		team := new(kernel.Team) // of GOMAXPROCS workers
		r := rand.New(rand.NewPCG(1, 2))
		x, y := normal(r, rows*in), make([]float32, rows*out)
		some := encode(normal(r, min(different, out)*in), t)
		data := make([]byte, 0, out*t.Bytes(in))
		for len(data) < cap(data) {
			data = append(data, some[:min(len(some), cap(data)-len(data))]...)
		}
		w := kernel.Matrix{Rows: out, Cols: in, DType: t, Data: data, Precision: p}
		return func() { team.Linear(y, x, rows, &w, nil) }
	}
	return benchCase{row, p, 2 * float64(rows) * float64(in) * float64(out), float64(out * t.Bytes(in)), prepare}
}

// readWords is larger than the caches that processors share: 256 MiB.
const readWords = 1 << 25

var toRead = sync.OnceValue(func() []uint64 {
	words := make([]uint64, readWords)
	for i := range words {
		words[i] = uint64(i) // memory of its own
	}
	return words
})

// readSpeed is what GOMAXPROCS threads read from memory, in GB/s: the best of three passes.
func readSpeed() (best float64) {
	words, workers := toRead(), runtime.GOMAXPROCS(0)
	for range 3 {
		var total atomic.Uint64
		var wg sync.WaitGroup
		start := time.Now()
		for i := range workers {
			wg.Go(func() { total.Add(sum(words[i*readWords/workers : (i+1)*readWords/workers])) })
		}
		wg.Wait()
		best = max(best, 8*readWords/float64(time.Since(start).Nanoseconds()))
		runtime.KeepAlive(total.Load())
	}
	return best
}

// sum adds in eight chains, which wait for memory and not for one another.
func sum(words []uint64) uint64 {
	var s [8]uint64
	for ; len(words) >= 8; words = words[8:] {
		s[0] += words[0]
		s[1] += words[1]
		s[2] += words[2]
		s[3] += words[3]
		s[4] += words[4]
		s[5] += words[5]
		s[6] += words[6]
		s[7] += words[7]
	}
	return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7]
}
