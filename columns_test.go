package pulsecol_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestPermutedKeys: permuting keys together with their values permutes the columns and
// changes nothing else.
func TestPermutedKeys(t *testing.T) {
	s := kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 50, HeadDim: 8}
	a := attncase.Seeded(7, s)
	to := attncase.Rand(8).Perm(s.Len) // key j moves to to[j]
	moved := *a
	move := func(x []float32) []float32 {
		out := make([]float32, len(x))
		for i := range len(x) / s.HeadDim {
			head, j := i/s.Len, i%s.Len
			copy(out[(head*s.Len+to[j])*s.HeadDim:][:s.HeadDim], x[i*s.HeadDim:])
		}
		return out
	}
	moved.K, moved.V = move(a.K), move(a.V)
	cfg := pulsecol.Config{Sparsity: 0.7, GroupSize: 16, Schedule: refreshOnce}
	r, m := newRig(t, a, cfg, 1, nil), newRig(t, &moved, cfg, 1, nil)
	r.start(2)
	m.start(2)
	r.step(a, pulsecol.Refresh)
	checkAttention(t, m.step(&moved, pulsecol.Refresh), a, nil)
	before, after := must(r.ctl.Columns(0))(t), must(m.ctl.Columns(0))(t)
	for h := range s.Heads {
		for u := range before.Groups() {
			var want []int
			for _, j := range before.Keys(0, h, u) {
				want = append(want, to[j])
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, after.Keys(0, h, u)); diff != "" {
				t.Errorf("head %d, group %d (-want +got):\n%s", h, u, diff)
			}
		}
	}
	checkAttention(t, m.step(&moved, pulsecol.Reuse), a, r.table(0))
}

// TestRows: for selected rows, attention gives the bits that it gives without a selection,
// in every mode and pattern and for any rows.
func TestRows(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 150, HeadDim: 8}
	n := int32(s.Len)
	selected := [][]int32{{0, -1, -1}, {n - 1, 2*n - 1, -1}, {-1, n + 70, 75}, {-1, -1, -1}, {0, 2*n - 1, 40}, {n, n, n}}
	fixed := pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{randomColumns(attncase.Rand(1), 1, s.Heads, s.Len, 32)}}
	for _, pattern := range []pulsecol.Pattern{nil, pulsecol.Blocks{Size: 16}, pulsecol.SparseD{BlockSize: 32}, pulsecol.SlidingWindow{Width: 20}, pulsecol.Streaming{Width: 20}, fixed} {
		for _, padded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,padded=%v", pattern, padded), func(t *testing.T) {
				a := attncase.Seeded(21, s)
				if padded {
					attncase.PadLeft(a, 0, 20)
				}
				ctl := newController(t, pulsecol.Config{Sparsity: 0.7, GroupSize: 32, Pattern: pattern, Schedule: pulsecol.Uniform{Eta: 1, Refreshes: 2}})
				g := gorgonia.NewGraph()
				q, k, v, mask := qkv(g, a)
				rows := gorgonia.NewVector(g, tensor.Int32, gorgonia.WithShape(3), gorgonia.WithName("rows"))
				var opts []pulsecol.AttentionOption
				if padded {
					opts = append(opts, pulsecol.WithPaddingMask(mask))
				}
				var all, some gorgonia.Value
				gorgonia.Read(must(pulsecol.Attention(q, k, v, ctl.Layer(0), opts...))(t), &all)
				gorgonia.Read(must(pulsecol.Attention(q, k, v, ctl.Layer(1), append(opts, pulsecol.WithRows(rows))...))(t), &some)
				r := &rig{t: t, g: g, q: q, k: k, v: v, mask: mask, ctl: ctl, m: must(pulsecol.NewMachine(g, ctl))(t)}
				defer r.m.Close()
				modes := map[pulsecol.Mode]bool{}
				for round, off := range []bool{false, true} {
					ctl.SetDense(off)
					r.start(len(selected))
					for step, want := range selected {
						next := *attncase.Seeded(uint64(22+step), s)
						next.Valid = a.Valid
						r.let(&next)
						if err := gorgonia.Let(rows, dense(want, 3)); err != nil {
							t.Fatal(err)
						}
						if err := r.m.Step(); err != nil {
							t.Fatal(err)
						}
						modes[ctl.LastMode()] = true
						for _, row := range want {
							if row < 0 {
								continue
							}
							for h := range s.Heads {
								at := ((int(row/n)*s.Heads+h)*s.Len + int(row%n)) * s.HeadDim
								tol.SameBits(t, fmt.Sprintf("round %d, step %d (%v), row %d, head %d", round, step, ctl.LastMode(), row, h),
									some.Data().([]float32)[at:at+s.HeadDim], all.Data().([]float32)[at:at+s.HeadDim])
							}
						}
					}
				}
				if !modes[pulsecol.Dense] || !modes[pulsecol.Reuse] {
					t.Errorf("modes %v", modes)
				}
				if err := gorgonia.Let(rows, dense([]int32{0, 2 * n, -1}, 3)); err != nil {
					t.Fatal(err)
				}
				for _, off := range []bool{true, false} {
					ctl.SetDense(off)
					r.start(1)
					mode := ctl.Mode()
					if err := r.m.Step(); !errors.Is(err, op.ErrValue) || !strings.Contains(err.Error(), "rows[1] is 300, the input has 300 rows") {
						t.Errorf("%v, a row that there is not: %v", mode, err)
					}
				}
			})
		}
	}
}

