package workgroup

import (
	"sync/atomic"
	"testing"
)

// TestWait: all functions run to their end, and a panic of one is the caller's.
func TestWait(t *testing.T) {
	for _, fails := range []bool{false, true} {
		var g Group
		var ran atomic.Int32
		for i := range 20 {
			g.Go(func() {
				ran.Add(1)
				if fails && i%7 == 3 {
					panic("boom")
				}
			})
		}
		got := func() (r any) {
			defer func() { r = recover() }()
			g.Wait()
			return nil
		}()
		if fails && got != "boom" || !fails && got != nil {
			t.Errorf("fails %v: Wait panics with %v", fails, got)
		}
		if n := ran.Load(); n != 20 {
			t.Errorf("fails %v: %d functions ran, want 20", fails, n)
		}
	}
}
