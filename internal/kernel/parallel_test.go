package kernel

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestLimitThreads: never more tasks at once than the limit or GOMAXPROCS, and every
// task once.
func TestLimitThreads(t *testing.T) {
	defer LimitThreads(0)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, c := range []struct{ limit, want int }{{0, 4}, {1, 1}, {3, 3}, {9, 4}} {
		LimitThreads(c.limit)
		var now, most, ran atomic.Int64
		parallel(40, func(*scratch, int) {
			n := now.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(time.Millisecond) // so that all workers are at it
			now.Add(-1)
			ran.Add(1)
		})
		if int(most.Load()) != c.want || ran.Load() != 40 {
			t.Errorf("limit %d: %d tasks, %d at once; want 40, %d at once", c.limit, ran.Load(), most.Load(), c.want)
		}
	}
}
