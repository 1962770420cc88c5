package main

import (
	"context"
	"math/bits"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/models/llada"
	"github.com/pulsecol/pulsecol/op"
)

// TestSharedTables: every reuse step of bench e2e --shared is, in every layer, on the
// table that was made up, with as many keys a group as the refresh keeps.
func TestSharedTables(t *testing.T) {
	dir := golden.Dir(t, "llada")
	m, err := (&modelFlag{Model: &dir}).open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const n, tokens, steps, group, share = 100, 8, 6, 16, 0.5
	b := e2eBench{cmd: &benchE2ECmd{Sparsity: 0.8, Precision: "float32"}, device: pulsecol.CPU}
	cfg := b.config(group, delayed{turns{pulsecol.Reuse}, 1, pulsecol.Refresh}, newSharing(share))
	made := slices.Repeat(columns.Random(n, group, op.Selection{Sparsity: 0.8}.Keep(n), share), m.config().Heads)
	var seen looks
	cfg.Observer = &seen
	total, length := steps, tokens
	s := m.sampler(&samplerFlags{Steps: &total, GenLength: &length, BlockLength: &length})
	if _, err := s.generate(context.Background(), randomTokens(n-tokens, m.config(), 0), cfg, func(llada.Progress) {}); err != nil {
		t.Fatal(err)
	}
	if want := steps * m.config().Layers; len(seen) != want {
		t.Fatalf("%d observations, want %d", len(seen), want)
	}
	for _, o := range seen {
		want := pulsecol.Reuse
		if o.Step == 1 {
			want = pulsecol.Refresh
		}
		if o.Mode != want {
			t.Errorf("step %d is %v, want %v", o.Step, o.Mode, want)
		}
		if same := slices.Equal(o.Columns.Bits, made); same != (want == pulsecol.Reuse) {
			t.Errorf("step %d, a %v, layer %d: the table is the one made up: %v", o.Step, want, o.Layer, same)
		}
	}
	if got, want := kept(made), kept(seen[0].Columns.Bits); got != want {
		t.Errorf("%d keys are kept, the refresh kept %d", got, want)
	}
}

func kept(table []uint32) (keys int) {
	for _, word := range table {
		keys += bits.OnesCount32(word)
	}
	return keys
}

// looks are observations with tables of their own.
type looks []pulsecol.Observation

func (l *looks) Observe(o pulsecol.Observation) {
	own := *o.Columns
	own.Bits = slices.Clone(own.Bits)
	o.Columns = &own
	*l = append(*l, o)
}
