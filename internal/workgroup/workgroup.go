// Package workgroup runs functions on goroutines whose panics reach the caller. A panic
// that leaves a goroutine ends the process; one in the caller's goroutine can be recovered.
package workgroup

import (
	"sync"
	"sync/atomic"
)

// Group is a sync.WaitGroup that hands over panics. The zero value is ready for use.
type Group struct {
	wg      sync.WaitGroup
	failure atomic.Pointer[any] // the first panic
}

// Go calls f on a goroutine of its own.
func (g *Group) Go(f func()) {
	g.wg.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				g.failure.CompareAndSwap(nil, &r)
			}
		}()
		f()
	})
}

// Wait waits until all functions have returned, and panics with what the first panic of
// one of them was about.
func (g *Group) Wait() {
	g.wg.Wait()
	if r := g.failure.Load(); r != nil {
		panic(*r)
	}
}
