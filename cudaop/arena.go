//go:build cuda

package cudaop

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/internal/memplan"
	"gorgonia.org/cu"
)

// heap is the memory that a device has from the driver.
type heap struct {
	sizes map[cu.DevicePtr]int64
	bytes int64
}

// The driver's memory. Tests replace it by less.
var (
	allocate = cu.MemAlloc
	memInfo  = cu.MemInfo
)

func newHeap() heap { return heap{sizes: map[cu.DevicePtr]int64{}} }

// get returns memory of at least the given size, with any contents.
func (h *heap) get(bytes int64) (cu.DevicePtr, error) {
	bytes = memplan.Round(bytes)
	p, err := allocate(bytes)
	if err == cu.OutOfMemory {
		return 0, fmt.Errorf("cudaop: %w: %s more, %s are held", ErrMemory, gib(bytes), gib(h.bytes))
	}
	if err != nil {
		return 0, fmt.Errorf("cudaop: %d bytes of GPU memory, %d held: %w", bytes, h.bytes, err)
	}
	h.sizes[p] = bytes
	h.bytes += bytes
	gpu.AddHeld(bytes)
	return p, nil
}

// release gives memory back to the driver, which waits until no kernel uses it; 0 is
// nothing.
func (h *heap) release(p cu.DevicePtr) error {
	size, ok := h.sizes[p]
	if !ok {
		return nil
	}
	if err := cu.MemFree(p); err != nil {
		return fmt.Errorf("cudaop: free: %w", err)
	}
	delete(h.sizes, p)
	h.bytes -= size
	gpu.AddHeld(-size)
	return nil
}

// block is memory from the heap.
type block struct {
	at    cu.DevicePtr
	bytes int64
}

// arenas are where plans place their buffers. Everything runs on one stream, so memory
// may be used again while kernels that use it are still queued.
type arenas struct {
	transient block                       // of all plans: one graph of a runner runs at a time
	alone     block                       // transient, of operators without a graph's plan
	kept      map[*exec.Plan]cu.DevicePtr // the persistent part of each plan
	loose     map[any]block               // persistent, of layers and of operators without a graph's plan, by key
}

// grow makes a block at least as large as given. Its contents are lost.
func (d *runner) grow(b *block, bytes int64) error {
	if b.bytes >= bytes {
		return nil
	}
	if err := d.queue.wait(); err != nil {
		return err
	}
	if err := d.heap.release(b.at); err != nil {
		return err
	}
	*b = block{}
	at, err := d.heap.get(bytes)
	if err == nil {
		*b = block{at, bytes}
	}
	return err
}

// reserve takes the memory of a plan.
func (d *runner) reserve(p *exec.Plan) error {
	if err := d.grow(&d.arenas.transient, p.GPU.Transient); err != nil {
		return err
	}
	for key, bytes := range p.OfLayers() {
		if _, err := d.loose(key, bytes); err != nil {
			return err
		}
	}
	if p.GPU.Persistent == 0 || d.arenas.kept[p] != 0 {
		return nil
	}
	at, err := d.heap.get(p.GPU.Persistent)
	if err == nil {
		d.arenas.kept[p] = at
	}
	return err
}

// locate returns the address of a slot of a plan, or of an operator without a plan. It is 0
// for spare memory that the arena does not have.
func (d *runner) locate(p *exec.Plan, s exec.Slot) (cu.DevicePtr, error) {
	offset, ok := s.Offset()
	switch {
	case !ok:
		return 0, nil
	case s.OfLayer() || p == nil && s.Persistent():
		return d.loose(s.Key(), s.Bytes())
	case p == nil:
		return d.arenas.alone.at + cu.DevicePtr(offset), nil
	}
	if d.arenas.transient.bytes < p.GPU.Transient || s.Persistent() && d.arenas.kept[p] == 0 {
		if err := d.reserve(p); err != nil {
			return 0, err
		}
	}
	if s.Persistent() {
		return d.arenas.kept[p] + cu.DevicePtr(offset), nil
	}
	return d.arenas.transient.at + cu.DevicePtr(offset), nil
}

// loose returns the memory that a layer, or operators without a plan, keep under a key: at
// least bytes. Where it has to grow its contents are lost.
func (d *runner) loose(key any, bytes int64) (cu.DevicePtr, error) {
	b := d.arenas.loose[key]
	if b.bytes >= bytes {
		return b.at, nil
	}
	if err := d.dropLoose(key); err != nil {
		return 0, err
	}
	if k, ok := key.(cacheKey); ok {
		k.s.LoseCache()
	}
	at, err := d.heap.get(bytes)
	if err == nil {
		d.arenas.loose[key] = block{at, bytes}
	}
	return at, err
}

func (d *runner) dropLoose(key any) error {
	b, ok := d.arenas.loose[key]
	if !ok {
		return nil
	}
	delete(d.arenas.loose, key)
	if err := d.queue.wait(); err != nil {
		return err
	}
	return d.heap.release(b.at)
}

// forget drops what a plan has on the device.
func (d *runner) forget(p *exec.Plan) error {
	if err := d.queue.forget(p); err != nil {
		return err
	}
	at := d.arenas.kept[p]
	delete(d.arenas.kept, p)
	return d.heap.release(at)
}