// TestOneGroup: a group of n or more queries has one set of keys, selected by the mean
// over the whole sequence.
func TestOneGroup(t *testing.T) {
	s := kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 37, HeadDim: 8}
	a := attncase.Seeded(9, s)
	var tables [2]*pulsecol.ColumnTable
	for i, group := range []int{s.Len, 1 << 30} {
		r := newRig(t, a, pulsecol.Config{Sparsity: 0.8, GroupSize: group}, 1, nil)
		r.start(1)
		r.step(a, pulsecol.Refresh)
		tables[i] = must(r.ctl.Columns(0))(t)
		if tables[i].Groups() != 1 {
			t.Errorf("group size %d: %d groups", group, tables[i].Groups())
		}
		checkColumns(t, tables[i], a, group, func(int) int { return 7 })
	}
	if diff := cmp.Diff(tables[0].Bits, tables[1].Bits); diff != "" {
		t.Error(diff)
	}
}

// TestTies: among keys with equal scores the first are kept.
func TestTies(t *testing.T) {
	a := attncase.Seeded(10, kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 40, HeadDim: 4})
	clear(a.K) // every key gets 1/40
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.875, GroupSize: 16}, 1, nil)
	r.start(1)
	r.step(a, pulsecol.Refresh)
	columns := must(r.ctl.Columns(0))(t)
	for u := range columns.Groups() {
		if diff := cmp.Diff([]int{0, 1, 2, 3, 4}, columns.Keys(0, 0, u)); diff != "" {
			t.Errorf("group %d (-want +got):\n%s", u, diff)
		}
	}
}

// TestSpecialValues: NaN and infinities anywhere fail no step, and the tables keep
// their sizes.
func TestSpecialValues(t *testing.T) {
	s := kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 40, HeadDim: 4}
	for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.Blocks{Size: 4}, pulsecol.SparseD{BlockSize: 8, Generation: 10}, pulsecol.Streaming{Width: 8}} {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32} {
			for which := range 4 {
				a := attncase.Seeded(11, s)
				inputs := [][]float32{a.Q, a.K, a.V}
				if which < 3 {
					inputs[which][17] = bad
				} else { // everything
					for _, x := range inputs {
						for i := range x {
							x[i] = bad
						}
					}
				}
				r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Pattern: pattern, Schedule: refreshOnce}, 1, nil)
				r.start(3)
				for range 3 {
					r.let(a)
					if err := r.m.Step(); err != nil {
						t.Fatalf("%v, %v in input %d: %v", pattern, bad, which, err)
					}
				}
				if columns := must(r.ctl.Columns(0))(t); pattern == (pulsecol.Columns{}) {
					for u := range columns.Groups() {
						if got := len(columns.Keys(0, 1, u)); got != 20 {
							t.Errorf("%v in input %d: group %d keeps %d keys, want 20", bad, which, u, got)
						}
					}
				}
			}
		}
	}
}
