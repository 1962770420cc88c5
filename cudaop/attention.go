//go:build cuda

package cudaop

import (
	"fmt"
	"math"
	"slices"

	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/gpu"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// checkParams returns an error for parameters that GPU operators support in a controller's
// layer only: outside one their results are scores and column tables of the machine.
func checkParams(p exec.Attention) error {
	switch {
	case p.State != nil:
	case p.Selection.Kind != exec.SelectColumns:
		return fmt.Errorf("%w: selection %v needs a controller on the GPU", op.ErrValue, p.Selection.Kind)
	case p.Selection.ScoreScale != 0:
		return fmt.Errorf("%w: a score scale of its own needs a controller on the GPU", op.ErrValue)
	case p.Masked:
		return fmt.Errorf("%w: a padding mask needs a controller on the GPU", op.ErrValue)
	}
	return nil
}

// checkAttention checks q and k against the kernels' limits.
func checkAttention(in []tensor.Shape) error {
	if n := in[1][2]; n > gpu.MaxLen {
		return fmt.Errorf("%w: %d tokens, the GPU kernels take at most %d", op.ErrShape, n, gpu.MaxLen)
	}
	return gpu.CheckHeadDim(in[0][3])
}

// heads is the shape of an attention layer and its inputs on the GPU.
type heads struct {
	batch, heads, kvHeads, n, dim int
	rows                          int          // of q; n unless keys are cached
	from, to                      int          // rows whose scores count
	dt                            tensor.Dtype // of q, k and v
	q, k, v                       cu.DevicePtr
	scale                         float64
	padding
	span cu.DevicePtr // range of the selected queries, the end exclusive; 0 for all
}

// heads converts q, k and v to the kernels' type and layout, and reads the padding mask, if
// there is one. For head dimensions without a bfloat16 kernel they are float32.
func (c *call) heads(p exec.Attention) (*heads, error) {
	q, kv := c.in[0].Shape(), c.in[1].Shape()
	h := &heads{batch: q[0], heads: q[1], kvHeads: kv[1], n: kv[2], dim: q[3], rows: q[2], to: q[2], scale: p.Scale, dt: c.o.headType(q[3])}
	if h.scale == 0 {
		h.scale = 1 / math.Sqrt(float64(h.dim))
	}
	var err error
	for i, at := range []*cu.DevicePtr{&h.q, &h.k, &h.v} {
		if *at, err = c.as(h.dt, i); err != nil {
			return nil, err
		}
	}
	h.padding, err = c.padding(p, h.batch, h.n)
	return h, err
}

// headType is the type of q, k and v in attention: the operator's, or float32 for head
// dimensions without a bfloat16 kernel.
func (o *deviceOp) headType(dim int) tensor.Dtype {
	if !slices.Contains(gpu.BF16Dims, dim) {
		return tensor.Float32
	}
	return o.dtype()
}

// selected is heads for an operator that may have rows as its fifth input.
func (c *call) selected(p exec.Attention) (*heads, error) {
	h, err := c.heads(p)
	if err != nil || !p.Rows {
		return h, err
	}
	rows, err := c.at(4, tensor.Int32)
	if err != nil {
		return nil, err
	}
	if h.span, err = c.scratch(8); err != nil {
		return nil, err
	}
	k, err := c.kernel("queryrange", "queryrange")
	if err != nil {
		return nil, err
	}
	return h, k.launch(1, address(rows), address(h.span), integer(c.in[4].Shape()[0]), integer(h.batch), integer(h.rows))
}

// output is where attention writes its result: in the layout BHND, [B,H,N,D], or BNHD,
// [B,N,H,D], which MergeHeads returns.
type output struct {
	at   cu.DevicePtr
	dt   tensor.Dtype
	bnhd bool
}

// attentionResult is result for attention. A value in the operators' own memory has the
// layout BNHD.
func (c *call) attentionResult() (gorgonia.Value, output, error) {
	v, at, err := c.result(c.in[0].Shape()...)
	if err != nil {
		return nil, output{}, err
	}
	t, ours := v.(*deviceTensor)
	if ours {
		t.bnhd = true
	}
	return v, output{at, v.Dtype(), ours}, nil
}

// Element types of scores, as the kernels number them.
const (
	scoresLog16 = 0
	scoresFloat = 1
)

// dense queues full attention. lse may be 0.
func (c *call) dense(h *heads, out output, lse cu.DevicePtr) error {
	args := []uint64{
		address(out.at), address(lse), address(h.start),
		integer(h.batch), integer(h.heads), integer(h.kvHeads), integer(h.n), float(h.scale), elementType(out.dt), flag(out.bnhd), address(h.span),
	}
	if h.dt != tensor.Float32 && c.isHopper() {
		k, err := c.kernel("denseattn_sm90", fmt.Sprintf("denseattn_sm90_d%d", h.dim))
		if err != nil {
			return err
		}
		queries, keys := h.batch*h.heads, h.batch*h.kvHeads
		maps := []matrices{{h.q, queries, h.n, h.dim}, {h.k, keys, h.n, h.dim}, {h.v, keys, h.n, h.dim}}
		return k.launchMapped(maps, k.items(queries, h.n), args...)
	}
	file := "denseattn_sm80"
	if h.dt == tensor.Float32 {
		file = "denseattn_" + exact
	}
	return c.attend(h, file, "", h.batch*h.heads, h.n, append([]uint64{address(h.q), address(h.k), address(h.v)}, args...)...)
}

// exact is the suffix of the file names of kernels for float32.
const exact = "f32"

// attend queues a kernel of file for the head dimension, whose name ends in variant,
// for n rows in each of count parts.
func (c *call) attend(h *heads, file, variant string, count, n int, args ...uint64) error {
	dim := h.dim
	if h.dt == tensor.Float32 { // kernels for a dimension and smaller ones
		for _, dim = range exactDims {
			if dim >= h.dim {
				break
			}
		}
		args = append(args, integer(h.dim))
	}
	k, err := c.kernel(file, fmt.Sprintf("%s_d%d%s", file, dim, variant))
	if err != nil {
		return err
	}
	return k.launchRows(count, n, args...)
}

// window queues attention of each query to the keys at most reach away from it and
// to the first sinks keys.
func (c *call) window(h *heads, out output, reach, sinks int) error {
	file := "window_sm80"
	if h.dt == tensor.Float32 {
		file = "window_" + exact
	}
	return c.attend(h, file, "", h.batch*h.heads, h.n,
		address(h.q), address(h.k), address(h.v), address(out.at), address(0), address(h.start),
		integer(min(reach, h.n)), integer(sinks),
		integer(h.batch), integer(h.heads), integer(h.kvHeads), integer(h.n), float(h.scale), elementType(out.dt), flag(out.bnhd), address(h.span))
}

// table is a column table on the GPU: bits [batch or 1, heads or 1, groups, words].
type table struct {
	bits         cu.DevicePtr
	batch, heads int
}

// sparse queues attention over the columns of a table.
func (c *call) sparse(h *heads, t table, out output, group int) error {
	group = c.kernelGroup(h.n, group)
	u, w := groups(h.n, group), words(h.n)
	batchStride, headStride := t.heads*u*w, u*w
	if t.batch == 1 {
		batchStride = 0
	}
	if t.heads == 1 {
		headStride = 0
	}
	args := []uint64{
		address(h.q), address(h.k), address(h.v), address(out.at), address(0), address(t.bits),
		integer(batchStride), integer(headStride),
		integer(h.batch), integer(h.heads), integer(h.kvHeads), integer(h.n), integer(group), float(h.scale), elementType(out.dt), flag(out.bnhd), address(h.span),
	}
	switch {
	case h.dt == tensor.Float32:
		return c.attend(h, "columnsparse_"+exact, "", h.batch*h.heads*u, group, args...)
	case c.hopperGroup(group):
		return c.attend(h, "columnsparse_sm90", fmt.Sprintf("_g%d", group), h.batch*h.heads, h.n, args...)
	}
	return c.attend(h, "columnsparse_sm80", "", h.batch*h.heads*u, group, args...)
}

// hopperGroup reports whether there is a kernel for Hopper for the group size.
func (c *call) hopperGroup(group int) bool {
	return c.isHopper() && slices.Contains([]int{16, 32, 64, 128}, group)
}

// kernelGroup returns the argument for a kernel's group size with n queries: a size of the
// Hopper kernels unchanged, any other at most n, which means one group as well.
func (c *call) kernelGroup(n, group int) int {
	if c.hopperGroup(group) {
		return group
	}
	return min(group, n)
}

// scores queues the scores of all groups from the log-sum-exp of full attention: those of
// the rows h.from .. h.to-1, in groups from the first of them on. The distance between rows of
// the result is pitch elements.
func (c *call) scores(h *heads, lse, scores cu.DevicePtr, group, pitch, kind int) error {
	whole := h.to-h.from == h.n
	if whole {
		group = c.kernelGroup(h.n, group)
	} else {
		group = min(group, h.n)
	}
	args := []uint64{
		address(h.q), address(h.k), address(lse), address(scores), address(h.start),
		integer(h.batch), integer(h.heads), integer(h.kvHeads), integer(h.n), integer(group), float(h.scale), integer(pitch), integer(kind),
	}
	if whole && h.dt != tensor.Float32 && c.hopperGroup(group) {
		return c.attend(h, "scorecollect_sm90", fmt.Sprintf("_g%d", group), h.batch*h.heads, h.n, args...)
	}
	first := 0
	if h.rows < h.n && !c.isPlan() {
		first = c.o.BoundTo().Pass().First
	}
	args = append(args, integer(h.rows), integer(h.from), integer(h.to), integer(first))
	if h.dt == tensor.Float32 {
		k, err := c.kernel("scorecollect_"+exact, "scorecollect_"+exact)
		if err != nil {
			return err
		}
		return k.launchRows(h.batch*h.heads, h.n, append(args, integer(h.dim))...)
	}
	return c.attend(h, "scorecollect_sm80", "", h.batch*h.heads, h.n, args...)
}

// perRow writes a number for each batch row to the GPU, as int32. It sets memory, because a
// copy from the host may wait for queued work.
func (c *call) perRow(batch int, number func(b int) int) (cu.DevicePtr, error) {
	at, err := c.scratch(4 * int64(batch))
	if err != nil {
		return 0, err
	}
	for first, end := 0, 0; first < batch; first = end { // rows with one number
		for end = first + 1; end < batch && number(end) == number(first); end++ {
		}
		if err := c.queue.fill(at+cu.DevicePtr(4*first), uint32(number(first)), int64(end-first)); err != nil {
			return 0, err
		}
	}
	return at, nil
}

// keepCounts writes the number of columns that each batch row keeps to the GPU.
func (c *call) keepCounts(p exec.Attention, keys []int) (cu.DevicePtr, error) {
	return c.perRow(len(keys), func(b int) int { return p.Keep(keys[b]) })
}

// topk queues the selection of the highest of the n scores of each of u groups, keep of each
// batch row.
func (c *call) topk(scores, bits, keep, start cu.DevicePtr, batch, heads, u, n, pitch, kind int) error {
	name := "grouptopk_log16"
	if kind == scoresFloat {
		name = "grouptopk_f32"
	}
	k, err := c.kernel("grouptopk", name)
	if err != nil {
		return err
	}
	return k.launch(batch*heads*u, address(scores), address(bits), address(keep), address(start),
		integer(batch), integer(heads), integer(u), integer(n), integer(pitch))
}

func groups(n, group int) int { return (n-1)/group + 1 }
func words(n int) int         { return (n + 31) / 32 }
