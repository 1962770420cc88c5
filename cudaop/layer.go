//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
)

// layer is the state of one attention layer's operators on the GPU.
type layer struct {
	runner          *runner
	state           *exec.State
	batch, heads, n int
	group           int
	bits            cu.DevicePtr // the column table
	fresh           cu.DevicePtr // the next one, from ScoreCollect to GroupTopK
	out             cu.DevicePtr // full attention's output, from ScoreCollect to ColumnSparseAttn

	pairs  cu.DevicePtr // counts of query-key pairs: those that the table keeps, and of these those that the previous table did not
	counts [2]int64     // the same on the host
	unread bool         // the GPU has counted since

	block *columnLists // of the active rows; nil before they are selected

	keys []int // real keys of each batch row if bits hold the user's table for them, else nil
}

// pairsBytes is the size of a layer's counts.
const pairsBytes = 16

// The keys of memory that a layer keeps or hands off.
type (
	tableKey struct{ s *exec.State } // the column table
	pairsKey struct{ s *exec.State } // its counts
	nextKey  struct{ s *exec.State } // the next column table, from ScoreCollect to GroupTopK
	outKey   struct{ s *exec.State } // full attention's output, from ScoreCollect to ColumnSparseAttn
)

// layer returns the state on this device of the layer that s belongs to. It makes a new one if
// there is none for this device and shape.
func (c *call) layer(s *exec.State, batch, heads, n, group int) (*layer, error) {
	l := &layer{runner: c.runner, state: s, batch: batch, heads: heads, n: n, group: group}
	var err error
	if l.bits, err = c.keep(tableKey{s}, l.bytes(), exec.Columns); err != nil {
		return nil, err
	}
	if l.pairs, err = c.keep(pairsKey{s}, pairsBytes, exec.Columns); err != nil || c.isPlan() {
		return l, err
	}
	if have, ok := s.Device().(*layer); ok {
		if have.runner == c.runner && have.bits == l.bits && have.batch == batch && have.heads == heads && have.n == n && have.group == group {
			return have, nil
		}
		if have.runner == c.runner { // locked by this call: DensityAndChurn would wait for ever
			if err := have.count(); err != nil {
				return nil, err
			}
		}
		s.SetDevice(nil, 0)
		delete(have.runner.layers, have) // of another machine, or another length
	}
	c.layers[l] = struct{}{}
	s.SetDevice(l, l.bytes())
	return l, nil
}

// bytes is the size of the column table.
func (l *layer) bytes() int64 {
	return 4 * int64(l.batch) * int64(l.heads) * int64(groups(l.n, l.group)) * int64(words(l.n))
}

// Columns copies the column table to the host.
func (l *layer) Columns() (exec.ColumnBits, error) {
	b := exec.ColumnBits{Batch: l.batch, Heads: l.heads, Len: l.n, Group: l.group, Bits: make([]uint32, l.bytes()/4)}
	err := l.runner.flushed(func() error { return l.runner.queue.toHost(unsafe.Pointer(&b.Bits[0]), l.bits, l.bytes()) })
	if errors.Is(err, errClosed) {
		return exec.ColumnBits{}, fmt.Errorf("cudaop: %w: %v", op.ErrStale, err)
	}
	if err != nil {
		return exec.ColumnBits{}, fmt.Errorf("cudaop: copy columns: %w", err)
	}
	return b, nil
}

// BlockBits copies the columns of the block to the host.
func (l *layer) BlockBits(words int) ([]uint32, error) {
	bits := make([]uint32, words)
	err := l.runner.flushed(func() error { return l.runner.queue.toHost(unsafe.Pointer(&bits[0]), l.block.bits, 4*int64(words)) })
	if errors.Is(err, errClosed) {
		return nil, fmt.Errorf("cudaop: %w: %v", op.ErrStale, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cudaop: copy columns: %w", err)
	}
	return bits, nil
}

// DensityAndChurn implements exec.DeviceState.
func (l *layer) DensityAndChurn() (density, churn float64, err error) {
	if l.unread { // false after the machine is closed
		if err := l.runner.flushed(l.count); err != nil {
			return 0, 0, err
		}
	}
	kept, added := float64(l.counts[0]), float64(l.counts[1])
	if kept > 0 {
		churn = added / kept
	}
	return kept / (float64(l.batch*l.heads) * float64(l.n) * float64(l.n)), churn, nil
}

// count copies the counts to the host, if they are not there.
func (l *layer) count() error {
	if !l.unread {
		return nil
	}
	var counts [2]int64
	if err := l.runner.queue.toHost(unsafe.Pointer(&counts), l.pairs, pairsBytes); err != nil {
		return fmt.Errorf("cudaop: pairs: %w", err)
	}
	l.counts, l.unread = counts, false
	return nil
}

// Drop drops the data of a failed step.
func (l *layer) Drop() { l.fresh, l.out = 0, 0 }

// Free frees the memory that belongs to no graph's plan.
func (l *layer) Free() error {
	l.Drop()
	err := l.runner.flushed(func() error {
		delete(l.runner.layers, l)
		var err error
		for _, key := range []any{tableKey{l.state}, pairsKey{l.state}, nextKey{l.state}, outKey{l.state},
			cacheKey{l.state, exec.Keys}, cacheKey{l.state, exec.Values}, listsKey{l.state, 0}, listsKey{l.state, 1}, listsKey{l.state, 2}, listsKey{l.state, 3}} {
			err = errors.Join(err, l.runner.dropLoose(key))
		}
		return err
	})
	if errors.Is(err, errClosed) { // the device has freed all memory
		return nil
	}
	return err
}
