//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// DeferLogits implements lmhead.Deferrer: an LM head keeps its input rows in place of
// computing logits in the step. Logits are computed on request, a bounded number of rows at a
// time, and rules are applied on the GPU. The node's own value is then a placeholder. It
// returns nil for any other operator.
func (o *deviceOp) DeferLogits() func(rows int) lmhead.Logits {
	head, ok := o.impl.(*lmHead)
	if !ok {
		return nil
	}
	head.deferred = &deferredLogits{o: o, weight: head.weight}
	return func(rows int) lmhead.Logits { return stepLogits{head.deferred, rows} }
}

// deferredLogits has the data from which the logits of a step are computed.
type deferredLogits struct {
	o      *deviceOp
	weight []kernel.Projection // [vocab, features]
	runner *runner             // of the latest step
	x      cu.DevicePtr
	rows   int       // of x
	host   []float32 // rows that were copied

	// Memory for the time after a step.
	y         cu.DevicePtr // a chunk of logits
	choices   cu.DevicePtr
	workspace cu.DevicePtr // of cuBLASLt
}

// The keys of the rows that are kept, and of memory for the time after a step.
type (
	xKey     struct{ l *deferredLogits }
	afterKey struct {
		l *deferredLogits
		i int
	}
)

// run is the operator's run: it keeps the rows x, and finds the memory for the time after the
// step.
func (l *deferredLogits) run(c *call, x cu.DevicePtr, rows int) (gorgonia.Value, error) {
	bytes := int64(rows) * l.rowBytes()
	kept, err := c.keep(xKey{l}, bytes, exec.Activations)
	if err != nil {
		return nil, err
	}
	next := deferredLogits{o: l.o, weight: l.weight, runner: c.runner, x: kept, rows: rows, host: l.host}
	for i, after := range []struct {
		at    *cu.DevicePtr
		bytes int64
	}{
		{&next.y, 4 * int64(next.chunk()) * int64(l.vocab())},
		{&next.choices, int64(rows) * int64(unsafe.Sizeof(choice{}))},
		{&next.workspace, blasWorkspace},
	} {
		if *after.at, err = c.source.take(exec.KindAfter, afterKey{l, i}, after.bytes, exec.Activations); err != nil {
			return nil, err
		}
	}
	if c.isPlan() {
		return placeholder(), nil
	}
	*l = next
	return placeholder(), c.queue.copy(l.x, x, bytes)
}

func (l *deferredLogits) vocab() int { return outputs(l.weight) }

// rowBytes is the size of an input row.
func (l *deferredLogits) rowBytes() int64 {
	return int64(l.weight[0].Weight.Cols) * int64(l.o.dtype().Size())
}

// runOnGPU calls f on the GPU of the latest step.
func (l *deferredLogits) runOnGPU(f func(c *call) error) error {
	if l.runner == nil {
		return fmt.Errorf("%v: no step was run", l.o)
	}
	err := l.runner.flushed(func() error {
		c := &call{runner: l.runner, o: l.o, workspace: l.workspace}
		// No operator's result went to the machine, so the checks have not been read.
		return errors.Join(f(c), c.finish(nil), c.checked())
	})
	if err != nil {
		return fmt.Errorf("%v: %w", l.o, err)
	}
	return nil
}

// logitsBytes bounds the logits that exist at a time: enough rows to keep the GPU
// busy, 1,061 of LLaDA's. Tests change it.
var logitsBytes = 512 << 20

// chunk is the number of rows of logits that exist at a time. It does not depend on the
// number of selected rows, so that the same memory serves every step.
func (l *deferredLogits) chunk() int { return max(2, min(l.rows, logitsBytes/(4*l.vocab()))) }

// productRows divides the numbers of rows that are multiplied at once, where there are as
// many. From step to step fewer rows are selected, and cuBLASLt has another kernel for
// almost every number of them, which it takes 4 ms to load; up to 128 rows the product
// takes as long as it takes to read the weight.
const productRows = 128

// compute queues the logits of count rows from each of the given ones on, to y, one
// after the other. More rows than these may be computed, within the chunk.
func (l *deferredLogits) compute(c *call, y cu.DevicePtr, count int, from ...int) error {
	if len(from) == 2 && from[0]+count == from[1] { // reads the weight once
		count, from = 2*count, from[:1]
	}
	for i, first := range from {
		x, to := l.x+cu.DevicePtr(int64(first)*l.rowBytes()), y+cu.DevicePtr(4*i*count*l.vocab())
		rows := (count + productRows - 1) / productRows * productRows
		rows = min(rows, l.rows-first, l.chunk()-i*count) // the next product writes over what is too much
		if err := c.project(l.weight, to, x, 0, rows, tensor.Float32); err != nil {
			return err
		}
	}
	return nil
}

