//go:build cuda

package cudaop

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// cuBLASLt's heuristic orders algorithms by the time that it expects them to take. For a
// large product, whose clock the power limit reduces, another of its first eight is often
// the fastest, and which one depends on the GPU and the shape. So the first product
// of a shape tries them, and all that follow in the process use the fastest.

// tryFrom is the number of multiplications from which on a product tries algorithms:
// that of 4,096 tokens and a matrix of 4,096 x 4,096, 0.2 ms on an H200. Tests change
// it.
var tryFrom = int64(1) << 36

// worthTrying reports whether a product tries algorithms. Those of logits, which are
// float32, do not: they are one of a step's hundred and more products.
func worthTrying(p product) bool {
	return p.to == bfloat16Dtype && int64(p.n)*int64(p.in)*int64(p.out) >= tryFrom
}

// tryRounds is how often each algorithm is timed. All trials take a model of 32 blocks one
// and a half times as long as the products of a step.
const tryRounds = 5

// fastestAlgorithms are those of all machines, which share a GPU: Gorgonia has but one.
// Every generation is a machine of its own.
var fastestAlgorithms = struct {
	sync.Mutex
	of map[shape]int
}{of: map[shape]int{}}

// tuneAlgorithm finds, among the algorithms of a shape's plan that give the same bits,
// the fastest for a product. If no machine has, it queues that product a few
// times and waits; the result is then not in p.y if that is the residual.
func (d *runner) tuneAlgorithm(s shape, how *plan, p product) error {
	if how.algorithms() < 2 {
		return nil
	}
	fastestAlgorithms.Lock()
	defer fastestAlgorithms.Unlock() // concurrent trials of other machines would disturb the times
	if fastest, ok := fastestAlgorithms.of[s]; ok {
		how.fastest = fastest
		return nil
	}
	if p.inPlace {
		// Every trial needs the residual, so results go to memory that is idle, as that of
		// the queries' heads is in the models when a product adds to a residual. More
		// memory is not worth it: without any the heuristic's first choice stands.
		if p.y = p.trial; p.y == 0 {
			return nil
		}
	}
	same, err := d.sameBits(how, p)
	if err != nil {
		return err
	}
	took, err := d.timed(how, same, p)
	if err != nil {
		return err
	}
	how.fastest = slices.MinFunc(same, func(a, b int) int { return cmp.Compare(took[a], took[b]) })
	fastestAlgorithms.of[s] = how.fastest
	return nil
}

// sameBits lists the algorithms whose result has the first one's bits. They add
// products in the same order: another order would round some of millions of sums differently.
// So the choice affects the time only, and the same inputs give the same bits.
func (d *runner) sameBits(how *plan, p product) (same []int, err error) {
	digest, err := d.kernel("digest", "digest")
	if err != nil {
		return nil, err
	}
	digests := make([]uint64, how.algorithms())
	size := int64(len(digests)) * int64(unsafe.Sizeof(digests[0]))
	at, err := d.heap.get(size)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.heap.release(at)) }()
	if err := d.queue.toGPU(at, unsafe.Pointer(&digests[0]), size); err != nil {
		return nil, fmt.Errorf("cudaop: digests: %w", err)
	}
	n := p.n * p.out
	for i := range digests {
		to := at + cu.DevicePtr(i)*cu.DevicePtr(unsafe.Sizeof(digests[0]))
		if err := errors.Join(d.queue.multiply(how, i, p), digest.launchRows(1, n, address(p.y), address(to), integer(n))); err != nil {
			return nil, err
		}
	}
	if err := d.queue.toHost(unsafe.Pointer(&digests[0]), at, size); err != nil {
		return nil, fmt.Errorf("cudaop: digests: %w", err)
	}
	for i, one := range digests {
		if one == digests[0] {
			same = append(same, i)
		}
	}
	return same, nil
}

// timed returns the median time of some of a plan's algorithms, by their number, in
// milliseconds. They alternate, because the clock depends on earlier work.
func (d *runner) timed(how *plan, algorithms []int, p product) (took map[int]float64, err error) {
	marks := make([]cu.Event, len(algorithms)+1)
	defer func() {
		for i := range marks {
			if marks[i] != (cu.Event{}) {
				err = errors.Join(err, cu.DestroyEvent(&marks[i]))
			}
		}
	}()
	for i := range marks {
		if marks[i], err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return nil, fmt.Errorf("cudaop: event: %w", err)
		}
	}
	times := map[int][]float64{}
	for round := range tryRounds {
		turn := func(i int) int { return algorithms[(i+round)%len(algorithms)] } // none is first twice, where the GPU waits for the host
		err := errors.Join(d.queue.flush(), marks[0].Record(cu.NoStream))
		for i := range algorithms {
			err = errors.Join(err, d.queue.multiply(how, turn(i), p), d.queue.flush(), marks[i+1].Record(cu.NoStream))
		}
		err = errors.Join(err, marks[len(algorithms)].Synchronize())
		for i := range algorithms {
			ms, e := marks[i].Elapsed(marks[i+1])
			err = errors.Join(err, e)
			times[turn(i)] = append(times[turn(i)], ms)
		}
		if err != nil {
			return nil, fmt.Errorf("cudaop: time of a product: %w", err)
		}
	}
	took = map[int]float64{}
	for a, ms := range times {
		slices.Sort(ms)
		took[a] = ms[tryRounds/2]
	}
	return took, nil
}
