//go:build cuda

package cudaop_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestRows: with selected rows, attention gives these the bits that it gives them
// among all, whatever the rows of the step.
func TestRows(t *testing.T) { onBoth(t, testRows) }

func testRows(t *testing.T) {
	for _, precision := range []pulsecol.Precision{pulsecol.BFloat16, pulsecol.Float32} {
		for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.Streaming{Width: 50}} {
			for _, group := range []int{16, 32, 64, 128, 48} {
				if group != 32 && (precision == pulsecol.Float32 || pattern != pulsecol.Columns{}) {
					continue // has no kernel of its own
				}
				t.Run(fmt.Sprintf("%v,%v,g%d", precision, pattern, group), func(t *testing.T) { selectedRows(t, precision, pattern, group) })
			}
		}
	}
}

func selectedRows(t *testing.T, precision pulsecol.Precision, pattern pulsecol.Pattern, group int) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 700, HeadDim: 128}
	n := int32(s.Len)
	ctl := must(pulsecol.NewController(pulsecol.Config{
		Sparsity: 0.8, GroupSize: group, Pattern: pattern, Precision: precision, Device: pulsecol.CUDA, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2},
	}))(t)
	g := gorgonia.NewGraph()
	q, k, v := inputs(g, "layer", operands(31, s))
	rows := input(g, "rows", make([]int32, 3), 3)
	all := read(must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t))
	some := read(must(pulsecol.Attention(q, k, v, ctl.Layer(1), pulsecol.WithRows(rows)))(t))
	m := must(pulsecol.NewMachine(g, ctl))(t)
	defer func() {
		if err := errors.Join(m.Close(), ctl.Close()); err != nil {
			t.Error(err)
		}
	}()
	selections := [][]int32{{0, -1, -1}, {n - 1, 2*n - 1, -1}, {-1, n + 270, 275}, {-1, -1, -1}, {0, 2*n - 1, 40}, {n, n, n}, {n + 127, 128, -1}, {511, n + 512, 300}}
	modes := map[pulsecol.Mode]bool{}
	for _, off := range []bool{false, true} {
		ctl.SetDense(off)
		if err := ctl.Start(len(selections)); err != nil {
			t.Fatal(err)
		}
		for step, want := range selections {
			if err := gorgonia.Let(rows, tensor.New(tensor.WithShape(3), tensor.WithBacking(slices.Clone(want)))); err != nil {
				t.Fatal(err)
			}
			if err := m.Step(); err != nil {
				t.Fatal(err)
			}
			modes[ctl.LastMode()] = true
			for _, row := range want {
				if row < 0 {
					continue
				}
				for h := range s.Heads {
					at := ((int(row/n)*s.Heads+h)*s.Len + int(row%n)) * s.HeadDim
					if !slices.Equal(floats(some)[at:at+s.HeadDim], floats(all)[at:at+s.HeadDim]) {
						t.Fatalf("step %d (%v): row %d, head %d is not what it is among all", step+1, ctl.LastMode(), row, h)
					}
				}
			}
		}
	}
	if !modes[pulsecol.Dense] || !modes[pulsecol.Reuse] {
		t.Errorf("modes %v", modes)
	}
}

// TestFixed: every step uses the given table, for some or all batch rows and heads, without
// the keys that are padding in the step.
func TestFixed(t *testing.T) { onBoth(t, testFixed) }

func testFixed(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 300, HeadDim: 64}
	for _, c := range []struct {
		batch, heads, group int
		precision           pulsecol.Precision
	}{
		{1, 1, 32, pulsecol.BFloat16}, {1, 4, 16, pulsecol.BFloat16}, {2, 1, 48, pulsecol.BFloat16}, {2, 4, 128, pulsecol.BFloat16},
		{1, 1, 400, pulsecol.BFloat16}, {1, 4, 32, pulsecol.Float32}, {2, 1, 32, pulsecol.Float32},
	} {
		for _, padded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%dx%d,g%d,%v,padded=%v", c.batch, c.heads, c.group, c.precision, padded), func(t *testing.T) {
				a := operands(8, s)
				pad := func(rows ...int) {
					for i := range a.Valid {
						a.Valid[i] = 0
						if i%s.Len >= rows[i/s.Len] {
							a.Valid[i] = 1
						}
					}
				}
				if padded {
					a.Valid = make([]float32, s.Batch*s.Len)
					pad(0, 33)
				}
				r := rand.New(rand.NewPCG(9, 0))
				given := must(pulsecol.NewColumnTable(c.batch, c.heads, s.Len, c.group, func(_, _, u int) (keys []int) {
					if u == 0 {
						return []int{3, 17, 32} // all of them padding in one row
					}
					for range 70 {
						keys = append(keys, r.IntN(s.Len))
					}
					return keys
				}))(t)
				table := &kernel.Table{Bits: given.Bits, Group: c.group, Reach: -1, SharedBatch: c.batch == 1, SharedHeads: c.heads == 1}
				layer := newRig(t, pulsecol.Config{Precision: c.precision, Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{given}}}, a, a)
				check := func(table *kernel.Table) {
					t.Helper()
					want, _ := ref.Attention[float64](a, table)
					for _, y := range layer.steps(t) {
						tol.Close(t, real(a, y), real(a, want), outputError)
					}
				}
				for range 2 { // the second generation finds the table in place
					layer.start(t, 5)
					check(table)
					check(table)
					if padded { // other padding, in other rows
						pad(40, 2)
						for _, mask := range layer.masks {
							copy(mask, a.Valid)
						}
						check(table)
					}
					layer.ctl.SetDense(true)
					check(nil)
					layer.ctl.SetDense(false)
					check(table)
				}
				for i := range 2 {
					if got := must(layer.ctl.Columns(i))(t); !slices.Equal(got.Bits, given.Bits) || got.Batch != c.batch || got.Heads != c.heads {
						t.Errorf("layer %d: the table is not the one that was given", i)
					}
				}
				if st := layer.ctl.Stats(); st.Refreshes != 0 || st.Layers[0].Refreshes != 0 || st.Layers[0].Bytes == 0 {
					t.Errorf("stats %+v", st)
				}
			})
		}
	}
}
