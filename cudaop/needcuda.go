//go:build cuda

package cudaop

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/cu"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// reserve is left to the driver and to libraries when a need is held against the
// memory that is free: modules take some, and kernels that spill.
const reserve = 256 << 20

// CheckRoom returns an error that wraps ErrMemory if steps of a machine's graph
// take more than is free on its GPU. refreshes is as in PlanMemory.
func CheckRoom(vm gorgonia.VM, g *gorgonia.ExprGraph, refreshes bool) error {
	m, ok := vm.(gorgonia.CUDAMachine)
	if !ok || !slices.ContainsFunc(g.AllNodes(), isTwin) {
		return nil
	}
	need, err := PlanMemory(g, refreshes)
	if err != nil {
		return err
	}
	d, err := deviceOf(m, 0)
	if err != nil {
		return err
	}
	var free, all int64
	if err := d.do(func() (err error) { free, all, err = memInfo(); return err }); err != nil {
		return fmt.Errorf("cudaop: free memory: %w", err)
	}
	if need.Total()+reserve > free {
		return fmt.Errorf("cudaop: %w: the graph needs %s (weights %s, column tables %s, scores %s, activations %s, inputs and results %s); of the GPU's %s are %s free, of which %s stay in reserve",
			ErrMemory, gib(need.Total()), gib(need.Weights), gib(need.Columns), gib(need.Scores), gib(need.Activations), gib(need.Machine), gib(all), gib(free), gib(reserve))
	}
	return nil
}

func isTwin(n *gorgonia.Node) bool { _, ok := n.Op().(*Op); return ok }

// PlanMemory returns the GPU memory that steps of a graph take that a Workspace has
// planned, by going through what its operators allocate, without a GPU. refreshes
// says whether the steps are refreshes and reuses, or full attention alone.
func PlanMemory(g *gorgonia.ExprGraph, refreshes bool) (Need, error) {
	order, err := inOrder(g)
	if err != nil {
		return Need{}, err
	}
	r := newRehearsal(order)
	modes := []op.Mode{op.Dense}
	if refreshes {
		modes = []op.Mode{op.Refresh, op.Reuse}
	}
	for _, mode := range modes {
		for _, n := range order {
			if isTwin(n) {
				r.run(n, mode)
			}
		}
		for _, after := range r.after {
			after()
		}
		r.after = nil
	}
	return r.need, nil
}

// inOrder returns the nodes of a graph as a tape machine runs them.
func inOrder(g *gorgonia.ExprGraph) (gorgonia.Nodes, error) {
	order, err := gorgonia.Sort(g)
	if err != nil {
		return nil, fmt.Errorf("cudaop: order of the graph: %w", err)
	}
	slices.Reverse(order) // Sort lists results before what they are made of
	return order, nil
}

// rehearsal goes through the allocations of a graph's operators.
type rehearsal struct {
	memory  memory
	values  map[*gorgonia.Node]*resident
	leaves  map[*gorgonia.Node]cu.DevicePtr
	layers  map[*op.State]*layer
	outputs map[*op.State]tensor.Shape // of attention, [B,H,N,D]
	after   []func()                   // what follows the step
	need    Need
}

func newRehearsal(order gorgonia.Nodes) *rehearsal {
	r := &rehearsal{values: map[*gorgonia.Node]*resident{}, leaves: map[*gorgonia.Node]cu.DevicePtr{}, layers: map[*op.State]*layer{}, outputs: map[*op.State]tensor.Shape{}}
	last, padded := cu.DevicePtr(0), false
	r.memory = newMemory(func(int64) (cu.DevicePtr, error) { last++; return last, nil })
	for _, w := range weightsOf(order) {
		r.need.Weights += w.bytes()
	}
	for _, n := range order {
		o, ok := n.Op().(*Op)
		if n.Op() == nil || ok && o.CallsExtern() {
			r.need.Machine += int64(n.Shape().TotalSize()) * int64(n.Dtype().Size())
		}
		if !ok {
			continue
		}
		switch t := o.runner.(type) {
		case *columnSparseAttn:
			if t.p.State == nil {
				break
			}
			r.outputs[t.p.State] = n.Shape()
			if t.p.Masked && !padded { // one mask for all layers
				padded = true
				r.get(paddingBytes(n.Shape()[0]), &r.need.Activations)
			}
		case *takeHeads:
			if t.frequencies != nil {
				r.get(8*int64(len(t.frequencies)), &r.need.Activations)
			}
		case *logits:
			if t.later != nil {
				r.get(int64(n.Shape()[0])*int64(t.weight.Cols)*o.size(), &r.need.Activations)
			}
		}
	}
	r.get(blasWorkspace, &r.need.Activations)
	return r
}

