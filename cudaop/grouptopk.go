//go:build cuda

package cudaop

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func init() {
	register(func(s exec.GroupTopK) (implementation, error) { return &groupTopK{s}, checkParams(s.Attention) })
}

// groupTopK runs op.NewGroupTopK. In a controller's layer the table is the layer's.
type groupTopK struct{ spec exec.GroupTopK }

func (r *groupTopK) shape([]tensor.Shape) error { return nil }
func (r *groupTopK) ownsResult() bool           { return r.spec.State != nil }

func (r *groupTopK) run(c *call) (gorgonia.Value, error) {
	st := r.spec.State
	if st == nil {
		return r.pure(c)
	}
	mode, err := c.begin(st, exec.SelectKeys)
	if err != nil {
		return nil, err
	}
	defer c.addTime(st, mode, time.Now())
	var pass exec.Pass
	if !c.isPlan() {
		pass = st.Step().Pass()
	}
	if r.spec.Selection.Unchanging() {
		if pass.Rows < pass.Len { // ColumnSparseAttn knows its rows
			return placeholder(), nil
		}
		if r.spec.Selection.Kind == exec.SelectFixed {
			if err := r.upload(c); err != nil {
				return nil, err
			}
		}
		if c.isPlan() {
			return placeholder(), nil
		}
		r.spec.MakeTable()
		return placeholder(), nil
	}
	c.drop(nextKey{st})
	if c.isPlan() {
		return placeholder(), nil
	}
	switch {
	case mode == exec.Reuse && pass.Kind == exec.BlockStep:
		if !st.BlockBuilt() {
			return nil, fmt.Errorf("%w: of the block", op.ErrStale)
		}
		return placeholder(), nil
	case mode == exec.Reuse && !st.Built():
		return nil, op.ErrStale
	}
	if pass.Select {
		if err := c.selectedBlock(r.spec.Attention); err != nil {
			return nil, err
		}
	}
	if mode == exec.Refresh {
		if err := r.rebuild(c); err != nil {
			return nil, err
		}
	}
	return placeholder(), nil // ColumnSparseAttn reads the layer's table
}

// rebuild copies the table that ScoreCollect has computed over the layer's. The address
// stays, so that the commands of a step are those of the previous step of its mode.
func (r *groupTopK) rebuild(c *call) error {
	l, ok := r.spec.State.Device().(*layer)
	if !ok || l.runner != c.runner || l.fresh == 0 {
		return fmt.Errorf("%w: no scores", op.ErrOrder)
	}
	had := r.spec.State.Built()
	r.spec.State.BeginRefresh()
	defer func() { l.fresh = 0 }()
	if err := errors.Join(c.compare(l), c.queue.copy(l.bits, l.fresh, l.bytes())); err != nil {
		return err
	}
	r.spec.State.CommitRefresh(had)
	return nil
}

// upload copies the user's table to the GPU, if it is not there, without the keys that are
// padding.
func (r *groupTopK) upload(c *call) error {
	given, batch := r.spec.State.Given(), r.tableRows(c.in[len(c.in)-1].Shape())
	pad, err := c.padding(r.spec.Attention, batch, given.Len)
	if err != nil {
		return err
	}
	l, err := c.layer(r.spec.State, batch, given.Heads, given.Len, given.Group)
	if err != nil || c.isPlan() || slices.Equal(l.keys, pad.keys) {
		return err
	}
	bits := given.Bits
	if r.spec.Masked {
		bits = withoutPadding(given, pad.keys)
	}
	l.keys = nil
	if err := c.queue.toGPU(l.bits, unsafe.Pointer(&bits[0]), l.bytes()); err != nil {
		return fmt.Errorf("cudaop: columns: %w", err)
	}
	l.keys = pad.keys
	return nil
}

// tableRows is the number of batch rows of the user's table on the GPU: with a padding mask of
// the shape, one for each of the mask's.
func (r *groupTopK) tableRows(mask tensor.Shape) int {
	if r.spec.Masked {
		return mask[0]
	}
	return r.spec.State.Given().Batch
}

// withoutPadding returns the bits of a table for len(keys) batch rows. keys has the number of
// real keys of each row, which are the last ones.
func withoutPadding(t *exec.ColumnBits, keys []int) []uint32 {
	size, w := len(t.Bits)/t.Batch, words(t.Len)
	bits := make([]uint32, 0, size*len(keys))
	for b, real := range keys {
		from := t.Bits
		if t.Batch > 1 {
			from = t.Bits[b*size:]
		}
		first := t.Len - real
		for row := range slices.Chunk(from[:size], w) {
			at := len(bits)
			bits = append(bits, row...)
			clear(bits[at : at+first/32])
			if first%32 != 0 {
				bits[at+first/32] &^= 1<<(first%32) - 1
			}
		}
	}
	return bits
}

// compare queues the count of the query-key pairs that a layer's next table keeps, and of
// those of them that the current table does not. Waiting for the counts would delay the next
// layers, so layer.DensityAndChurn copies them on request.
func (c *call) compare(l *layer) error {
	k, err := c.kernel("columnpairs", "columnpairs")
	if err != nil {
		return err
	}
	if err := c.queue.fill(l.pairs, 0, pairsBytes/4); err != nil {
		return err
	}
	u := groups(l.n, l.group)
	if err := k.launch(l.batch*l.heads*u, address(l.fresh), address(l.bits), address(l.pairs), integer(u), integer(l.n), integer(min(l.group, l.n))); err != nil {
		return err
	}
	l.unread = true
	return nil
}

// pure is the operator outside a controller's layer: a table for the machine.
func (r *groupTopK) pure(c *call) (gorgonia.Value, error) {
	s := c.in[0].Shape()
	v, bits, err := c.machineResult(tensor.Uint32, s[0], s[1], s[2], words(r.spec.Len))
	if err != nil {
		return nil, err
	}
	scores, err := c.at(0, tensor.Float32)
	if err != nil {
		return nil, err
	}
	keep, err := c.keepCounts(r.spec.Attention, slices.Repeat([]int{r.spec.Len}, s[0]))
	if err != nil {
		return nil, err
	}
	return v, c.topk(scores, bits, keep, 0, s[0], s[1], s[2], r.spec.Len, r.spec.Len, scoresFloat)
}
