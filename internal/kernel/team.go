package kernel

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Team runs kernels, which are its methods: it has the number of goroutines of a call,
// the signal that stops a call, and the memory that calls reuse. The zero value is
// ready for use.
//
// A team runs one call at a time; a second one at the same time panics. Several
// teams may run at once and share nothing but the processors. A team holds no
// goroutine between calls.
type Team struct {
	// Workers is the largest number of goroutines that compute a call, including the
	// caller's. 0 means GOMAXPROCS. Results do not depend on it.
	Workers int

	// Done, once closed, makes a call in progress return before its next block of
	// work, which takes a fraction of a millisecond, and later calls at once. The
	// results of both are unspecified. nil means never.
	Done <-chan struct{}

	busy    atomic.Bool
	job     job
	tasks   int
	next    atomic.Int64        // task
	failure atomic.Pointer[any] // first panic
	helpers sync.WaitGroup
	help    func() // t.helper, made once

	// Arguments of the call in progress, by kernel.
	add          addJob
	blocks       blocksJob
	blockTopK    blockTopKJob
	columnSparse columnSparseJob
	crossEntropy crossEntropyJob
	dense        denseJob
	embed        embedJob
	gate         gateJob
	grad         gradJob
	heads        headsJob
	headsGrad    headsGradJob
	keptMass     keptMassJob
	linear       linearJob
	matMul       matMulJob
	rmsNorm      rmsNormJob
	rmsNormGrad  rmsNormGradJob
	rope         ropeJob
	scores       scoresJob
	sparseD      sparseDJob
	swiGLU       swiGLUJob
	tiles        tilesJob
	topK         topKJob

	keys      keyLists
	inputs    []float32 // of a linear layer, see packedInputs
	rotations rotations // of the latest RoPE
}

// Stopped reports whether Done is closed.
func (t *Team) Stopped() bool {
	select {
	case <-t.Done:
		return true
	default:
		return false
	}
}

// job is a call in tasks, which may run in any order and at the same time: they
// write disjoint results.
type job interface {
	run(w *scratch, task int)
}

// run runs all tasks of a job. place is where the team keeps jobs of its kind: an
// argument that goroutines share must be on the heap, and this one is already. A
// panic in a task is raised again in the caller's goroutine, where it can be
// recovered.
func run[J any, P interface {
	*J
	job
}](t *Team, place P, tasks int, j J) {
	if !t.busy.CompareAndSwap(false, true) {
		panic("kernel: Team: two calls at the same time")
	}
	*place = j
	defer func() {
		var none J
		*place = none // the team outlives the caller's slices
		t.job = nil
		t.busy.Store(false)
	}()
	t.job, t.tasks = place, tasks
	t.next.Store(0)
	if t.help == nil {
		t.help = t.helper
	}
	for range min(t.workers(), tasks) - 1 {
		t.helpers.Add(1)
		go t.help() // a goroutine of a ready function value allocates nothing
	}
	t.work()
	t.helpers.Wait()
	if r := t.failure.Swap(nil); r != nil {
		panic(*r)
	}
}

func (t *Team) workers() int {
	if t.Workers > 0 {
		return t.Workers
	}
	return runtime.GOMAXPROCS(0)
}

func (t *Team) helper() {
	defer t.helpers.Done()
	t.work()
}

// work runs tasks until none is left. Weights may be in mapped files: if one cannot
// be read, the task panics with a runtime.Error that has Addr.
func (t *Team) work() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			first := r // on the heap, unlike r where there is no panic
			t.failure.CompareAndSwap(nil, &first)
		}
	}()
	w := scratchPool.Get().(*scratch)
	w.team = t
	for t.failure.Load() == nil && !t.Stopped() {
		task := int(t.next.Add(1)) - 1
		if task >= t.tasks {
			break
		}
		t.job.run(w, task)
	}
	w.team = nil
	scratchPool.Put(w)
}

// spans splits [0, n) into tasks of grain elements.
type spans struct{ n, grain int }

func (s spans) tasks() int { return (s.n + s.grain - 1) / s.grain }

func (s spans) bounds(task int) (lo, hi int) {
	return task * s.grain, min(s.n, (task+1)*s.grain)
}

// elementGrain is the number of elements of a task of an element-wise operation:
// enough to amortise the cost of a task, few enough to spread over many cores.
const elementGrain = 1 << 14

// rowSpans splits rows of width elements.
func rowSpans(rows, width int) spans { return spans{rows, max(1, elementGrain/width)} }

// scratch is the working memory of one goroutine. Its slices grow to the
// largest size asked for and are kept in a pool between calls.
type scratch struct {
	team    *Team // of the call
	panels  [mostPanels]panel
	factors [lanes]float32     // one number per lane of a panel
	rest    [2 * lanes]float32 // what does not fill a unit, of two operands
	k, v    []float32          // keys and values of a block, or inputs and weights, rounded or padded
	p       []float32          // exponentials of a block, packed

	keyUnits, valueUnits   []float32 // of integers
	codePanels, codeScales []float32 // of quantized weights: panels, and what rows have before they are in one

	nextK   prefetch // keys and values that follow
	nextV   prefetch
	s       []float32  // scores of a key block, [tile.blockKeys, lanes]
	kept    []float32  // exponentials of all key blocks, [panels, keys padded, lanes]
	maxima  []float32  // running maximum after each key block, [panels, blocks, lanes]
	column  []float32  // one number per key of a block
	scales  []float32  // the scale of a query, for each of its features
	rows    []int32    // 0, 1, 2, ...
	index   [2][]int32 // keys of a query group and of the next one
	order   []uint32   // sort keys of a row of scores
	ties    []uint32   // sort keys that agree in their leading digits
	blocks  []uint32   // bitmap of selected blocks of keys
	weights []float32  // packed weights, or rows packed for a gradient
	codes   []byte     // codes of quantized rows
	product []float32  // a product that does not fit its destination
	grad    []float32  // derivatives of scores, [keys padded, lanes]
	up      []float32  // the second of two products of a task
}

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

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