// get takes memory, by which a part of the need grows if it is new.
func (r *rehearsal) get(bytes int64, part *int64) cu.DevicePtr {
	before := r.memory.bytes
	p, _ := r.memory.get(bytes) // this one's driver has no end
	*part += r.memory.bytes - before
	return p
}

// size is that of an element between twins of o's precision.
func (o *Op) size() int64 { return int64(o.dtype().Size()) }

// run takes and gives back what an operator does in a step.
func (r *rehearsal) run(n *gorgonia.Node, mode op.Mode) {
	o, s := n.Op().(*Op), n.Shape()
	var inputs gorgonia.Nodes
	for it := n.Graph().From(n.ID()); it.Next(); {
		inputs = append(inputs, it.Node().(*gorgonia.Node))
	}
	var scratch []cu.DevicePtr
	room := func(bytes int64) { scratch = append(scratch, r.get(bytes, &r.need.Activations)) }
	check := func() {
		p := r.get(4, &r.need.Activations)
		r.after = append(r.after, func() { r.memory.put(p) })
	}
	for _, in := range inputs {
		bytes := int64(in.Shape().TotalSize()) * int64(in.Dtype().Size())
		if in.Op() == nil && bytes <= leafBytes && r.leaves[in] == 0 {
			r.leaves[in] = r.get(bytes, &r.need.Activations)
		}
	}
	switch t := o.runner.(type) {
	case *scoreCollect:
		if mode == op.Refresh && t.p.State != nil {
			r.collect(o, t.p, inputs[1].Shape()[1], room)
		}
	case *groupTopK:
		if l := r.layers[t.p.State]; mode == op.Refresh && l != nil {
			r.choose(l)
		}
		if t.p.Selection.Kind == op.SelectFixed && r.layers[t.p.State] == nil {
			g := t.p.State.Given()
			r.layer(t.p.State, &layer{batch: t.tableRows(inputs[len(inputs)-1].Shape()), heads: g.Heads, n: g.Len, group: g.Group})
		}
	case *columnSparseAttn:
		at := cu.DevicePtr(0)
		if l := r.layers[t.p.State]; mode == op.Refresh && l != nil {
			at = l.out
		} else if t.p.Rows {
			room(8) // the span of the rows
		}
		r.keep(n, at)
		r.attended(n)
	case *denseAttn:
		if t.p.Masked {
			room(paddingBytes(s[0]))
		}
		r.keep(n, 0)
		r.attended(n)
	case mergeHeads:
		at := cu.DevicePtr(0)
		if v := r.values[inputs[0]]; v != nil && v.byTokens {
			at = r.over(o, inputs, 0)
		}
		r.keep(n, at)
	case *embedding:
		r.keep(n, 0)
		check()
	case *linear:
		at := cu.DevicePtr(0)
		if t.residual {
			at = r.over(o, inputs, 1)
		}
		r.keep(n, at)
	case *swiGLU:
		r.keep(n, 0)
		rows, row := t.together(s[0]*s[1], o.size())
		room(int64(rows) * row)
	case *logits:
		r.logits(t, s[0])
		r.keep(n, 0)
	case takeRows:
		r.keep(n, 0)
		check()
	default:
		r.keep(n, 0)
	}
	for _, in := range inputs {
		if v := r.values[in]; v != nil && v.byTokens && v.at != 0 { // which is read by heads
			room(int64(in.Shape().TotalSize()) * o.size())
		}
	}
	for _, p := range scratch {
		r.memory.put(p)
	}
	for i, in := range inputs {
		v := r.values[in]
		if v == nil || slices.Contains(inputs[:i], in) { // a node that is an input twice is one reader
			continue
		}
		if v.readers--; v.readers == 0 {
			delete(r.values, in)
			r.memory.put(v.at)
		}
	}
}

