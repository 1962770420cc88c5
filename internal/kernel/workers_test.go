package kernel

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// census counts tasks, and how many of them run at once.
type census struct{ now, most, ran *atomic.Int64 }

func (c *census) run(*scratch, int) {
	n := c.now.Add(1)
	for old := c.most.Load(); n > old && !c.most.CompareAndSwap(old, n); old = c.most.Load() {
	}
	time.Sleep(time.Millisecond) // so that all workers run
	c.now.Add(-1)
	c.ran.Add(1)
}

// TestWorkers: at most as many tasks run at once as the team has workers, and every task runs
// once.
func TestWorkers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, c := range []struct{ workers, want int }{{0, 4}, {1, 1}, {3, 3}, {9, 9}} {
		var now, most, ran atomic.Int64
		run(&Team{Workers: c.workers}, new(census), 40, census{&now, &most, &ran})
		if int(most.Load()) != c.want || ran.Load() != 40 {
			t.Errorf("%d workers: %d tasks, %d at once; want 40, %d at once", c.workers, ran.Load(), most.Load(), c.want)
		}
	}
}
