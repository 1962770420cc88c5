package kernel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// threadLimit bounds the goroutines of a call; 0 is no bound.
var threadLimit atomic.Int64

// LimitThreads has each call use at most n goroutines, 0 for no limit: a program
// that makes many calls at once gains nothing from more.
func LimitThreads(n int) { threadLimit.Store(int64(n)) }

// threads is the number of goroutines of a call.
func threads() int {
	n := runtime.GOMAXPROCS(0)
	if limit := int(threadLimit.Load()); limit > 0 {
		n = min(n, limit)
	}
	return n
}

// parallel runs f for every task in [0, tasks) on at most threads() goroutines, each
// with scratch of its own. Tasks must write disjoint results. A panic in f is
// raised again in the caller's goroutine, where it can be recovered.
func parallel(tasks int, f func(w *scratch, task int)) {
	workers := min(threads(), tasks)
	if workers <= 1 {
		w := getScratch()
		for i := range tasks {
			f(w, i)
		}
		putScratch(w)
		return
	}
	var next atomic.Int64
	var failure atomic.Pointer[any]
	work := func() {
		defer func() {
			if r := recover(); r != nil {
				failure.CompareAndSwap(nil, &r)
			}
		}()
		w := getScratch()
		for failure.Load() == nil {
			i := int(next.Add(1)) - 1
			if i >= tasks {
				putScratch(w)
				return
			}
			f(w, i)
		}
	}
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if r := failure.Load(); r != nil {
		panic(*r)
	}
}

// parallelRange splits [0, n) into spans of grain elements and runs f on them.
func parallelRange(n, grain int, f func(lo, hi int)) {
	parallel((n+grain-1)/grain, func(_ *scratch, i int) {
		f(i*grain, min(n, (i+1)*grain))
	})
}

// elementGrain is the span of an element-wise operation: long enough to hide
// the cost of a task, short enough to spread over many cores.
const elementGrain = 1 << 14

// scratch is the working memory of one goroutine. Its slices grow to the
// largest size asked for and are kept in a pool between calls.
type scratch struct {
	panels  [tilePanels]panel
	factors [lanes]float32 // one number per lane of a panel
	v       []float32      // padded rows of a key block, [blockKeys, D padded]
	nextK   ahead          // keys and values that follow
	nextV   ahead
	s       []float32  // scores of a key block, [blockKeys, lanes]
	kept    []float32  // exponentials of all key blocks, [panels, keys padded, lanes]
	maxima  []float32  // running maximum after each key block, [panels, blocks, lanes]
	column  []float32  // one number per key of a block
	index   [2][]int32 // keys of a query group and of the next one
	order   []uint32   // sort keys of a row of scores
	ties    []uint32   // sort keys that agree in their leading digits
	chosen  []uint32   // bitmap of blocks of keys
	weights []float32  // packed weights, or rows packed for a gradient
	product []float32  // a product that does not fit its destination
	grad    []float32  // derivatives of scores, [keys padded, lanes]
}

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

func getScratch() *scratch  { return scratchPool.Get().(*scratch) }
func putScratch(w *scratch) { scratchPool.Put(w) }

// sized returns *buf with length n, reallocated if it is too small. The
// contents are unspecified.
func sized[T any](buf *[]T, n int) []T {
	if cap(*buf) < n {
		*buf = make([]T, n)
	}
	return (*buf)[:n]
}

// roundUp is the smallest multiple of unit that is at least n.
func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }
