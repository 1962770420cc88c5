//go:build cuda

package cudaop_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// TestPatterns: every pattern, in both precisions, against the same layer on the CPU:
// refresh, reuse and full attention, with and without padding.
func TestPatterns(t *testing.T) { onBoth(t, testPatterns) }

func testPatterns(t *testing.T) {
	for _, pattern := range []pulsecol.Pattern{
		pulsecol.Columns{},
		pulsecol.Blocks{Size: 13},
		pulsecol.Blocks{}, // as many keys as queries
		pulsecol.SparseD{BlockSize: 32, Generation: 40},
		pulsecol.SparseD{BlockSize: 16, Generation: 1000, ScoreScale: 0.05}, // no prompt
		pulsecol.SlidingWindow{Width: 20},
		pulsecol.Streaming{Width: 20, SinkFraction: 0.4},
		pulsecol.Streaming{Width: 1000, SinkFraction: 1}, // every key
	} {
		for _, precision := range []pulsecol.Precision{pulsecol.BFloat16, pulsecol.Float32} {
			if cudaop.SM80Forced() && precision == pulsecol.Float32 {
				continue
			}
			t.Run(fmt.Sprintf("%v,%v", pattern, precision), func(t *testing.T) { testPattern(t, pattern, precision) })
		}
	}
}

func testPattern(t *testing.T, pattern pulsecol.Pattern, precision pulsecol.Precision) {
	var layers []*kernel.Operands
	for _, s := range []kernel.Shape{ // batches get padding
		{Batch: 1, Heads: 1, KVHeads: 1, Len: 1, HeadDim: 64},
		{Batch: 2, Heads: 7, KVHeads: 1, Len: 150, HeadDim: 64},
		{Batch: 1, Heads: 2, KVHeads: 2, Len: 193, HeadDim: 128},
		{Batch: 2, Heads: 2, KVHeads: 1, Len: 97, HeadDim: 24},
	} {
		a := operandsOf(precision, 12, s)
		if s.Batch > 1 {
			a.Valid = make([]float32, s.Batch*s.Len)
			for b := range s.Batch {
				for i := 17 * (b + 1); i < s.Len; i++ {
					a.Valid[b*s.Len+i] = 1
				}
			}
		}
		layers = append(layers, a)
	}
	cfg := pulsecol.Config{Sparsity: 0.6, Pattern: pattern, Schedule: pulsecol.Uniform{Refreshes: 1}, Precision: precision}
	gpu := newRig(t, cfg, layers...)
	cfg.Device, cfg.Precision = pulsecol.CPU, pulsecol.Float32 // the inputs are exact in either
	cpu := newRig(t, cfg, layers...)
	gpu.start(t, 3)
	cpu.start(t, 3)
	first, want := gpu.steps(t), cpu.steps(t)
	second := gpu.steps(t)
	gpu.ctl.SetDense(true)
	full := gpu.steps(t)
	for i, a := range layers {
		t.Run(name(a.Shape, 32), func(t *testing.T) {
			close := func(got []float32, table *kernel.Table) {
				t.Helper()
				exact, _ := ref.Attention[float64](a, table)
				plain, _ := ref.Attention[float32](a, table)
				tol.Close(t, real(a, got), real(a, exact), limit(precision, outputError, real(a, plain), real(a, exact)))
			}
			table := gpu.table(t, i)
			switch pattern.(type) {
			case pulsecol.SlidingWindow, pulsecol.Streaming:
				table = cpu.static(t, i)
				close(first[i], table)
			default:
				sameColumns(t, a, precision, pattern, table, cpu.table(t, i))
				close(first[i], nil)
			}
			close(second[i], table)
			close(full[i], nil)
			tol.Close(t, real(a, first[i]), real(a, want[i]), 2*outputError) // the same layer, whatever ref says
			d, w := gpu.ctl.Stats().Layers[i].Density, cpu.ctl.Stats().Layers[i].Density
			if a.Valid == nil && math.Abs(d-w) > 0.01*w {
				t.Errorf("density %v, on the CPU %v", d, w)
			}
		})
	}
}

// static is the table of a pattern fixed by position, exact for each query.
func (r *rig) static(t testing.TB, layer int) *kernel.Table {
	t.Helper()
	table := r.table(t, layer)
	table.SharedBatch, table.SharedHeads = true, true
	n := must(r.ctl.Columns(layer))(t).Len
	switch p := r.ctl.Config().Pattern.(type) {
	case pulsecol.SlidingWindow:
		table.Reach = p.Width / 2
	case pulsecol.Streaming:
		table.Reach, table.Sinks = p.Width/2, int(math.Ceil(p.SinkFraction*float64(n)))
	}
	return table
}

// sameColumns compares a table with that of the CPU. Sums and scores are not the same
// to the last bit, so that a key may be kept in place of another with almost its
// score. What groups of padding keep means nothing.
func sameColumns(t *testing.T, a *kernel.Operands, precision pulsecol.Precision, pattern pulsecol.Pattern, got, want *kernel.Table) {
	t.Helper()
	if _, columns := pattern.(pulsecol.Columns); columns && precision == pulsecol.BFloat16 {
		overlap(t, a, got, got.Group, 0.6)
		return
	}
	if len(got.Bits) != len(want.Bits) {
		t.Fatalf("a table of %d words, want %d", len(got.Bits), len(want.Bits))
	}
	words, groups, differ, few := kernel.Words(a.Len), kernel.Groups(a.Len, got.Group), 0, max(1, len(want.Bits)/50)
	if precision == pulsecol.Float32 {
		few = len(want.Bits) / 500
	}
	for i := range want.Bits {
		b, last := i/(a.Heads*groups*words), min((i/words%groups+1)*got.Group, a.Len)-1
		if got.Bits[i] != want.Bits[i] && (a.Valid == nil || a.Valid[b*a.Len+last] != 0) {
			differ++
		}
	}
	if differ > few {
		t.Errorf("%d of %d words of the tables differ", differ, len(want.Bits))
	}
}
