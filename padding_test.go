package pulsecol_test

import (
	"math"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// TestPaddingQueriesDoNotSelect: the values of padding queries affect neither the columns
// of any group nor the kept share of attention. A group of padding only keeps the first
// real keys.
func TestPaddingQueriesDoNotSelect(t *testing.T) {
	const group = 8
	s := kernel.Shape{Batch: 3, Heads: 2, KVHeads: 1, Len: 44, HeadDim: 8}
	pad := []int{3, 20, 41}
	a, b := attncase.Seeded(6, s), attncase.Seeded(6, s)
	attncase.PadLeft(a, pad...)
	attncase.PadLeft(b, pad...)
	other := attncase.Seeded(7, s)
	for i := range b.Q {
		if batch, query := i/(s.Heads*s.Len*s.HeadDim), i/s.HeadDim%s.Len; query < pad[batch] {
			b.Q[i] = 10 * other.Q[i]
			if query%5 == 0 {
				b.Q[i] = float32(math.NaN())
			}
		}
	}
	for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.Blocks{Size: 8}, pulsecol.SparseD{BlockSize: group, Generation: 30}} {
		for _, precision := range []pulsecol.Precision{pulsecol.Float32, pulsecol.BFloat16} {
			cfg := pulsecol.Config{Sparsity: 0.7, GroupSize: group, Pattern: pattern, Schedule: pulsecol.Adaptive{Threshold: 1}, Precision: precision}
			var tables []*pulsecol.ColumnTable
			for _, x := range []*kernel.Operands{a, b} {
				r := newRig(t, x, cfg, 1, nil)
				r.start(3)
				r.step(x, refresh)
				r.step(x, reuse)
				tables = append(tables, must(r.ctl.Columns(0))(t))
				if got := r.ctl.Drift(); got != 0 {
					t.Errorf("%v, %v: drift %v", pattern, precision, got)
				}
			}
			if !slices.Equal(tables[0].Bits, tables[1].Bits) {
				t.Errorf("%v, %v: other padding queries select other columns", pattern, precision)
			}
			if _, columns := pattern.(pulsecol.Columns); !columns {
				continue
			}
			for i, p := range pad {
				for u := range p / group { // groups of padding
					var want []int
					for j := range max(1, int(0.3*float64(s.Len-p))) {
						want = append(want, p+j)
					}
					if got := tables[0].Keys(i, 1, u); !slices.Equal(got, want) {
						t.Errorf("%v, row %d, group %d: keeps %v, want %v", precision, i, u, got, want)
					}
				}
			}
		}
	}
}