// stepLogits are the logits of the first rows of the latest step.
type stepLogits struct {
	*deferredLogits
	rows int
}

func (l stepLogits) Size() (rows, vocab int) { return l.rows, l.vocab() }

func (l stepLogits) Rows(count int, from ...int) ([][]float32, error) {
	vocab := l.vocab()
	if need := len(from) * count * vocab; len(l.host) < need {
		l.host = make([]float32, need)
	}
	err := l.runOnGPU(func(c *call) error {
		most, starts := l.chunk()/len(from), make([]int, len(from))
		for lo := 0; lo < count; lo += most {
			n := min(most, count-lo)
			for i, first := range from {
				starts[i] = first + lo
			}
			if err := l.compute(c, l.y, n, starts...); err != nil {
				return err
			}
			for i := range from {
				to, part := l.host[(i*count+lo)*vocab:], l.y+cu.DevicePtr(4*i*n*vocab)
				if err := c.queue.toHost(unsafe.Pointer(&to[0]), part, 4*int64(n)*int64(vocab)); err != nil {
					return fmt.Errorf("cudaop: copy of %d rows of logits: %w", n, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows := make([][]float32, len(from)*count)
	for r := range rows {
		rows[r] = l.host[r*vocab : (r+1)*vocab : (r+1)*vocab]
	}
	return rows, nil
}

func (l stepLogits) ApplyRule(rule *lmhead.Rule) (out []lmhead.Choice, err error) {
	n, most, vocab := l.rows, l.chunk(), l.vocab()
	guided := rule.Guidance != 0
	if guided {
		n, most = n/2, most/2
	}
	err = l.runOnGPU(func(c *call) error {
		y, at := l.y, l.choices
		for lo := 0; lo < n; lo += most {
			count := min(most, n-lo)
			from, u := []int{lo}, cu.DevicePtr(0)
			if guided {
				from, u = append(from, n+lo), y+cu.DevicePtr(4*count*vocab)
			}
			if err := l.compute(c, y, count, from...); err != nil {
				return err
			}
			if err := c.applyRule(y, u, at+cu.DevicePtr(uintptr(lo)*unsafe.Sizeof(choice{})), count, vocab, rule); err != nil {
				return err
			}
		}
		out, err = c.choices(at, n)
		return err
	})
	return out, err
}

// choice is lmhead.Choice as the kernel writes it.
type choice struct {
	confidence     float64
	token, invalid int32
	logit          float32
	_              int32
}

// applyRule queues the choices of a rule for rows of vocab logits each; u is 0 without
// guidance.
func (c *call) applyRule(logits, u, out cu.DevicePtr, rows, vocab int, rule *lmhead.Rule) error {
	k, err := c.kernel("confidence", "confidence")
	if err != nil {
		return err
	}
	var dtype int
	switch rule.Rounding {
	case lmhead.BFloat16:
		dtype = 1
	case lmhead.Float64:
		dtype = 2
	}
	return k.launch(rows, address(logits), address(u), address(out), integer(vocab), float(float64(rule.Guidance)),
		integer(int(rule.SuppressToken)), integer(int(rule.BanToken)), integer(int(rule.DeferTokens[0])), integer(int(rule.DeferTokens[1])),
		integer(int(rule.Confidence)), integer(dtype))
}

// choices waits for n choices and copies them.
func (c *call) choices(at cu.DevicePtr, n int) ([]lmhead.Choice, error) {
	if n == 0 {
		return nil, nil
	}
	made := make([]choice, n)
	if err := c.queue.toHost(unsafe.Pointer(&made[0]), at, int64(n)*int64(unsafe.Sizeof(made[0]))); err != nil {
		return nil, fmt.Errorf("cudaop: copy of %d choices: %w", n, err)
	}
	out := make([]lmhead.Choice, n)
	for i, m := range made {
		out[i] = lmhead.Choice{Token: m.token, Confidence: m.confidence, InvalidToken: m.invalid, InvalidLogit: m.logit}
	}
	return out, nil
}
