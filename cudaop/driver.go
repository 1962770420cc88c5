//go:build cuda

package cudaop

/*
#cgo LDFLAGS: -lcuda
#cgo noescape launch
#cgo nocallback launch
#include <cuda.h>
#include <string.h>

// matrices are a batch of matrices [rows, columns] of bfloat16, one after the other.
typedef struct {
	CUdeviceptr at;
	long long count, rows, columns;
} matrices;

// make_tensor_map makes the tensor map by which the TMA of Hopper copies boxes of some rows and 64 columns to shared memory,
// with the 128-byte swizzle and zeros for rows that do not exist.
static CUresult make_tensor_map(CUtensorMap *map, const matrices *m, unsigned rows) {
	const cuuint64_t row = 2 * m->columns;
	const cuuint64_t size[] = {m->columns, m->rows, m->count}, pitch[] = {row, row * m->rows};
	const cuuint32_t box[] = {64, rows, 1}, step[] = {1, 1, 1};
	return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)m->at, size, pitch, box, step,
	                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
	                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// cluster is the number of blocks in a cluster of the kernel. A driver that does not know the attribute has no clusters.
static int cluster(CUfunction f) {
	int width = 0;
	return cuFuncGetAttribute(&width, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, f) == CUDA_SUCCESS && width > 1 ? width : 1;
}

// launch launches a kernel whose arguments are the tensor maps of up to 3 operands, with boxes of so many rows, and then n of 8
// bytes each. Clusters of 0 blocks are as the kernel was compiled. With early it starts before those ahead of it in the stream
// have finished (kernels/dependent.cuh). gorgonia.org/cu copies every argument to memory that it allocates, and has no tensor
// maps.
static CUresult launch(CUfunction f, unsigned grid, unsigned block, unsigned shared, unsigned cluster, int early, const matrices *operands,
                       const unsigned *boxes, int mapped, unsigned long long *args, int n, CUstream stream) {
	CUtensorMap maps[3];
	void *params[mapped + n];
	for (int i = 0; i < mapped; i++) {
		CUresult code = make_tensor_map(&maps[i], &operands[i], boxes[i]);
		if (code != CUDA_SUCCESS) return code;
		params[i] = &maps[i];
	}
	for (int i = 0; i < n; i++) params[mapped + i] = args + i;
	CUlaunchAttribute attributes[2];
	CUlaunchConfig config = {.gridDimX = grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = block, .blockDimY = 1, .blockDimZ = 1,
	                         .sharedMemBytes = shared, .hStream = stream, .attrs = attributes};
	memset(attributes, 0, sizeof attributes);
	if (cluster > 0) {
		CUlaunchAttribute *a = &attributes[config.numAttrs++];
		a->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
		a->value.clusterDim.x = cluster, a->value.clusterDim.y = a->value.clusterDim.z = 1;
	}
	if (early) {
		CUlaunchAttribute *a = &attributes[config.numAttrs++];
		a->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		a->value.programmaticStreamSerializationAllowed = 1;
	}
	return cuLaunchKernelEx(&config, f, params, NULL);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// cudaKernel is a function that a runner launches.
type cudaKernel struct {
	*function
	queue  *queue
	number int // in the queue's list
}

// function is that of a loaded module, with what its module says about how to launch it
// (kernels/README.md). All calls need the module's context.
type function struct {
	name         string
	fn           C.CUfunction
	threads      int
	shared       int // bytes of dynamic shared memory of a block
	rows         int // of an item of work
	perMultiproc int // 0: a block for each item
	multiprocs   int
	cluster      int               // blocks in a cluster
	boxes        [maxMapped]C.uint // rows of the boxes of operands that are copied by TMA
	dependent    bool              // it may start before the kernels ahead of it have finished
}

// maxMapped is the number of operands that a kernel may have tensor maps of.
const maxMapped = 3

// defaultShared is the dynamic shared memory that a block may use by default.
const defaultShared = 48 << 10

func (d *device) newFunction(m cu.Module, name string) (*function, error) {
	k := &function{name: name, multiprocs: d.multiprocs}
	fn, err := m.Function(name)
	if err != nil {
		return nil, fmt.Errorf("cudaop: kernel %s: %w", name, err)
	}
	k.fn = *(*C.CUfunction)(unsafe.Pointer(&fn)) // cu keeps the handle to itself
	k.cluster = int(C.cluster(k.fn))
	at, size, err := m.Global(name + "_launch")
	var launch [4]int64
	if err == nil && size != int64(unsafe.Sizeof(launch)) {
		err = fmt.Errorf("%d bytes, want %d", size, unsafe.Sizeof(launch))
	}
	if err == nil {
		err = cu.MemcpyDtoH(unsafe.Pointer(&launch), at, size)
	}
	if err != nil {
		return nil, fmt.Errorf("cudaop: kernel %s: how to launch it: %w", name, err)
	}
	k.threads, k.shared, k.rows, k.perMultiproc = int(launch[0]), int(launch[1]), int(launch[2]), int(launch[3])
	if k.boxes, err = boxes(m, name); err != nil {
		return nil, err
	}
	_, _, err = m.Global(name + "_dependent")
	k.dependent = err == nil
	if k.shared > defaultShared {
		if err := allowShared(k.fn, k.shared); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// boxes returns the rows of the boxes of a kernel's operands, 64 if its module does not say
// otherwise.
func boxes(m cu.Module, name string) (rows [maxMapped]C.uint, err error) {
	declared := [maxMapped]int64{64, 64, 64}
	if at, size, err := m.Global(name + "_boxes"); err == nil {
		if size > int64(unsafe.Sizeof(declared)) {
			return rows, fmt.Errorf("cudaop: kernel %s: boxes of %d bytes, want at most %d", name, size, unsafe.Sizeof(declared))
		}
		if err := cu.MemcpyDtoH(unsafe.Pointer(&declared), at, size); err != nil {
			return rows, fmt.Errorf("cudaop: kernel %s: its boxes: %w", name, err)
		}
	}
	for i, n := range declared {
		rows[i] = C.uint(n)
	}
	return rows, nil
}

// allowShared raises fn's limit of dynamic shared memory above the default.
func allowShared(fn C.CUfunction, bytes int) error {
	if code := C.cuFuncSetAttribute(fn, C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)); code != C.CUDA_SUCCESS {
		return fmt.Errorf("cudaop: CUDA error %d: a kernel may not have %d bytes of shared memory", int(code), bytes)
	}
	return nil
}

// matrices are a batch of matrices of bfloat16 on the GPU, one after the other.
type matrices struct {
	at                   cu.DevicePtr
	count, rows, columns int
}

// launch queues the kernel for the given number of items.
// Every argument is 8 bytes; see address, integer, float and flag.
func (k *cudaKernel) launch(items int, args ...uint64) error {
	return k.launchMapped(nil, items, args...)
}

// launchMapped is launch for a kernel that takes tensor maps of the operands, at most
// maxMapped, before its other arguments.
func (k *cudaKernel) launchMapped(operands []matrices, items int, args ...uint64) error {
	if items == 0 {
		return nil
	}
	grid := items
	if k.perMultiproc > 0 {
		grid = min(items, k.perMultiproc*k.multiprocs)
	}
	grid = (grid + k.cluster - 1) / k.cluster * k.cluster
	return k.queue.launch(k, grid, 0, operands, args)
}

// launchClusters is launchMapped on count clusters of so many blocks, for a kernel that takes
// clusters of any size.
func (k *cudaKernel) launchClusters(operands []matrices, count, blocks int, args ...uint64) error {
	return k.queue.launch(k, count*blocks, blocks, operands, args)
}

// start launches the kernel on a stream. Each of the operands is four words. In a stream that
// is being captured it may start early: a graph keeps that.
func (k *function) start(stream C.CUstream, grid, cluster int, operands, args []uint64) error {
	var maps [maxMapped]C.matrices
	for i := range len(operands) / 4 {
		s := operands[4*i:]
		maps[i] = C.matrices{at: C.CUdeviceptr(s[0]), count: C.longlong(s[1]), rows: C.longlong(s[2]), columns: C.longlong(s[3])}
	}
	early := C.int(flag(k.dependent && stream != nil))
	if code := C.launch(k.fn, C.uint(grid), C.uint(k.threads), C.uint(k.shared), C.uint(cluster), early, &maps[0], &k.boxes[0], C.int(len(operands)/4),
		(*C.ulonglong)(&args[0]), C.int(len(args)), stream); code != C.CUDA_SUCCESS {
		return fmt.Errorf("cudaop: kernel %s on %d blocks: CUDA error %d", k.name, grid, int(code))
	}
	return nil
}

// launchRows is launch for n rows, queries or elements in each of count parts.
func (k *cudaKernel) launchRows(count, n int, args ...uint64) error {
	return k.launch(k.items(count, n), args...)
}

// items is the number of items of work for n rows in each of count parts.
func (k *function) items(count, n int) int { return count * ((n + k.rows - 1) / k.rows) }
