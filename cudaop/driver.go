//go:build cuda

package cudaop

/*
#cgo LDFLAGS: -lcuda
#include <cuda.h>
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
	fn           cu.Function
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
	var err error
	if k.fn, err = m.Function(name); err != nil {
		return nil, fmt.Errorf("cudaop: kernel %s: %w", name, err)
	}
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
func allowShared(fn cu.Function, bytes int) error {
	// cu keeps the handle to itself and has no call to set an attribute.
	handle := *(*C.CUfunction)(unsafe.Pointer(&fn))
	if code := C.cuFuncSetAttribute(handle, C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)); code != C.CUDA_SUCCESS {
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
	params := make([]unsafe.Pointer, len(args))
	for i := range args {
		params[i] = unsafe.Pointer(&args[i])
	}
	if err := k.fn.Launch(grid, 1, 1, k.threads, 1, 1, k.shared, cu.NoStream, params); err != nil {
		return fmt.Errorf("cudaop: kernel %s on %d blocks: %w", k.name, grid, err)
	}
	return nil
}

// launchRows is launch for n rows, queries or elements in each of count parts.
func (k *kernel) launchRows(count, n int, args ...uint64) error {
	return k.launch(count*((n+k.rows-1)/k.rows), args...)
}
