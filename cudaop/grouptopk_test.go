//go:build cuda

package cudaop_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// TestTopKTies: equal scores go to the smaller key, exactly as on the CPU.
func TestTopKTies(t *testing.T) { onBoth(t, testTopKTies) }

func testTopKTies(t *testing.T) {
	const n, group = 1000, 100
	r := rand.New(rand.NewPCG(2, 0))
	g := gorgonia.NewGraph()
	type pair struct{ cpu, gpu *gorgonia.Value }
	columns := map[string]pair{}
	for kind, draw := range map[string]func() float32{
		"equal":  func() float32 { return 0.25 },
		"zero":   func() float32 { return 0 },
		"two":    func() float32 { return float32(r.IntN(2)) },
		"tiny":   func() float32 { return math.Float32frombits(uint32(r.IntN(5))) },
		"random": func() float32 { return r.Float32() },
	} {
		scores := make([]float32, 2*(n/group)*n)
		for i := range scores {
			scores[i] = draw()
		}
		in := input(g, kind, scores, 1, 2, n/group, n)
		p := op.AttentionParams{Group: group, Selection: op.Selection{Sparsity: 0.83}}
		cpu, gpu := both(t, op.AutoPrecision, must(op.NewGroupTopK(kind, n, p))(t), in)
		columns[kind] = pair{read(cpu), read(gpu)}
	}
	run(t, machine(t, g))
	for kind, c := range columns {
		if !slices.Equal((*c.gpu).Data().([]uint32), (*c.cpu).Data().([]uint32)) {
			t.Errorf("%s scores: columns differ", kind)
		}
	}
}

// TestStats: the counts of a refresh are those of its columns, at any time they are read.
func TestStats(t *testing.T) {
	needGPU(t)
	layers := []*kernel.Operands{
		operands(14, kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 191, HeadDim: 64}),
		operands(15, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 70, HeadDim: 128}),
	}
	layers[0].Valid = slices.Repeat([]float32{1}, 2*191)
	clear(layers[0].Valid[191:230])
	type last struct {
		table          *pulsecol.ColumnTable
		density, churn float64
	}
	prepare := func(t *testing.T) (r *rig, refresh func(), check func(refreshes int)) {
		r = newRig(t, pulsecol.Config{Sparsity: 0.7, GroupSize: 48, Schedule: pulsecol.Uniform{Refreshes: 1}}, layers...)
		r.start(t, 9)
		latest, seed := make([]last, len(layers)), uint64(100)
		refresh = func() { // on other queries than before
			t.Helper()
			for i, a := range layers {
				seed++
				copy(r.queries[i], operands(seed, a.Shape).Q)
			}
			again := r.ctl.Mode() == pulsecol.Reuse
			r.ctl.Invalidate()
			r.step(t)
			for i := range latest {
				now := must(r.ctl.Columns(i))(t)
				density, churn := densityAndChurn(now, latest[i].table)
				if !again { // nothing to replace
					churn = 0
				} else if churn < 0.01 {
					t.Fatalf("layer %d: churn %v; the queries are too much alike", i, churn)
				}
				latest[i] = last{now, density, churn}
			}
		}
		check = func(refreshes int) {
			t.Helper()
			for i, got := range r.ctl.Stats().Layers {
				want := latest[i]
				if got.Refreshes != refreshes || math.Abs(got.Density-want.density) > 1e-12 || math.Abs(got.Churn-want.churn) > 1e-12 {
					t.Errorf("layer %d: %+v, want %d refreshes, density %v and churn %v", i, got, refreshes, want.density, want.churn)
				}
			}
		}
		return r, refresh, check
	}
	t.Run("steps", func(t *testing.T) {
		r, refresh, check := prepare(t)
		refresh()
		check(1)
		refresh()
		refresh() // the counts of the previous one are never read
		check(3)
		check(3)
		r.step(t) // a reuse
		check(3)
		refresh()
		r.start(t, 2) // drops the tables
		check(4)
		refresh()
		check(5)
	})
	t.Run("machine closed first", func(t *testing.T) {
		r, refresh, check := prepare(t)
		refresh()
		refresh()
		if err := r.m.Close(); err != nil {
			t.Fatal(err)
		}
		check(2)
		if err := r.ctl.Close(); err != nil {
			t.Fatal(err)
		}
		check(2)
	})
	t.Run("controller closed first", func(t *testing.T) {
		r, refresh, check := prepare(t)
		refresh()
		refresh()
		if err := r.ctl.Close(); err != nil {
			t.Fatal(err)
		}
		check(2)
		if bytes := r.ctl.Stats().Layers[0].Bytes; bytes != 0 {
			t.Errorf("%d bytes of a table that is gone", bytes)
		}
	})
	t.Run("another machine", func(t *testing.T) {
		r, refresh, check := prepare(t)
		refresh()
		refresh()
		if err := r.m.Close(); err != nil {
			t.Fatal(err)
		}
		r.m = must(pulsecol.NewMachine(r.g, r.ctl))(t)
		check(2)
		r.start(t, 2) // the tables are gone with the other machine
		refresh()
		check(3)
		refresh()
		check(4)
	})
}

// densityAndChurn are the density of a column table and its churn against the one before; nil is
// an empty table.
func densityAndChurn(now, before *pulsecol.ColumnTable) (density, churn float64) {
	table := func(bits []uint32) *columns.Table {
		return &columns.Table{Heads: now.Batch * now.Heads, Len: now.Len, Group: now.Group, Bits: bits}
	}
	old := table(make([]uint32, len(now.Bits)))
	if before != nil {
		old = table(before.Bits)
	}
	return table(now.Bits).Density(), table(now.Bits).Churn(old)
}
