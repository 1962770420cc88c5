//go:build linux

package kernel_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

func cpu() float64 {
	var u syscall.Rusage
	syscall.Getrusage(1, &u) // thread
	return float64(u.Utime.Sec) + float64(u.Utime.Usec)/1e6 + float64(u.Stime.Sec) + float64(u.Stime.Usec)/1e6
}

func tune(name string, flops float64, f func()) {
	runtime.LockOSThread()
	f()
	pk, best := 0.0, math.Inf(1)
	for range 7 {
		s := cpu()
		n := 0
		for range 16 {
			n += kernel.Spin(1 << 19) * (1 << 19)
		}
		pk = max(pk, float64(n)/(cpu()-s)/1e9)
		s = cpu()
		k := 0
		for cpu()-s < 0.05 {
			f()
			k++
		}
		best = min(best, (cpu()-s)/float64(k))
	}
	fmt.Printf("%-40s %8.2f ms %7.1f GFLOP/s peak %6.1f  %5.1f%%\n", name, best*1e3, flops/best/1e9, pk, 100*flops/best/1e9/pk)
}

func TestTune(t *testing.T) {
	if os.Getenv("TUNE") == "" {
		t.Skip()
	}
	runtime.GOMAXPROCS(1)
	for _, lv := range kernel.LevelNames()[:1] {
		kernel.Force(lv)
		for _, n := range []int{1024, 4096} {
			for _, d := range []int{64, 128} {
				a := operands(newRand(1), kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: n, HeadDim: d})
				out := make([]float32, len(a.Q))
				scores := make([]float32, a.Heads*kernel.Groups(a.Len, 32)*a.Len)
				tune(fmt.Sprintf("%s dense %d %d", lv, n, d), attentionFlops(a), func() { kernel.Dense(out, nil, a) })
				tune(fmt.Sprintf("%s densescores %d %d", lv, n, d), attentionFlops(a), func() { kernel.DenseScores(out, scores, a, 32) })
				for _, g := range []int{32, 128} {
					groups, words := kernel.Groups(a.Len, g), kernel.Words(a.Len)
					keep := a.Len / 10
					table := &kernel.Table{Bits: make([]uint32, a.Heads*groups*words), Group: g, Reach: -1}
					random := normal(newRand(2), a.Heads*groups*a.Len, 1)
					kernel.TopKRows(table.Bits, random, a.Heads*groups, a.Len, func(int) int { return keep }, nil)
					tune(fmt.Sprintf("%s sparse90 g%d %d %d", lv, g, n, d), attentionFlops(a)*float64(keep)/float64(a.Len), func() { kernel.ColumnSparse(out, nil, a, table) })
				}
			}
		}
		for _, s := range []struct{ rows, in, out int }{
			{2048, 256, 1024}, {1024, 1024, 1024}, {128, 4096, 4096}, {32, 4096, 4096},
		} {
			for _, ty := range []kernel.DType{kernel.F32, kernel.BF16} {
				r := newRand(1)
				w := newMatrix(t, s.out, s.in, ty, normal(r, s.out*s.in, 1))
				x, y := normal(r, s.rows*s.in, 1), make([]float32, s.rows*s.out)
				tune(fmt.Sprintf("%s linear %v %v", lv, s, ty), 2*float64(s.rows)*float64(s.in)*float64(s.out), func() { kernel.Linear(y, x, s.rows, &w, nil) })
			}
		}
	}
}