// keep gives a node's value its memory, unless that is the machine's or nobody's:
// at, or new memory for 0.
func (r *rehearsal) keep(n *gorgonia.Node, at cu.DevicePtr) {
	o := n.Op().(*Op)
	_, readers := o.Planned()
	if readers == 0 {
		r.memory.put(at)
		return
	}
	if at == 0 {
		at = r.get(int64(n.Shape().TotalSize())*o.size(), &r.need.Activations)
	}
	r.values[n] = &resident{at: at, readers: readers}
}

// attended makes what keep has kept an output of attention, as call.attended.
func (r *rehearsal) attended(n *gorgonia.Node) {
	if v := r.values[n]; v != nil {
		v.byTokens = true
	}
}

// over is call.over.
func (r *rehearsal) over(o *Op, inputs gorgonia.Nodes, i int) cu.DevicePtr {
	_, readers := o.Planned()
	v := r.values[inputs[i]]
	for j, other := range inputs {
		if v == nil || readers == 0 || v.readers != 1 || j != i && other == inputs[i] {
			return 0
		}
	}
	at := v.at
	v.at = 0
	return at
}

// layer is call.layer.
func (r *rehearsal) layer(s *op.State, l *layer) {
	l.bits = r.get(l.bytes(), &r.need.Columns)
	r.get(pairsBytes, &r.need.Columns)
	r.layers[s] = l
}

// collect is a refresh of ScoreCollect: full attention, and from its scores, part by
// part, the next column table. See call.refresh.
func (r *rehearsal) collect(o *Op, p op.AttentionParams, kvHeads int, room func(int64)) {
	s, sel := r.outputs[p.State], p.Selection
	if s == nil || sel.Unchanging() {
		return
	}
	l := r.layers[p.State]
	if l == nil {
		l = &layer{batch: s[0], heads: s[1], n: s[2], group: p.Group}
		r.layer(p.State, l)
	}
	output := int64(s.TotalSize()) * o.size()
	l.out = r.get(output, &r.need.Activations)
	l.fresh = r.get(l.bytes(), &r.need.Columns)
	room(4 * int64(l.batch) * int64(l.heads) * int64(l.n)) // log-sum-exp
	if sel.ScoreScale != 0 {
		room(output)
	}
	h := &heads{batch: l.batch, heads: l.heads, kvHeads: kvHeads, n: l.n, dim: s[3], dt: o.dtype(), padding: padding{keys: make([]int, l.batch)}}
	pitch, _, size := o.scoreForm(l.n)
	head := int64(groups(l.n, l.group)) * int64(pitch) * size
	most := h.parts(int(max(1, scoreBytes/head)))[0].h
	var scores []cu.DevicePtr // all until the operator is done
	defer func() {
		for _, p := range scores {
			r.memory.put(p)
		}
	}()
	inParts := func() { scores = append(scores, r.get(head*int64(most.batch*most.heads), &r.need.Scores)) }
	perRow := func() { room(4 * int64(l.batch)) }
	if sel.Kind == op.SelectColumns {
		perRow() // columns to keep
		inParts()
		return
	}
	b, rows := blocksOf(sel, l.n), int64(l.batch)*int64(l.heads)*int64(groups(l.n, l.group))
	room(4 * rows * int64(b.width())) // sums
	for i, n := range []int{b.all, b.behind()} {
		if n == 0 {
			continue
		}
		if i > 0 { // the softmax over the generation
			perRow()
			room(output)
		}
		inParts()
		perRow() // blocks to keep
		perRow() // the first of them
		room(4 * rows * int64(words(n)))
	}
}

// choose is a refresh of GroupTopK: the next column table is copied over the old.
func (r *rehearsal) choose(l *layer) {
	r.memory.put(l.fresh)
	l.fresh = 0
}

// logits is the head if it comes after the step.
func (r *rehearsal) logits(t *logits, rows int) {
	if t.later == nil {
		return
	}
	r.after = append(r.after, func() {
		later := logitsLater{weight: t.weight, rows: rows}
		y := r.get(4*int64(later.chunk())*int64(t.weight.Rows), &r.need.Activations)
		choices := r.get(int64(rows)*int64(unsafe.Sizeof(choice{})), &r.need.Activations)
		r.memory.put(choices)
		r.memory.put(y)
	})
}
