package cacheref

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulsecol/pulsecol/internal/lmhead"
	"github.com/pulsecol/pulsecol/internal/sampler"
)

// Cache says which rows' keys and values are kept between the forwards of a block.
type Cache string

// The caches.
const (
	None   Cache = "none"   // none: every forward is of all rows
	Prefix Cache = "prefix" // of the rows before the active ones
	Dual   Cache = "dual"   // of all rows
)

// Options of a run.
type Options struct {
	Cache        Cache
	PrefillEvery int      // blocks from one prefill to the next; 0 is one prefill in all
	Columns      *Columns // nil is full attention
	Padding      []int    // tokens on the left of each sequence; nil is none
}

// Columns are the options of column-sparse attention.
type Columns struct {
	Sparsity  float64
	GroupSize int
	Refresh   []int // steps that refreshes fall due at, from 1
}

// Step describes a forward: its mode, its first row, and their number.
type Step struct {
	Mode  Mode
	First int
	Rows  int
}

// Run is a model in one generation.
type Run struct {
	Steps  []Step        // so far
	Logits [][][]float32 // of the latest forward: [sequence][row from First][token]

	model     *Model
	options   Options
	sequences [][]memory // [sequence][layer]
	block     int        // of the latest forward; -1 before it
	start     int        // first active row of that block
	previous  int        // first active row of the block before it
	due       bool       // a refresh is due
	table     bool       // there is a main table
}

// Run begins a generation.
func (m *Model) Run(o Options) *Run { return &Run{model: m, options: o, block: -1} }

// Main returns the columns in the main table, ascending.
func (r *Run) Main(sequence, layer, head, group int) []int {
	return r.sequences[sequence][layer].main[head][group]
}

// Block returns the columns of the block of the latest forward, ascending.
func (r *Run) Block(sequence, layer, head, group int) []int {
	return r.sequences[sequence][layer].block[head][group]
}

// Forward implements sampler.Forward.
func (r *Run) Forward(ctx context.Context, p sampler.Pass) (lmhead.Logits, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for len(r.sequences) < len(p.IDs) {
		r.sequences = append(r.sequences, make([]memory, len(r.model.layers)))
	}
	w := r.window(p.Block, len(p.IDs[0]))
	r.Steps = append(r.Steps, Step{w.mode, w.first, w.end - w.first})
	r.Logits = make([][][]float32, len(p.IDs))
	for b, ids := range p.IDs {
		r.Logits[b] = r.forward(b, ids, w)
	}
	var out lmhead.Host
	for _, row := range p.Rows {
		if row.Pos < w.first || row.Pos >= w.end {
			return nil, fmt.Errorf("cacheref: row %d of sequence %d: the forward has rows %d to %d", row.Pos, row.Batch, w.first, w.end-1)
		}
		out = append(out, r.Logits[row.Batch][row.Pos-w.first])
	}
	return out, nil
}

// window decides what the next forward computes, for sequences of n tokens.
func (r *Run) window(block sampler.Block, n int) window {
	o := &r.options
	isFirst := block.Index != r.block
	if isFirst {
		r.block, r.previous, r.start = block.Index, r.start, block.First
	}
	if o.Columns != nil && slices.Contains(o.Columns.Refresh, len(r.Steps)+1) {
		r.due = true
	}
	w := window{mode: Dense, end: n, active: block.First, beyond: n, blockEnd: block.End}
	if o.Cache == Dual {
		w.beyond = block.End
	}
	if o.Cache == None {
		w.beyond = w.active // no rows are active: all are in every forward
	}
	prefill := o.Cache == None || isFirst && (block.Index == 0 || o.PrefillEvery > 0 && block.Index%o.PrefillEvery == 0)
	if !prefill {
		w.end, w.first = w.beyond, w.active
		if isFirst {
			w.first = r.previous
		}
	}
	switch {
	case o.Columns == nil:
	case prefill && (r.due || !r.table):
		w.mode, r.due, r.table = Refresh, false, true
	case o.Cache == None:
		w.mode = Reuse
	case isFirst:
		w.mode = First
	default:
		w.mode = Within
	}
	return w
}

// forward returns the logits of the rows of w, for one sequence.
func (r *Run) forward(sequence int, ids []int32, w window) [][]float32 {
	m, pad := r.model, 0
	if r.options.Padding != nil {
		pad = r.options.Padding[sequence%len(r.options.Padding)] // guidance repeats the sequences
	}
	var rows [][]float64
	for _, id := range ids[w.first:w.end] {
		rows = append(rows, slices.Clone(m.embed[id]))
	}
	for i := range m.layers {
		l, mem := &m.layers[i], &r.sequences[sequence][i]
		if mem.keys == nil {
			mem.keys, mem.values = make([][]float64, len(ids)), make([][]float64, len(ids))
		}
		keys, values := slices.Clone(mem.keys), slices.Clone(mem.values)
		var queries [][]float64
		for n, x := range rows {
			x = m.rmsNorm(x, l.attentionNorm)
			q, k, v := l.q.apply(x), l.k.apply(x), l.v.apply(x)
			m.rotate(q, w.first+n)
			m.rotate(k, w.first+n)
			queries = append(queries, q)
			keys[w.first+n], values[w.first+n] = k, v
		}
		for n, a := range m.attend(mem, r.options.Columns, w, pad, queries, keys, values) {
			add(rows[n], l.out.apply(a))
			add(rows[n], l.feedForward(m.rmsNorm(rows[n], l.feedForwardNorm)))
		}
		mem.keys, mem.values = keys, values
		if r.options.Cache == Prefix {
			clear(mem.keys[w.active:])
			clear(mem.values[w.active:])
		}
	}
	var logits [][]float32
	for _, x := range rows {
		var row []float32
		for _, v := range m.vocabulary.apply(m.rmsNorm(x, m.norm)) {
			row = append(row, float32(v))
		}
		logits = append(logits, row)
	}
	return logits
}
