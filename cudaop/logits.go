//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// logits runs op.Logits. Rows that nobody wants cost as much as others, so that
// the product is one.
type logits struct {
	weight *op.Weight
	later  *logitsLater // nil: the logits are computed at once
}

func (r *logits) shape([]tensor.Shape) error { return nil }
func (r *logits) ownsResult() bool           { return r.later != nil }

func (r *logits) weights() ([]op.Projection, []byte) { return only(r.weight), nil }

func (r *logits) run(c *call) (gorgonia.Value, error) {
	x, err := c.operand(0)
	if err != nil {
		return nil, err
	}
	rows := c.in[1].Shape()[0]
	if r.later != nil {
		return r.later.run(c, x, rows)
	}
	v, y, err := c.result(rows, r.weight.Rows)
	if err != nil {
		return nil, err
	}
	return v, c.project(only(r.weight), y, x, 0, rows, v.Dtype())
}

// rowBytes is the size of one of the rows that w is multiplied with.
func (c *call) rowBytes(w *op.Weight) int64 { return int64(w.Cols) * int64(c.o.dtype().Size()) }

// DeferLogits implements lmhead.Deferrer for an op.Logits.
func (o *Op) DeferLogits() func(rows int) lmhead.Logits {
	r, ok := o.runner.(*logits)
	if !ok {
		return nil
	}
	r.later = &logitsLater{o: o, weight: r.weight}
	return func(rows int) lmhead.Logits { return laterLogits{r.later, rows} }
}

// logitsLater is what the logits of a step are computed from.
type logitsLater struct {
	o      *Op
	weight *op.Weight // [vocab, features]
	device *device    // of the latest step
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
	xKey     struct{ l *logitsLater }
	afterKey struct {
		l *logitsLater
		i int
	}
)

// run is the operator's: it keeps the rows x, and finds the memory for what comes after the
// step.
func (l *logitsLater) run(c *call, x cu.DevicePtr, rows int) (gorgonia.Value, error) {
	bytes := int64(rows) * c.rowBytes(l.weight)
	kept, err := c.keep(xKey{l}, bytes, exec.Activations)
	if err != nil {
		return nil, err
	}
	next := logitsLater{o: l.o, weight: l.weight, device: c.device, x: kept, rows: rows, host: l.host}
	for i, after := range []struct {
		at    *cu.DevicePtr
		bytes int64
	}{
		{&next.y, 4 * int64(next.chunk()) * int64(l.weight.Rows)},
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

// do calls f on the GPU of the latest step.
func (l *logitsLater) do(f func(c *call) error) error {
	if l.device == nil {
		return fmt.Errorf("%v: no step was run", l.o)
	}
	err := l.device.runOnEngine(func() error {
		c := &call{device: l.device, o: l.o, workspace: l.workspace}
		// The operators' results never went to the machine, so nobody has asked yet
		// what they found wrong.
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

// chunk is the number of rows of logits that exist at a time. It does not depend on
// how many are wanted, so that the same memory serves every step.
func (l *logitsLater) chunk() int { return max(2, min(l.rows, logitsBytes/(4*l.weight.Rows))) }

// productRows is what the numbers of rows that are multiplied at once are multiples of,
// where there are as many. From step to step fewer rows are wanted, and cuBLASLt has
// another kernel for almost every number of them, which it takes 4 ms to load; up to 128
// rows the product takes as long as it takes to read the weight.
const productRows = 128

// compute queues the logits of count rows from each of the given ones on, to y, one
// after the other. More rows than these may be computed, within the chunk.
func (l *logitsLater) compute(c *call, y cu.DevicePtr, count int, from ...int) error {
	if len(from) == 2 && from[0]+count == from[1] { // reads the weight once
		count, from = 2*count, from[:1]
	}
	for i, first := range from {
		x, to := l.x+cu.DevicePtr(int64(first)*c.rowBytes(l.weight)), y+cu.DevicePtr(4*i*count*l.weight.Rows)
		rows := (count + productRows - 1) / productRows * productRows
		rows = min(rows, l.rows-first, l.chunk()-i*count) // the next product writes over what is too much
		if err := c.project(only(l.weight), to, x, 0, rows, tensor.Float32); err != nil {
			return err
		}
	}
	return nil
}

// laterLogits are the logits of the first rows of the latest step.
type laterLogits struct {
	*logitsLater
	wanted int
}

func (l laterLogits) Size() (rows, vocab int) { return l.wanted, l.weight.Rows }

func (l laterLogits) Rows(count int, from ...int) ([][]float32, error) {
	vocab := l.weight.Rows
	if need := len(from) * count * vocab; len(l.host) < need {
		l.host = make([]float32, need)
	}
	err := l.do(func(c *call) error {
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

func (l laterLogits) ApplyRule(rule *lmhead.Rule) (out []lmhead.Choice, err error) {
	n, most, vocab := l.wanted, l.chunk(), l.weight.Rows
	guided := rule.Guidance != 0
	if guided {
		n, most = n/2, most/2
	}
	err = l.do(func(c *call) error {
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
			if err := c.choose(y, u, at+cu.DevicePtr(uintptr(lo)*unsafe.Sizeof(choice{})), count, vocab, rule); err != nil {
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

// choose queues the choices of a rule for rows of vocab logits each; u is 0 without
// guidance.
func (c *call) choose(logits, u, out cu.DevicePtr, rows, vocab int, rule *lmhead.Rule) error {
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
