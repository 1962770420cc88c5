//go:build cuda

package cudaop

/*
#include <cuda.h>
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/mapped"
	"gorgonia.org/cu"
)

// staging copies host memory to the GPU through two page-locked buffers: the GPU
// reads one while the processor fills the other. It reads files that are mapped at
// the speed of the disk or of the bus, whichever is slower.
type staging struct {
	ctx     context.Context // cancels it
	buffers [2][]byte
	read    [2]cu.Event // the GPU has read the buffer
	next    int         // buffer to fill
}

// stagingBytes is the size of a buffer: far above what an event costs.
const stagingBytes = 32 << 20

func newStaging(ctx context.Context) (*staging, error) {
	s := &staging{ctx: ctx}
	for i := range s.buffers {
		var at unsafe.Pointer
		if code := C.cuMemHostAlloc(&at, stagingBytes, 0); code != C.CUDA_SUCCESS {
			return nil, errors.Join(fmt.Errorf("cudaop: CUDA error %d: %d bytes of page-locked memory", int(code), stagingBytes), s.close())
		}
		s.buffers[i] = unsafe.Slice((*byte)(at), stagingBytes)
		var err error
		if s.read[i], err = cu.MakeEvent(cu.DisableTiming); err != nil {
			return nil, errors.Join(fmt.Errorf("cudaop: event: %w", err), s.close())
		}
	}
	return s, nil
}

// close waits for the copies that are queued.
func (s *staging) close() error {
	err := cu.Synchronize()
	for i, b := range s.buffers {
		if s.read[i] != (cu.Event{}) {
			err = errors.Join(err, cu.DestroyEvent(&s.read[i]))
		}
		if b != nil {
			err = errors.Join(err, cu.MemFreeHost(unsafe.Pointer(&b[0])))
		}
	}
	if err != nil {
		return fmt.Errorf("cudaop: page-locked memory: %w", err)
	}
	return nil
}

// copy queues a copy to the GPU; from may change when it returns.
func (s *staging) copy(to cu.DevicePtr, from []byte) error {
	for len(from) > 0 {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		i := s.next
		s.next = 1 - i
		if err := s.read[i].Synchronize(); err != nil {
			return fmt.Errorf("cudaop: event: %w", err)
		}
		n := min(len(from), stagingBytes)
		if err := copyWide(s.buffers[i][:n], from); err != nil {
			return err
		}
		if err := cu.MemcpyHtoDAsync(to, unsafe.Pointer(&s.buffers[i][0]), int64(n), cu.NoStream); err != nil {
			return fmt.Errorf("cudaop: copy to the GPU: %w", err)
		}
		if err := s.read[i].Record(cu.NoStream); err != nil {
			return fmt.Errorf("cudaop: event: %w", err)
		}
		to, from = to+cu.DevicePtr(n), from[n:]
	}
	return nil
}

// copyWide is copy by several threads, because one thread is slower than the bus.
func copyWide(to, from []byte) error {
	return inParts(len(to), 4, func(at, end int) { copy(to[at:end], from[at:end]) })
}

// inParts calls f for at most most ranges of 0 to n-1, each on a goroutine of its own. f may
// read mapped weights; the error is that of a file that cannot be read.
func inParts(n, most int, f func(from, to int)) error {
	part := (n + most - 1) / most
	errs := make([]error, most)
	var wg sync.WaitGroup
	for i := 0; i*part < n; i++ {
		wg.Go(func() {
			errs[i] = mapped.Guard(func() error { f(i*part, min((i+1)*part, n)); return nil })
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}
