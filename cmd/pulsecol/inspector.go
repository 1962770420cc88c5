package main

import (
	"fmt"
	"math"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/inspect"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// inspector observes a generation under full attention. At every step and layer it updates
// each method's column table, from the scores of the step in which the method selects keys,
// and compares the table with the attention of the current step.
//
// So all methods are compared on the same queries and keys. In separate generations the
// tokens would differ between methods, and a method with wrong tokens would be measured on
// the attention to these.
type inspector struct {
	methods []*inspected
	layers  int
	device  pulsecol.Device
	cache   caching      // of the generation
	from    int          // first query that counts
	shown   *shown       // nil = nothing
	seen    *inspect.Map // of shown; nil before its step
	err     error
	stop    func() // ends the generation, after an error
}

// inspected is a method and its measurements.
type inspected struct {
	attention
	selection *selectionGraph
	tables    []*columns.Table // by layer; nil before the first selection
	block     pulsecol.Block   // of the tables, with a cache
	whole     *columns.Table   // of all rows, in a pattern fixed by position with a cache
	refreshes []int
	steps     []stepSummary
	density   [][]float64 // by layer, in every step with a table
	churn     [][]float64 // by layer, in every refresh but the first
	union     [][]float64 // by layer, in every step with a table; empty where it is not known
}

// config is that of the generation: full attention, observed.
func (in *inspector) config() pulsecol.Config {
	cfg := pulsecol.Config{Device: in.device, Observer: in}
	in.cache.set(&cfg)
	return cfg
}

// Observe implements pulsecol.Observer.
func (in *inspector) Observe(o pulsecol.Observation) {
	if in.err != nil {
		return
	}
	if in.err = in.look(activeRows(firstRow(o), caches[in.cache.name])); in.err != nil {
		in.stop()
	}
}

// firstRow returns the first batch row of an observation, which has no padding. With
// classifier-free guidance there is a second row, the sequence without its prompt.
func firstRow(o pulsecol.Observation) pulsecol.Observation {
	o.Q, o.K = o.Q[:len(o.Q)/o.Batch], o.K[:len(o.K)/o.Batch]
	o.Batch = 1
	return o
}

// activeRows returns an observation under a cache with the queries of its active rows alone.
func activeRows(o pulsecol.Observation, cache pulsecol.Cache) pulsecol.Observation {
	if cache == pulsecol.NoCache {
		return o
	}
	end := o.Len
	if cache == pulsecol.DualCache {
		end = o.Block.End
	}
	rows := end - o.Block.First
	var q []float32
	for head := range o.Heads {
		q = append(q, o.Q[(head*o.Rows+o.Block.First-o.First)*o.HeadDim:][:rows*o.HeadDim]...)
	}
	o.Q, o.First, o.Rows = q, o.Block.First, rows
	return o
}

func (in *inspector) look(o pulsecol.Observation) error {
	a := &inspect.Attention{
		Heads: o.Heads, KVHeads: o.KVHeads, Len: o.Len, HeadDim: o.HeadDim, First: o.First, Rows: o.Rows,
		Q: o.Q, K: o.K, Scale: o.Scale, From: in.from,
	}
	var having []*inspected
	var tables []*columns.Table
	for _, m := range in.methods {
		if err := m.update(o, in.layers); err != nil {
			return fmt.Errorf("step %d, layer %d: the keys of %s: %w", o.Step, o.Layer, m.method, err)
		}
		if t := m.tables[o.Layer]; t != nil {
			having, tables = append(having, m), append(tables, t)
		}
	}
	for i, heads := range inspect.Measure(a, tables) {
		if err := having[i].add(o, heads); err != nil {
			return err
		}
		if w := in.shown; w != nil && having[i] == w.method && o.Step == w.step && o.Layer == w.layer {
			whole := *a
			whole.From = 0
			in.seen = inspect.NewMap(&whole, w.head, tables[i], inspect.MostCells)
		}
	}
	return nil
}

// update makes a new table for the layer of o if the method selects keys in this step.
func (m *inspected) update(o pulsecol.Observation, layers int) (err error) {
	if m.tables == nil {
		m.tables = make([]*columns.Table, layers)
		m.density, m.churn, m.union = make([][]float64, layers), make([][]float64, layers), make([][]float64, layers)
	}
	if o.Layer == 0 {
		if o.Block != m.block {
			m.block = o.Block
			clear(m.tables)
		}
		step := stepSummary{Step: o.Step, Mode: m.mode(o).String()}
		if o.Kind != pulsecol.Whole {
			step.Kind, step.Block = o.Kind.String(), &stepBlock{o.First, o.Rows}
		}
		m.steps = append(m.steps, step)
	}
	step := &m.steps[len(m.steps)-1]
	old := m.tables[o.Layer]
	switch {
	case step.Mode == pulsecol.Dense.String():
		return nil
	case m.Schedule == nil && o.Layer > 0: // fixed by position: the same in all layers
		m.tables[o.Layer] = m.tables[0]
	case step.Mode == pulsecol.Refresh.String() || old == nil:
		if m.tables[o.Layer], err = m.columnsOf(o); err != nil {
			return err
		}
	}
	if step.Mode == pulsecol.Refresh.String() {
		if o.Layer == 0 {
			m.refreshes = append(m.refreshes, o.Step)
		}
		if old != nil {
			m.churn[o.Layer] = append(m.churn[o.Layer], m.tables[o.Layer].Churn(old))
		}
	}
	m.density[o.Layer] = append(m.density[o.Layer], m.tables[o.Layer].Density())
	if u := m.tables[o.Layer].Union(); m.groupSize() != nil && !math.IsNaN(u) {
		m.union[o.Layer] = append(m.union[o.Layer], u)
	}
	return nil
}

// mode returns the mode of the step under the method, as in a controller.
func (m *inspected) mode(o pulsecol.Observation) pulsecol.Mode {
	if m.Schedule == nil {
		return pulsecol.Reuse
	}
	mode := m.Schedule.Mode(o.Step, o.Total)
	switch {
	case mode == pulsecol.Reuse && m.tables[0] == nil:
		return pulsecol.Refresh
	case mode == pulsecol.Refresh && m.tables[0] != nil && o.Kind != pulsecol.Whole && m.method != "oracle":
		return pulsecol.Reuse // columns of a block are selected once
	}
	return mode
}

// firstChoice is the first of total steps for which the method has keys.
func (m *inspected) firstChoice(total int) int {
	first := 1
	for m.Schedule != nil && first < total && m.Schedule.Mode(first, total) == pulsecol.Dense {
		first++
	}
	return first
}

// add notes the fidelity of a layer's heads.
func (m *inspected) add(o pulsecol.Observation, heads []inspect.Fidelity) error {
	recall, mass := make([]float32, len(heads)), make([]float32, len(heads))
	for h, f := range heads {
		if math.IsNaN(f.Mass) {
			return fmt.Errorf("step %d, layer %d, head %d: the attention is NaN; are the model's weights?", o.Step, o.Layer, h)
		}
		recall[h], mass[h] = float32(f.Recall), float32(f.Mass)
	}
	step := &m.steps[len(m.steps)-1]
	step.Recall, step.Mass = append(step.Recall, recall), append(step.Mass, mass)
	return nil
}

// columnsOf returns the keys that the method selects from the queries and keys of o.
func (m *inspected) columnsOf(o pulsecol.Observation) (*columns.Table, error) {
	if m.selection == nil {
		var err error
		if m.selection, err = newSelectionGraph(m.Config, o); err != nil {
			return nil, err
		}
	}
	if m.Schedule != nil || o.Kind == pulsecol.Whole {
		return m.selection.columnsOf(o)
	}
	if m.whole == nil {
		whole := o // whose queries have no part in the keys
		whole.Q = make([]float32, o.Heads*o.Len*o.HeadDim)
		var err error
		if m.whole, err = m.selection.columnsOf(whole); err != nil {
			return nil, err
		}
	}
	t := *m.whole
	t.First, t.Queries = o.First, o.Rows
	t.Bits = t.Bits[o.First*t.Words():][:o.Rows*t.Words()]
	return &t, nil
}

// selectionGraph is a graph of one attention layer, which selects keys as a model's
// layers do.
type selectionGraph struct {
	machine *pulsecol.Machine
	q, k    *gorgonia.Node // of all tokens
}

func newSelectionGraph(cfg pulsecol.Config, o pulsecol.Observation) (*selectionGraph, error) {
	if cfg.Schedule != nil {
		cfg.Schedule = pulsecol.Always{}
	}
	ctl, err := pulsecol.NewController(cfg)
	if err != nil {
		return nil, err
	}
	g := gorgonia.NewGraph()
	input := func(name string, heads int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName(name), gorgonia.WithShape(1, heads, o.Len, o.HeadDim))
	}
	c := &selectionGraph{q: input("q", o.Heads), k: input("k", o.KVHeads)}
	var options []pulsecol.AttentionOption
	if cfg.Cache != pulsecol.NoCache {
		options = append(options, pulsecol.WithCache(o.Len))
	}
	if _, err := pulsecol.Attention(c.q, c.k, c.k, ctl.Layer(0), options...); err != nil {
		return nil, err
	}
	c.machine, err = pulsecol.NewMachine(g, ctl)
	return c, err
}

