//go:build cuda

package cudaop

/*
#cgo LDFLAGS: -lcuda
#cgo noescape launch
#cgo nocallback launch
#include <cuda.h>

// launch is cuLaunchKernel on the default stream for a kernel whose n arguments are 8 bytes each. gorgonia.org/cu copies
// every argument to memory that it allocates.
static CUresult launch(CUfunction f, unsigned grid, unsigned block, unsigned shared, unsigned long long *args, int n) {
	void *params[n];
	for (int i = 0; i < n; i++) params[i] = args + i;
	return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, shared, NULL, params, NULL);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// kernel is a function of a loaded module, with what its module says about how to
// launch it (kernels/README.md). All calls need the module's context.
type kernel struct {
	name         string
	fn           C.CUfunction
	threads      int
	shared       int // bytes of dynamic shared memory of a block
	rows         int // of an item of work
	perMultiproc int // 0: a block for each item
	multiprocs   int
}

// defaultShared is the dynamic shared memory a block may use without asking.
const defaultShared = 48 << 10

func newKernel(m cu.Module, name string, multiprocs int) (*kernel, error) {
	k := &kernel{name: name, multiprocs: multiprocs}
	fn, err := m.Function(name)
	if err != nil {
		return nil, fmt.Errorf("cudaop: kernel %s: %w", name, err)
	}
	k.fn = *(*C.CUfunction)(unsafe.Pointer(&fn)) // cu keeps the handle to itself
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
	if k.shared > defaultShared {
		return k, allowShared(k.fn, k.shared)
	}
	return k, nil
}

// allowShared lets fn use more dynamic shared memory than any kernel may.
func allowShared(fn C.CUfunction, bytes int) error {
	if code := C.cuFuncSetAttribute(fn, C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)); code != C.CUDA_SUCCESS {
		return fmt.Errorf("cudaop: CUDA error %d: a kernel may not have %d bytes of shared memory", int(code), bytes)
	}
	return nil
}

// launch queues the kernel for the given number of items on the default stream.
// Every argument is 8 bytes, as arg makes them.
func (k *kernel) launch(items int, args ...uint64) error {
	if items == 0 {
		return nil
	}
	grid := items
	if k.perMultiproc > 0 {
		grid = min(items, k.perMultiproc*k.multiprocs)
	}
	if code := C.launch(k.fn, C.uint(grid), C.uint(k.threads), C.uint(k.shared), (*C.ulonglong)(&args[0]), C.int(len(args))); code != C.CUDA_SUCCESS {
		return fmt.Errorf("cudaop: kernel %s on %d blocks: CUDA error %d", k.name, grid, int(code))
	}
	return nil
}

// launchRows is launch for n rows, queries or elements in each of count parts.
func (k *kernel) launchRows(count, n int, args ...uint64) error {
	return k.launch(count*((n+k.rows-1)/k.rows), args...)
}
