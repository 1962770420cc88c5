//go:build cuda

package cudaop

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/lmhead"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
)

// ForceSM80 says whether machines made from now on use the kernels for any GPU even where
// there are some for Hopper.
func ForceSM80(on bool) { forceSM80 = on }

// SM80Forced returns the argument of the latest ForceSM80.
func SM80Forced() bool { return forceSM80 }

// SetScoreBytes bounds the scores that exist at a time, and returns what did.
func SetScoreBytes(n int64) (before int64) {
	before, scoreBytes = scoreBytes, n
	return before
}

// SetLogitsBytes bounds the logits that exist at a time, and returns what did.
func SetLogitsBytes(n int) (before int) {
	before, logitsBytes = logitsBytes, n
	return before
}

// SetTryFrom sets from how many multiplications on products try algorithms, and
// returns what did. The fastest algorithms so far are forgotten.
func SetTryFrom(n int64) (before int64) {
	clear(fastestAlgorithms.of)
	before, tryFrom = tryFrom, n
	return before
}

// inCall calls f on a machine's GPU as an operator's run.
func inCall(vm gorgonia.VM, f func(c *call) error) error {
	m, err := machineOf(vm.(gorgonia.External), 0)
	if err != nil {
		return err
	}
	return m.afterInputs(func() error { return m.outside(f) })
}

// Multiply gives the bits of x wᵀ + bias + residual over its residual, if that is not
// nil, on a machine's GPU. It says how many algorithms the product had, and of how many
// the result has the bits of the first one's.
func Multiply(vm gorgonia.VM, n, in, out int, x, w, bias, residual []uint16) (y []uint16, same, of int, err error) {
	err = inCall(vm, func(c *call) (err error) {
		copied := func(v []uint16) (at cu.DevicePtr) {
			if v == nil || err != nil {
				return 0
			}
			if at, err = c.scratch(2 * int64(len(v))); err == nil {
				err = c.queue.toGPU(at, unsafe.Pointer(&v[0]), 2*int64(len(v)))
			}
			return at
		}
		y = make([]uint16, n*out)
		p := product{x: copied(x), w: copied(w), bias: copied(bias), residual: copied(residual), n: n, in: in, out: out, dt: bfloat16Dtype, to: bfloat16Dtype}
		p.y = copied(y)
		if residual != nil {
			p.y, p.inPlace = p.residual, true
		}
		if err != nil {
			return err
		}
		if err := c.multiply(p); err != nil {
			return err
		}
		if err := c.queue.toHost(unsafe.Pointer(&y[0]), p.y, 2*int64(len(y))); err != nil {
			return err
		}
		for _, how := range c.blas.plans {
			p.residual, p.inPlace = 0, false
			if p.workspace, err = c.scratch(blasWorkspace); err != nil {
				return err
			}
			agree, err := c.sameBits(how, p)
			if err != nil {
				return err
			}
			same, of = len(agree), how.algorithms()
		}
		return nil
	})
	return y, same, of, err
}

// Plans is the number of shapes of products that a machine has multiplied.
func Plans(vm gorgonia.VM) (n int, err error) {
	err = inCall(vm, func(c *call) error { n = len(c.blas.plans); return nil })
	return n, err
}

// ApplyRule applies a rule to rows of the host's on a machine's GPU.
func ApplyRule(vm gorgonia.VM, rule *lmhead.Rule, rows, unconditional [][]float32) (out []lmhead.Choice, err error) {
	err = inCall(vm, func(c *call) (err error) {
		copied := func(rows [][]float32) (cu.DevicePtr, error) {
			if rows == nil {
				return 0, nil
			}
			flat := slices.Concat(rows...)
			at, err := c.scratch(4 * int64(len(flat)))
			if err != nil {
				return 0, err
			}
			return at, c.queue.toGPU(at, unsafe.Pointer(&flat[0]), 4*int64(len(flat)))
		}
		logits, err := copied(rows)
		if err != nil {
			return err
		}
		u, err := copied(unconditional)
		if err != nil {
			return err
		}
		at, err := c.scratch(int64(len(rows)) * int64(unsafe.Sizeof(choice{})))
		if err != nil {
			return err
		}
		if err := c.applyRule(logits, u, at, len(rows), len(rows[0]), rule); err != nil {
			return err
		}
		out, err = c.choices(at, len(rows))
		return err
	})
	return out, err
}

// LimitMemory makes the GPU have only so many bytes, of which it says that claimed
// are free. It returns what takes that back.
func LimitMemory(limit, claimed int64) (restore func()) {
	all, info := allocate, memInfo
	given := int64(0)
	allocate = func(bytes int64) (cu.DevicePtr, error) {
		if given += bytes; given > limit {
			return 0, cu.OutOfMemory
		}
		return all(bytes)
	}
	memInfo = func() (free, total int64, err error) { return claimed, claimed, nil }
	return func() { allocate, memInfo = all, info }
}

// eachQueue calls f for the queues of all runners.
func eachQueue(f func(q *queue)) {
	devices.Lock()
	defer devices.Unlock()
	for _, d := range devices.of {
		d.busy.Lock()
		for _, r := range d.runners {
			f(r.queue)
		}
		d.busy.Unlock()
	}
}

// Replays counts the segments of the queues of all machines, those of them that are graphs, and
// those that cannot be captured.
func Replays() (known, graphs, never int) {
	eachQueue(func(q *queue) {
		known += len(q.graphs)
		for _, r := range q.graphs {
			if r.program != nil {
				graphs++
			}
			if r.never {
				never++
			}
		}
	})
	return known, graphs, never
}

// Fill queues a command for each of the values, which makes it one of the words of some
// memory, and another that copies all words. It returns the copy.
func Fill(vm gorgonia.VM, values []uint32) (copied []uint32, err error) {
	err = inCall(vm, func(c *call) (err error) {
		if err := c.queue.restart(stepKind{}); err != nil {
			return err
		}
		bytes := 4 * int64(len(values))
		at, err := c.loose("at", bytes)
		if err != nil {
			return err
		}
		to, err := c.loose("to", bytes)
		if err != nil {
			return err
		}
		copied = make([]uint32, len(values))
		if err := errors.Join(c.queue.toGPU(at, unsafe.Pointer(&copied[0]), bytes), c.queue.toGPU(to, unsafe.Pointer(&copied[0]), bytes)); err != nil {
			return err
		}
		for i, v := range values {
			if err := c.queue.fill(at+cu.DevicePtr(4*i), v, 1); err != nil {
				return err
			}
		}
		return errors.Join(c.queue.copy(to, at, bytes), c.queue.toHost(unsafe.Pointer(&copied[0]), to, bytes))
	})
	return copied, err
}

// NeverCapture marks all segments as impossible to capture.
func NeverCapture() {
	eachQueue(func(q *queue) {
		for _, r := range q.graphs {
			r.never = true
		}
	})
}

// Unknown queues a command of a kind that does not exist.
func Unknown(vm gorgonia.VM) error {
	return inCall(vm, func(c *call) error {
		c.queue.words = append(c.queue.words, 99)
		return c.queue.add()
	})
}

// Buffered is the number of commands that are not submitted yet, of all machines.
func Buffered() (n int) {
	eachQueue(func(q *queue) { n += q.commands })
	return n
}
