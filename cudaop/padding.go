//go:build cuda

package cudaop

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// padding describes a padding mask [batch,n] for attention.
type padding struct {
	start cu.DevicePtr // first key of each batch row that is not padding; 0 without padding
	keys  []int        // real keys of each batch row
}

// lastPadding is the padding of the mask that was read last, for the other layers of the
// step: reading one makes the host wait for the GPU.
type lastPadding struct {
	padding
	step   *exec.Step
	number uint64         // of the step
	mask   *gorgonia.Node // an input of the graph; others may change within a step
}

// paddingKey is the key of a mask's starts and counts on the GPU.
type paddingKey struct{ mask *gorgonia.Node }

// padding reads the operator's last input, if that is a padding mask.
func (c *call) padding(p exec.Attention, batch, n int) (padding, error) {
	all := padding{keys: slices.Repeat([]int{n}, batch)}
	if !p.Masked {
		return all, nil
	}
	last := len(c.in) - 1
	mask := c.o.Placement().GraphInput(last)
	var err error
	if mask == nil {
		all.start, err = c.scratch(paddingBytes(batch))
	} else {
		all.start, err = c.keep(paddingKey{mask}, paddingBytes(batch), exec.Activations)
	}
	if err != nil || c.isPlan() {
		return all, err
	}
	node, step, number := exec.StepInput(c.o, last)
	if known := &c.padded; node != nil && known.step == step && known.number == number && known.mask == node {
		return known.padding, nil
	}
	found, err := c.readMask(all.start, batch, n)
	if err == nil && node != nil {
		c.padded = lastPadding{found, step, number, node}
	}
	return found, err
}

// paddingBytes is the size of a mask's starts and counts on the GPU.
func paddingBytes(batch int) int64 { return 8 * int64(batch) }

// readMask computes the starts and counts of a mask to an address, for the kernels, and copies
// them to the host. Padding after a real key is an error: kernels support left padding only.
func (c *call) readMask(at cu.DevicePtr, batch, n int) (padding, error) {
	mask, err := c.at(len(c.in)-1, tensor.Float32)
	if err != nil {
		return padding{}, err
	}
	k, err := c.kernel("padding", "padding")
	if err != nil {
		return padding{}, err
	}
	if err := k.launch(batch, address(mask), address(at), integer(batch), integer(n)); err != nil {
		return padding{}, err
	}
	found := make([]int32, 2*batch) // starts, then numbers of real keys
	if err := c.queue.toHost(unsafe.Pointer(&found[0]), at, paddingBytes(batch)); err != nil {
		return padding{}, fmt.Errorf("cudaop: padding: %w", err)
	}
	p := padding{start: at}
	for b := range batch {
		first, real := int(found[b]), int(found[batch+b])
		if first+real != n {
			return padding{}, fmt.Errorf("%w: padding mask of batch row %d has padding after token %d; on the GPU all padding must stand in front", op.ErrValue, b, first)
		}
		p.keys = append(p.keys, real)
	}
	return p, nil
}