// columnsOf runs a refresh on o. With a cache that is a prefill, which selects the columns of
// the active rows from their queries alone; those of other rows are zeros.
func (c *selectionGraph) columnsOf(o pulsecol.Observation) (*columns.Table, error) {
	ctl := c.machine.Controller()
	cached := ctl.Config().Cache != pulsecol.NoCache
	if cached {
		q := make([]float32, o.Heads*o.Len*o.HeadDim)
		for head := range o.Heads {
			size := o.Rows * o.HeadDim
			copy(q[(head*o.Len+o.First)*o.HeadDim:], o.Q[head*size:][:size])
		}
		o.Q = q
	}
	for node, data := range map[*gorgonia.Node][]float32{c.q: o.Q, c.k: o.K} {
		if err := gorgonia.Let(node, tensor.New(tensor.WithShape(node.Shape()...), tensor.WithBacking(data))); err != nil {
			return nil, err
		}
	}
	if err := ctl.Start(1); err != nil {
		return nil, err
	}
	if cached {
		if err := ctl.SetBlock(o.Block); err != nil {
			return nil, err
		}
	}
	if err := c.machine.Step(); err != nil {
		return nil, err
	}
	if cached {
		b, err := ctl.BlockColumns(0)
		if err != nil {
			return nil, err
		}
		return &columns.Table{Heads: b.Heads, Len: b.Len, Group: b.Group, Bits: b.Bits, First: b.First, Queries: b.Rows}, nil
	}
	t, err := ctl.Columns(0)
	if err != nil {
		return nil, err
	}
	return &columns.Table{Heads: t.Heads, Len: t.Len, Group: t.Group, Bits: t.Bits}, nil
}

