//go:build cuda

package cudaop

/*
#include <cuda.h>

// begin creates a stream and starts to capture its work as nodes of a graph.
static CUresult begin(CUstream *stream) {
	if (*stream == NULL) {
		CUresult code = cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
		if (code != CUDA_SUCCESS) return code;
	}
	return cuStreamBeginCapture(*stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

// end makes a program of the graph.
static CUresult end(CUstream stream, CUgraphExec *program) {
	CUgraph graph = NULL;
	CUresult code = cuStreamEndCapture(stream, &graph);
	if (code == CUDA_SUCCESS) code = cuGraphInstantiateWithFlags(program, graph, 0);
	if (graph != NULL) cuGraphDestroy(graph);
	return code;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/exec"
	"gorgonia.org/cu"
)

// queue buffers the commands of operators and submits them to the GPU a segment at a time.
// To launch a kernel takes the host 4 to 6 us, longer than a small kernel runs. The machine
// runs the same operators in each step of a mode, at the addresses that were planned for
// it, so a segment that equals that of the previous step becomes a CUDA graph, which takes
// the host as long as one kernel. All other code that touches the operators' memory, or
// waits for the GPU, flushes first.
type queue struct {
	discard  bool     // drops every command: memory is being planned
	words    []uint64 // of the buffered commands
	commands int
	most     int // to buffer

	kernels []*cudaKernel // by the number that commands have for them
	plans   []*plan
	blas    *blas

	graphs map[segment]*replay
	stream C.CUstream // for capture; nothing runs on it
	step   stepKind   // in progress
	next   int        // segment
}

// stepKind is what steps with the same operators and buffers have in common.
type stepKind struct {
	plan    *exec.Plan
	mode    exec.Mode
	pass    exec.PassKind
	selects bool // the columns of a block
}

// segment identifies commands that are submitted at once: the index-th of a kind of step.
type segment struct {
	stepKind
	index int
}

// replay has the commands of a segment in its latest step.
type replay struct {
	words   []uint64
	program C.CUgraphExec // nil until the commands are the same in a second step
	never   bool          // it cannot be captured
}

// Kinds of commands, the first of their words.
const (
	launchKernel uint64 = iota // kernel, blocks, blocks of a cluster, operands, arguments, and both
	multiplyRows               // plan, algorithm, w, x, bias, what is added, y, workspace
	fillWords                  // address, value, count
	copyBytes                  // to, from, count
)

// The first segment of a step is short, so that the GPU has work; later ones are longer.
const (
	firstBuffered = 8
	maxBuffered   = 128
	// leastReplayed commands are worth a graph.
	leastReplayed = 4
	// mostSegments is the number of segments of a step that are kept, far more than the ten or so
	// of a model.
	mostSegments = 1024
)

func newQueue(b *blas) *queue {
	return &queue{most: firstBuffered, blas: b, graphs: map[segment]*replay{}}
}

// add buffers a command whose words have been appended.
func (q *queue) add() error {
	if q.discard {
		q.words = q.words[:0]
		return nil
	}
	if q.commands++; q.commands < q.most {
		return nil
	}
	more := min(2*q.most, maxBuffered)
	err := q.flush()
	q.most = more
	return err
}

// launch queues a kernel on so many blocks, in clusters of a size or, if that is 0, of the
// kernel's own.
func (q *queue) launch(k *cudaKernel, grid, cluster int, operands []matrices, args []uint64) error {
	q.words = append(q.words, launchKernel, uint64(k.number), uint64(grid), uint64(cluster), uint64(len(operands)), uint64(len(args)))
	for _, s := range operands {
		q.words = append(q.words, uint64(s.at), uint64(s.count), uint64(s.rows), uint64(s.columns))
	}
	q.words = append(q.words, args...)
	return q.add()
}

// multiply queues a product by one of its plan's algorithms.
func (q *queue) multiply(how *plan, algorithm int, p product) error {
	q.words = append(q.words, multiplyRows, uint64(how.number), uint64(algorithm), uint64(p.w), uint64(p.x), uint64(p.bias), uint64(p.residual), uint64(p.y), uint64(p.workspace))
	return q.add()
}

// fill queues count words of memory to become value.
func (q *queue) fill(at cu.DevicePtr, value uint32, count int64) error {
	q.words = append(q.words, fillWords, uint64(at), uint64(value), uint64(count))
	return q.add()
}

// copy queues a copy within the GPU's memory.
func (q *queue) copy(to, from cu.DevicePtr, bytes int64) error {
	q.words = append(q.words, copyBytes, uint64(to), uint64(from), uint64(bytes))
	return q.add()
}

// flush submits all buffered commands.
func (q *queue) flush() error {
	q.most = firstBuffered
	if q.commands == 0 {
		return nil
	}
	defer func() { q.words, q.commands = q.words[:0], 0 }()
	at := segment{q.step, q.next}
	q.next++
	if q.commands < leastReplayed || at.index >= mostSegments {
		return q.run(nil)
	}
	r := q.graphs[at]
	if r == nil {
		r = new(replay)
		q.graphs[at] = r
	}
	if !slices.Equal(r.words, q.words) {
		if err := r.drop(); err != nil {
			return err
		}
		r.words, r.never = append(r.words[:0], q.words...), false
		return q.run(nil)
	}
	if r.program == nil && !r.never {
		r.never = q.capture(r) != nil
	}
	// If a graph cannot be launched, for lack of memory, its commands run one by one.
	if r.never || C.cuGraphLaunch(r.program, nil) != C.CUDA_SUCCESS {
		return q.run(nil)
	}
	return nil
}

// restart begins a step: its first segment is next.
func (q *queue) restart(s stepKind) error {
	err := q.flush()
	q.step, q.next = s, 0
	return err
}

// forget drops the graphs of a plan's steps.
func (q *queue) forget(p *exec.Plan) error {
	for at, r := range q.graphs {
		if at.plan != p {
			continue
		}
		if err := r.drop(); err != nil {
			return err
		}
		delete(q.graphs, at)
	}
	return nil
}

// drop drops the replay's graph, if it has one.
func (r *replay) drop() error {
	if r.program == nil {
		return nil
	}
	if err := cu.Synchronize(); err != nil { // it may be running
		return fmt.Errorf("cudaop: %w", err)
	}
	if code := C.cuGraphExecDestroy(r.program); code != C.CUDA_SUCCESS {
		return fmt.Errorf("cudaop: drop a graph: CUDA error %d", int(code))
	}
	r.program = nil
	return nil
}

// capture makes a program of the buffered commands, without running them.
func (q *queue) capture(r *replay) error {
	if code := C.begin(&q.stream); code != C.CUDA_SUCCESS {
		return fmt.Errorf("cudaop: begin a graph: CUDA error %d", int(code))
	}
	err := q.run(q.stream)
	if code := C.end(q.stream, &r.program); code != C.CUDA_SUCCESS {
		err = errors.Join(err, fmt.Errorf("cudaop: end a graph: CUDA error %d", int(code)))
	}
	return err
}

// run submits the buffered commands to a stream, one after the other.
func (q *queue) run(stream C.CUstream) error {
	for w := q.words; len(w) > 0; {
		var err error
		switch w[0] {
		case launchKernel:
			mapped, n := int(w[4]), int(w[5])
			err = q.kernels[w[1]].start(stream, int(w[2]), int(w[3]), w[6:6+4*mapped], w[6+4*mapped:6+4*mapped+n])
			w = w[6+4*mapped+n:]
		case multiplyRows:
			err = q.blas.start(stream, q.plans[w[1]], int(w[2]), w[3:9])
			w = w[9:]
		case fillWords:
			if code := C.cuMemsetD32Async(C.CUdeviceptr(w[1]), C.uint(w[2]), C.size_t(w[3]), stream); code != C.CUDA_SUCCESS {
				err = fmt.Errorf("cudaop: memset: CUDA error %d", int(code))
			}
			w = w[4:]
		case copyBytes:
			if code := C.cuMemcpyDtoDAsync(C.CUdeviceptr(w[1]), C.CUdeviceptr(w[2]), C.size_t(w[3]), stream); code != C.CUDA_SUCCESS {
				err = fmt.Errorf("cudaop: copy within the GPU: CUDA error %d", int(code))
			}
			w = w[4:]
		default:
			err = fmt.Errorf("cudaop: internal error: a command of kind %d", w[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close drops everything, buffered or not.
func (q *queue) close() error {
	q.words, q.commands = nil, 0
	for _, r := range q.graphs {
		if err := r.drop(); err != nil {
			return err
		}
	}
	clear(q.graphs)
	if q.stream == nil {
		return nil
	}
	if code := C.cuStreamDestroy(q.stream); code != C.CUDA_SUCCESS {
		return fmt.Errorf("cudaop: drop a stream: CUDA error %d", int(code))
	}
	q.stream = nil
	return nil
}

// toHost waits for all commands and copies from the GPU.
func (q *queue) toHost(to unsafe.Pointer, from cu.DevicePtr, bytes int64) error {
	if err := q.flush(); err != nil {
		return err
	}
	return cu.MemcpyDtoH(to, from, bytes)
}

// toGPU waits for all commands and copies to the GPU.
func (q *queue) toGPU(to cu.DevicePtr, from unsafe.Pointer, bytes int64) error {
	if err := q.flush(); err != nil {
		return err
	}
	return cu.MemcpyHtoD(to, from, bytes)
}

// wait waits for all commands.
func (q *queue) wait() error {
	if err := q.flush(); err != nil {
		return err
	}
	return cu.Synchronize()
}
