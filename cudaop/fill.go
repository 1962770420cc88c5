//go:build cuda

package cudaop

import (
	"fmt"
	"unsafe"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
)

// Fill implements op.Memory.
func (l *layer) Fill(table func(n, group int) []uint32) error {
	made := table(l.n, l.group)
	if want := groups(l.n, l.group) * words(l.n); len(made) != want {
		return fmt.Errorf("cudaop: %w: a column table of %d words, want %d", op.ErrShape, len(made), want)
	}
	return l.device.onThread(func() error { return l.device.fillHeads(l.bits, made, l.batch*l.heads) })
}

// fillHeads copies the column table of one head to several on the GPU.
func (d *device) fillHeads(bits cu.DevicePtr, table []uint32, heads int) error {
	size := 4 * int64(len(table))
	if err := d.queue.toGPU(bits, unsafe.Pointer(&table[0]), size); err != nil {
		return fmt.Errorf("cudaop: columns: %w", err)
	}
	for h := range heads - 1 {
		if err := d.queue.copy(bits+cu.DevicePtr(int64(h+1)*size), bits, size); err != nil {
			return err
		}
	}
	return nil
}