// close frees the machines of the methods.
func (in *inspector) close() {
	for _, m := range in.methods {
		if m.selection != nil {
			m.selection.machine.Close()
		}
	}
}

// caption describes attention.png.
func (in *inspector) caption(i *inspection) inspect.Caption {
	w, m := in.shown, in.shown.method
	selection := "the same in every step"
	if m.Schedule != nil {
		at := 0
		for _, r := range m.refreshes {
			if r <= w.step {
				at = r
			}
		}
		selection = fmt.Sprintf("selected in step %d", at)
	}
	if i.Cache != "" {
		selection += fmt.Sprintf("; %s cache, rows %d to %d", i.Cache, in.seen.First, in.seen.First+in.seen.Rows-1)
	}
	return inspect.Caption{
		Title: fmt.Sprintf("Step %d of %d, layer %d, head %d: %s keeps %.1f %% of the attention mass",
			w.step, i.Steps, w.layer, w.head, m.method, 100*in.seen.Mass),
		Detail: fmt.Sprintf("%s; %s, %s", i.title, m.describePattern(), selection),
		Prompt: i.PromptTokens,
	}
}

// describePattern describes the keys that the method keeps: "columns for groups of 32
// queries, sparsity 0.8".
func (m *inspected) describePattern() string {
	text := m.Pattern.String()
	if size := m.groupSize(); size != nil {
		text += fmt.Sprintf(" for groups of %d queries, sparsity %g", *size, m.Sparsity)
	}
	return text
}
