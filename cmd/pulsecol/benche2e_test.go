package main

import (
	"context"
	"math/bits"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/exec"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models"
)

// TestSharedTables: every step of bench e2e --shared is, in every layer, on the synthetic
// table, with as many keys a group as a refresh keeps.
func TestSharedTables(t *testing.T) {
	dir := golden.Dir(t, "llada")
	m, err := (&modelFlag{Model: &dir}).open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const n, tokens, group = 100, 8, 16
	share := 0.5
	b := e2eBench{cmd: &benchE2ECmd{Sparsity: 0.8, Precision: "float32", Shared: &share}, m: m, device: pulsecol.CPU}
	run := func(steps int, pattern pulsecol.Pattern) (seen looks) {
		cfg := b.config(group, delayed{turns{pulsecol.Reuse}, 1, pulsecol.Refresh}, pattern)
		cfg.Observer = &seen
		length := tokens
		s := m.sampler(&samplerFlags{Steps: &steps, GenLength: &length, BlockLength: &length})
		if _, err := s.generate(context.Background(), randomTokens(n-tokens, m.config(), 0), cfg, func(models.Progress) {}); err != nil {
			t.Fatal(err)
		}
		if want := steps * m.config().Layers; len(seen) != want {
			t.Fatalf("%d observations, want %d", len(seen), want)
		}
		return seen
	}
	table := slices.Repeat(columns.Random(n, group, exec.Selection{Sparsity: 0.8}.Keep(n), share), m.config().Heads)
	for _, o := range run(6, b.synthetic(n, group)) {
		if o.Mode != pulsecol.Reuse || !slices.Equal(o.Columns.Bits, table) {
			t.Errorf("step %d, layer %d: a %v on another table", o.Step, o.Layer, o.Mode)
		}
	}
	refreshed := run(1, pulsecol.Columns{})[0]
	if got, want := kept(table), kept(refreshed.Columns.Bits); got != want || refreshed.Mode != pulsecol.Refresh {
		t.Errorf("%d keys are kept, a %v keeps %d", got, refreshed.Mode, want)
	}
}

func kept(table []uint32) (keys int) {
	for _, word := range table {
		keys += bits.OnesCount32(word)
	}
	return keys
}

// looks is an observer that copies observations with their tables.
type looks []pulsecol.Observation

func (l *looks) Observe(o pulsecol.Observation) {
	own := *o.Columns
	own.Bits = slices.Clone(own.Bits)
	o.Columns = &own
	*l = append(*l, o)
}
