package pulsecol_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// shapes are lengths around the sizes at which kernels and bitmaps change, with
// group sizes that divide them, do not, and exceed them.
var shapes = []struct {
	kernel.Shape
	group    int
	sparsity float64
}{
	{kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 1, HeadDim: 1}, 32, 0.5},
	{kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 2, HeadDim: 3}, 1, 0.5},
	{kernel.Shape{Batch: 2, Heads: 2, KVHeads: 2, Len: 31, HeadDim: 8}, 8, 0.7},
	{kernel.Shape{Batch: 1, Heads: 4, KVHeads: 2, Len: 32, HeadDim: 16}, 32, 0.8},
	{kernel.Shape{Batch: 3, Heads: 2, KVHeads: 1, Len: 33, HeadDim: 5}, 16, 0.9},
	{kernel.Shape{Batch: 1, Heads: 7, KVHeads: 1, Len: 65, HeadDim: 8}, 64, 0.99}, // one key each
	{kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 100, HeadDim: 32}, 200, 0.5},
	{kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 130, HeadDim: 16}, 7, 1e-17}, // every key
}

// refreshOnce refreshes in step 1 and reuses from then on.
var refreshOnce = pulsecol.Uniform{Refreshes: 1}

// TestDenseAttention: switched off, without sparsity, and in a schedule's dense
// steps, attention is op.DenseAttn to the bit.
func TestDenseAttention(t *testing.T) {
	for _, s := range shapes {
		t.Run(caseName(s.Shape, s.group), func(t *testing.T) {
			a := randomOperands(1, s.Shape)
			g := gorgonia.NewGraph()
			q, k, v, _ := qkv(g, a)
			full := must(op.Apply(must(op.NewDenseAttn("full", 0, false))(t), q, k, v))(t)
			(&rig{t: t, q: q, k: k, v: v}).let(a)
			vm := gorgonia.NewTapeMachine(g)
			defer vm.Close()
			if err := vm.RunAll(); err != nil {
				t.Fatal(err)
			}
			want := full.Value().Data().([]float32)

			for name, cfg := range map[string]pulsecol.Config{
				"zero config": {},
				"sparsity 0":  {GroupSize: s.group, Schedule: pulsecol.Always{}},
				"AlwaysDense": {GroupSize: s.group, Sparsity: 0.5, Schedule: pulsecol.AlwaysDense{}},
				"Skip":        {GroupSize: s.group, Sparsity: 0.5, Schedule: pulsecol.Skip{Fraction: 0.8}},
			} {
				r := newRig(t, a, cfg, 1, nil)
				r.start(4)
				for range 3 {
					sameBits(t, name, r.step(a, pulsecol.Dense), want)
				}
				if _, err := r.ctl.Columns(0); !errors.Is(err, pulsecol.ErrStale) {
					t.Errorf("%s: dense steps made columns: %v", name, err)
				}
			}
			r := newRig(t, a, pulsecol.Config{GroupSize: s.group, Sparsity: 0.5}, 1, nil)
			r.start(4)
			r.ctl.SetDense(true)
			sameBits(t, "SetDense", r.step(a, pulsecol.Dense), want)
		})
	}
}

// TestColumns holds refresh and reuse steps to the reference at ragged sizes: the
// output of a refresh, which keys it keeps, and the outputs of reuses with new
// inputs and with the inputs of the refresh.
func TestColumns(t *testing.T) {
	for _, s := range shapes {
		t.Run(caseName(s.Shape, s.group), func(t *testing.T) {
			a, b := randomOperands(2, s.Shape), randomOperands(3, s.Shape)
			r := newRig(t, a, pulsecol.Config{Sparsity: s.sparsity, GroupSize: s.group, Schedule: refreshOnce}, 1, nil)
			r.start(3)
			checkAttention(t, r.step(a, pulsecol.Refresh), a, nil)
			columns := must(r.ctl.Columns(0))(t)
			if got, want := columns.Groups(), (s.Len+s.group-1)/s.group; got != want {
				t.Fatalf("%d groups, want %d", got, want)
			}
			keep := max(1, int((1-s.sparsity)*float64(s.Len)))
			checkColumns(t, columns, a, s.group, func(int) int { return keep })
			checkAttention(t, r.step(b, pulsecol.Reuse), b, r.table(0))
			checkAttention(t, r.step(a, pulsecol.Reuse), a, r.table(0))
			if keep == s.Len { // a table with every key is no restriction
				checkAttention(t, r.values(), a, nil)
			}
		})
	}
}

func checkAttention(t *testing.T, got []float32, a *kernel.Operands, table *kernel.Table) {
	t.Helper()
	plain, _ := ref.Attention[float32](a, table)
	want, _ := ref.Attention[float64](a, table)
	closeTo(t, got, plain, want)
}

// checkColumns checks that each group keeps the keys of a batch row with the
// highest scores, as many as keep says; scores within rounding may swap.
func checkColumns(t *testing.T, columns *pulsecol.ColumnTable, a *kernel.Operands, group int, keep func(batch int) int) {
	t.Helper()
	scores, plain := ref.Scores[float64](a, group, 0), ref.Scores[float32](a, group, 0)
	gap := 2 * bound(plain, scores)
	for b := range a.Batch {
		for h := range a.Heads {
			for u := range columns.Groups() {
				keys := columns.Keys(b, h, u)
				if len(keys) != keep(b) {
					t.Fatalf("row %d, head %d, group %d keeps %d keys, want %d", b, h, u, len(keys), keep(b))
				}
				row := scores[((b*a.Heads+h)*columns.Groups()+u)*a.Len:][:a.Len]
				lowest, highest := math.Inf(1), math.Inf(-1) // of the kept, of the others
				for j, s := range row {
					_, kept := slices.BinarySearch(keys, j)
					switch padding := a.Valid != nil && a.Valid[b*a.Len+j] == 0; {
					case kept && padding:
						t.Fatalf("row %d, head %d, group %d keeps padding key %d", b, h, u, j)
					case kept:
						lowest = min(lowest, s)
					case !padding:
						highest = max(highest, s)
					}
				}
				if lowest < highest-gap {
					t.Errorf("row %d, head %d, group %d keeps a key of score %g and drops one of %g", b, h, u, lowest, highest)
				}
			}
		}
	}
}

// TestBatchRowsAreIndependent: each row of a batch gives to the bit what it gives
// alone.
func TestBatchRowsAreIndependent(t *testing.T) {
	s := kernel.Shape{Batch: 3, Heads: 4, KVHeads: 2, Len: 45, HeadDim: 8}
	cfg := pulsecol.Config{Sparsity: 0.7, GroupSize: 16, Schedule: refreshOnce}
	a := randomOperands(4, s)
	all := newRig(t, a, cfg, 1, nil)
	all.start(2)
	refresh, reuse := all.step(a, pulsecol.Refresh), all.step(a, pulsecol.Reuse)
	columns := must(all.ctl.Columns(0))(t)
	for b := range s.Batch {
		one := *a
		one.Batch = 1
		part := func(x []float32) []float32 { return x[b*len(x)/s.Batch : (b+1)*len(x)/s.Batch] }
		one.Q, one.K, one.V = part(a.Q), part(a.K), part(a.V)
		r := newRig(t, &one, cfg, 1, nil)
		r.start(2)
		sameBits(t, "refresh", r.step(&one, pulsecol.Refresh), part(refresh))
		sameBits(t, "reuse", r.step(&one, pulsecol.Reuse), part(reuse))
		single := must(r.ctl.Columns(0))(t)
		for h := range s.Heads {
			for u := range columns.Groups() {
				if diff := cmp.Diff(single.Keys(0, h, u), columns.Keys(b, h, u)); diff != "" {
					t.Errorf("row %d, head %d, group %d (-alone +in the batch):\n%s", b, h, u, diff)
				}
			}
		}
	}
}

// TestGroupedQueryHeads: query head h reads key head h/(H/Hkv), which is the same
// as every query head having a copy of that head for itself.
func TestGroupedQueryHeads(t *testing.T) {
	for _, ratio := range []int{1, 2, 7} {
		t.Run(fmt.Sprint(ratio), func(t *testing.T) {
			s := kernel.Shape{Batch: 2, Heads: 2 * ratio, KVHeads: 2, Len: 40, HeadDim: 8}
			a := randomOperands(5, s)
			copies := *a
			copies.KVHeads = s.Heads
			repeat := func(x []float32) (out []float32) {
				for head := range slices.Chunk(x, s.Len*s.HeadDim) {
					out = append(out, slices.Repeat(head, ratio)...)
				}
				return out
			}
			copies.K, copies.V = repeat(a.K), repeat(a.V)
			cfg := pulsecol.Config{Sparsity: 0.6, GroupSize: 8, Schedule: refreshOnce}
			grouped, full := newRig(t, a, cfg, 1, nil), newRig(t, &copies, cfg, 1, nil)
			grouped.start(2)
			full.start(2)
			sameBits(t, "refresh", grouped.step(a, pulsecol.Refresh), full.step(&copies, pulsecol.Refresh))
			sameBits(t, "reuse", grouped.step(a, pulsecol.Reuse), full.step(&copies, pulsecol.Reuse))
			if diff := cmp.Diff(must(full.ctl.Columns(0))(t).Bits, must(grouped.ctl.Columns(0))(t).Bits); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLeftPadding: a row padded by whole groups gives what it gives without
// padding, no padding key is ever kept, k counts real keys, and a row of nothing
// but padding gives zeros.
func TestLeftPadding(t *testing.T) {
	const group = 8
	s := kernel.Shape{Batch: 4, Heads: 4, KVHeads: 2, Len: 44, HeadDim: 8}
	pad := []int{0, 16, 13, s.Len}
	a := randomOperands(6, s)
	padLeft(a, pad...)
	cfg := pulsecol.Config{Sparsity: 0.7, GroupSize: group, Schedule: refreshOnce}
	r := newRig(t, a, cfg, 1, nil)
	r.start(2)
	refresh, reuse := r.step(a, pulsecol.Refresh), r.step(a, pulsecol.Reuse)
	columns := must(r.ctl.Columns(0))(t)
	checkColumns(t, columns, a, group, func(b int) int {
		if pad[b] == s.Len {
			return 0
		}
		return max(1, int(math.Floor((1-cfg.Sparsity)*float64(s.Len-pad[b]))))
	})
	checkAttention(t, refresh, a, nil)
	checkAttention(t, reuse, a, r.table(0))

	for b, p := range pad[:2] { // whole groups
		cut := func(x []float32) (out []float32) {
			row := x[b*len(x)/s.Batch : (b+1)*len(x)/s.Batch]
			for head := range slices.Chunk(row, s.Len*s.HeadDim) {
				out = append(out, head[p*s.HeadDim:]...)
			}
			return out
		}
		bare := &kernel.Operands{Shape: s, Scale: a.Scale, Q: cut(a.Q), K: cut(a.K), V: cut(a.V)}
		bare.Batch, bare.Len = 1, s.Len-p
		alone := newRig(t, bare, cfg, 1, nil)
		alone.start(2)
		alone.step(bare, pulsecol.Refresh)
		single := must(alone.ctl.Columns(0))(t)
		for h := range s.Heads {
			for u := range single.Groups() {
				var keys []int
				for _, j := range columns.Keys(b, h, u+p/group) {
					keys = append(keys, j-p)
				}
				if diff := cmp.Diff(single.Keys(0, h, u), keys); diff != "" {
					t.Errorf("row %d, head %d, group %d (-without padding +with):\n%s", b, h, u, diff)
				}
			}
		}
		checkAttention(t, cut(refresh), bare, nil)
		checkAttention(t, cut(reuse), bare, alone.table(0))
	}
	last := s.Heads * s.Len * s.HeadDim
	for _, x := range append(slices.Clone(refresh[3*last:]), reuse[3*last:]...) {
		if x != 0 {
			t.Fatalf("a row of nothing but padding gives %v", x)
		}
	}
}

// TestPaddingIsNeverKept: whatever the pattern chooses by, no padding key is among
// the columns.
func TestPaddingIsNeverKept(t *testing.T) {
	s := kernel.Shape{Batch: 3, Heads: 2, KVHeads: 1, Len: 44, HeadDim: 8}
	pad := []int{3, 20, s.Len}
	a := randomOperands(6, s)
	padLeft(a, pad...)
	for _, pattern := range []pulsecol.Pattern{pulsecol.Columns{}, pulsecol.Blocks{Size: 8}, pulsecol.SparseD{BlockSize: 8, Generation: 30}} {
		r := newRig(t, a, pulsecol.Config{Sparsity: 0.3, GroupSize: 8, Pattern: pattern, Schedule: refreshOnce}, 1, nil)
		r.start(2)
		checkAttention(t, r.step(a, pulsecol.Refresh), a, nil)
		columns := must(r.ctl.Columns(0))(t)
		for b := range s.Batch {
			for h := range s.Heads {
				for u := range columns.Groups() {
					keys := columns.Keys(b, h, u)
					if len(keys) > 0 && keys[0] < pad[b] {
						t.Errorf("%v: row %d, head %d, group %d keeps %v, padding ends at %d", pattern, b, h, u, keys, pad[b])
					}
					if (len(keys) == 0) != (pad[b] == s.Len) {
						t.Errorf("%v: row %d, head %d, group %d keeps %v", pattern, b, h, u, keys)
					}
				}
			}
		}
		checkAttention(t, r.step(a, pulsecol.Reuse), a, r.table(0))
	}
}

// TestPermutedKeys: the order of keys, moved together with their values, changes
// nothing but the names of the columns.
func TestPermutedKeys(t *testing.T) {
	s := kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 50, HeadDim: 8}
	a := randomOperands(7, s)
	to := newRand(8).Perm(s.Len) // key j moves to to[j]
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

// TestRows: where rows are wanted, attention gives these the bits that it gives
// them among all, in every mode and pattern, whatever the rows of the step.
func TestRows(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 150, HeadDim: 8}
	n := int32(s.Len)
	wanted := [][]int32{{0, -1, -1}, {n - 1, 2*n - 1, -1}, {-1, n + 70, 75}, {-1, -1, -1}, {0, 2*n - 1, 40}, {n, n, n}}
	fixed := pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{randomColumns(newRand(1), 1, s.Heads, s.Len, 32)}}
	for _, pattern := range []pulsecol.Pattern{nil, pulsecol.Blocks{Size: 16}, pulsecol.SparseD{BlockSize: 32}, pulsecol.SlidingWindow{Width: 20}, pulsecol.Streaming{Width: 20}, fixed} {
		for _, padded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,padded=%v", pattern, padded), func(t *testing.T) {
				a := randomOperands(21, s)
				if padded {
					padLeft(a, 0, 20)
				}
				ctl := newController(t, pulsecol.Config{Sparsity: 0.7, GroupSize: 32, Pattern: pattern, Schedule: pulsecol.Uniform{Window: 1, Refreshes: 2}})
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
					r.start(len(wanted))
					for step, want := range wanted {
						next := *randomOperands(uint64(22+step), s)
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
								sameBits(t, fmt.Sprintf("round %d, step %d (%v), row %d, head %d", round, step, ctl.LastMode(), row, h),
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

// TestOneGroup: with a group of n or more queries there is one set for all, chosen
// by the mean over the whole sequence.
func TestOneGroup(t *testing.T) {
	s := kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 37, HeadDim: 8}
	a := randomOperands(9, s)
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
	a := randomOperands(10, kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 40, HeadDim: 4})
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
				a := randomOperands(11, s)
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

// perQuery returns a table with a row for each query, from a definition.
func perQuery(s kernel.Shape, keeps func(batch, head, i, j int) bool) *kernel.Table {
	t := &kernel.Table{Group: 1, Reach: -1}
	for b := range s.Batch {
		for h := range s.Heads {
			for i := range s.Len {
				var keys []int
				for j := range s.Len {
					if keeps(b, h, i, j) {
						keys = append(keys, j)
					}
				}
				t.Bits = append(t.Bits, ref.Bitmap(s.Len, keys)...)
			}
		}
	}
	return t
}

// TestStaticPatterns: window and streaming attention against their definitions,
// query by query, with and without padding; they are the same in every step.
func TestStaticPatterns(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 2, KVHeads: 1, Len: 67, HeadDim: 8}
	near := func(reach int) func(int, int) bool {
		return func(i, j int) bool { return max(i-j, j-i) <= reach }
	}
	for _, c := range []struct {
		pattern pulsecol.Pattern
		keeps   func(i, j int) bool
	}{
		{pulsecol.SlidingWindow{Width: 10}, near(5)},
		{pulsecol.SlidingWindow{Width: 11}, near(5)},
		{pulsecol.SlidingWindow{Width: 1}, near(0)},
		{pulsecol.SlidingWindow{}, func(int, int) bool { return true }}, // 256 covers all 67
		{pulsecol.Streaming{Width: 8}, func(i, j int) bool { return near(4)(i, j) || j < 7 }},
		{pulsecol.Streaming{Width: 8, SinkFraction: 0.5}, func(i, j int) bool { return near(4)(i, j) || j < 34 }},
		{pulsecol.Streaming{Width: 1, SinkFraction: 1}, func(int, int) bool { return true }},
	} {
		for _, padded := range []bool{false, true} {
			for _, group := range []int{1, 8, 32, 100} {
				t.Run(fmt.Sprintf("%v-padded=%v-group%d", c.pattern, padded, group), func(t *testing.T) {
					a := randomOperands(12, s)
					if padded {
						padLeft(a, 0, 20)
					}
					r := newRig(t, a, pulsecol.Config{Pattern: c.pattern, GroupSize: group, Sparsity: 0.9}, 1, nil)
					r.start(2)
					pairs := 0
					table := perQuery(s, func(_, _, i, j int) bool {
						if c.keeps(i, j) {
							pairs++
							return true
						}
						return false
					})
					first := r.step(a, pulsecol.Reuse)
					checkAttention(t, first, a, table)
					sameBits(t, "second step", r.step(a, pulsecol.Reuse), first)
					stats := r.ctl.Stats()
					if got, want := stats.Layers[0].Density, float64(pairs)/float64(s.Batch*s.Heads*s.Len*s.Len); math.Abs(got-want) > 1e-15 {
						t.Errorf("density %v, want %v", got, want)
					}
					if stats.Refreshes != 0 || stats.Layers[0].Refreshes != 0 {
						t.Errorf("a fixed pattern refreshed: %+v", stats)
					}
				})
			}
		}
	}
}

// TestBlocksPattern: each group keeps the blocks with the highest summed scores
// of the reference, whole but for padding.
func TestBlocksPattern(t *testing.T) {
	const group, block, sparsity = 16, 8, 0.6
	s := kernel.Shape{Batch: 2, Heads: 2, KVHeads: 2, Len: 67, HeadDim: 8}
	a := randomOperands(13, s)
	padLeft(a, 0, 20)
	r := newRig(t, a, pulsecol.Config{Pattern: pulsecol.Blocks{Size: block}, GroupSize: group, Sparsity: sparsity, Schedule: refreshOnce}, 1, nil)
	r.start(2)
	checkAttention(t, r.step(a, pulsecol.Refresh), a, nil)
	columns := must(r.ctl.Columns(0))(t)
	scores := ref.Scores[float64](a, group, 0)
	blocks := (s.Len + block - 1) / block
	keep := int((1 - sparsity) * float64(blocks)) // 3 of 9
	for b := range s.Batch {
		for h := range s.Heads {
			for u := range columns.Groups() {
				row := scores[((b*s.Heads+h)*columns.Groups()+u)*s.Len:][:s.Len]
				sums := make([]float64, blocks)
				for j, x := range row {
					sums[j/block] += x
				}
				for j := range sums { // padding alone is never kept
					if b == 1 && (j+1)*block <= 20 {
						sums[j] = -1
					}
				}
				order := make([]int, blocks)
				for i := range order {
					order[i] = i
				}
				slices.SortStableFunc(order, func(x, y int) int {
					if sums[x] > sums[y] {
						return -1
					} else if sums[x] < sums[y] {
						return 1
					}
					return 0
				})
				var want []int
				for j := range s.Len {
					if slices.Contains(order[:keep], j/block) && a.Valid[b*s.Len+j] != 0 {
						want = append(want, j)
					}
				}
				if diff := cmp.Diff(want, columns.Keys(b, h, u)); diff != "" {
					t.Errorf("row %d, head %d, group %d (-want +got):\n%s", b, h, u, diff)
				}
			}
		}
	}
	checkAttention(t, r.step(a, pulsecol.Reuse), a, r.table(0))
}

// TestSparseDPattern follows SparseD's schedule through a generation: full steps,
// a mask from the last of them, sparse steps. ScoreScale is for ranking alone.
func TestSparseDPattern(t *testing.T) {
	for _, scale := range []float64{0, 1.5} {
		t.Run(fmt.Sprint("ScoreScale ", scale), func(t *testing.T) {
			s := kernel.Shape{Batch: 1, Heads: 2, KVHeads: 2, Len: 60, HeadDim: 8}
			a := randomOperands(14, s)
			r := newRig(t, a, pulsecol.Config{
				Sparsity: 0.5, GroupSize: 32, Schedule: pulsecol.Skip{},
				Pattern: pulsecol.SparseD{BlockSize: 8, Generation: 24, ScoreScale: scale},
			}, 1, nil)
			r.start(10)
			for step := 1; step <= 10; step++ {
				switch {
				case step < 4:
					checkAttention(t, r.step(a, pulsecol.Dense), a, nil)
				case step == 4:
					checkAttention(t, r.step(a, pulsecol.Refresh), a, nil)
				default:
					checkAttention(t, r.step(a, pulsecol.Reuse), a, r.table(0))
				}
			}
			if got := r.ctl.Stats(); got.Dense != 3 || got.Refreshes != 1 || got.Reuses != 6 {
				t.Errorf("%+v", got)
			}
			columns := must(r.ctl.Columns(0))(t)
			ranked := *a
			if scale != 0 {
				ranked.Scale = float32(scale)
			}
			scores, gen := ref.Scores[float32](&ranked, 8, 0), ref.Scores[float32](&ranked, 8, 40)
			for h := range s.Heads {
				for u := range columns.Groups() { // 8 blocks, generated ones from the fifth on; quotas 5 and 2
					row := h*columns.Groups() + u
					want := ref.SparseD(scores[row*60:(row+1)*60], gen[row*20:(row+1)*20], 8, 5, 5, 2)
					slices.Sort(want)
					if diff := cmp.Diff(want, columns.Keys(0, h, u)); diff != "" {
						t.Errorf("head %d, block %d (-want +got):\n%s", h, u, diff)
					}
				}
			}
		})
	}
}

// TestThreads: the number of threads changes no bit of outputs or columns.
func TestThreads(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 3, KVHeads: 1, Len: 70, HeadDim: 16}
	a := randomOperands(15, s)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	var want [3][]float32
	var bits []uint32
	for i, threads := range []int{1, 0, 2, 5} {
		r := newRig(t, a, pulsecol.Config{Sparsity: 0.7, GroupSize: 16, Schedule: refreshOnce, Threads: threads}, 2, nil)
		r.start(3)
		got := [3][]float32{r.step(a, pulsecol.Refresh), r.step(a, pulsecol.Reuse)}
		r.ctl.SetDense(true)
		got[2] = r.step(a, pulsecol.Dense)
		table := must(r.ctl.Columns(1))(t).Bits
		if i == 0 {
			want, bits = got, table
		}
		for m := range got {
			sameBits(t, fmt.Sprint(threads, " threads"), got[m], want[m])
		}
		if diff := cmp.Diff(bits, table); diff != "" {
			t.Errorf("%d threads: %s", threads, diff)
		}
	}
}

// TestScale: a config's scale replaces 1/sqrt(head dimension).
func TestScale(t *testing.T) {
	a := randomOperands(16, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 40, HeadDim: 4})
	a.Scale = 1.25
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Scale: 1.25, Schedule: refreshOnce}, 1, nil)
	r.start(2)
	checkAttention(t, r.step(a, pulsecol.Refresh), a, nil)
	checkColumns(t, must(r.ctl.Columns(0))(t), a, 8, func(int) int { return 20 })
	checkAttention(t, r.step(a, pulsecol.Reuse), a, r.table(0))
}

// TestAttentionErrors: everything wrong with a call is an error that names the
// layer, leaves the graph as it was and the layer free for another try.
func TestAttentionErrors(t *testing.T) {
	a := randomOperands(17, kernel.Shape{Batch: 1, Heads: 4, KVHeads: 2, Len: 8, HeadDim: 2})
	g := gorgonia.NewGraph()
	ctl := newController(t, pulsecol.Config{Sparsity: 0.5, GroupSize: 4})
	q, k, v, _ := qkv(g, a)
	padLeft(a, 1)
	foreign, _, _, foreignMask := qkv(gorgonia.NewGraph(), a)
	node := func(name string, dtype tensor.Dtype, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	}
	shapeless := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("shapeless"))
	var into gorgonia.Value
	statement := gorgonia.Read(q, &into)
	for name, c := range map[string]struct {
		q, k, v, mask *gorgonia.Node
		want          string
	}{
		"nil q":            {nil, k, v, nil, "must not be nil"},
		"nil k":            {q, nil, v, nil, "must not be nil"},
		"nil v":            {q, k, nil, nil, "must not be nil"},
		"q of rank 3":      {node("q3", tensor.Float32, 4, 8, 2), k, v, nil, "q is float32 of shape (4, 8, 2), want float32 [B H N D]"},
		"q without shape":  {shapeless, k, v, nil, "q is float32 of shape (), want float32 [B H N D]"},
		"k without shape":  {q, shapeless, v, nil, "want float32 [B Hkv N D]"},
		"q is a statement": {statement, k, v, nil, "q is a statement, which has no value, want float32 [B H N D]"},
		"k of rank 3":      {q, node("k3", tensor.Float32, 2, 8, 2), v, nil, "k is float32 of shape (2, 8, 2), want float32 [B Hkv N D]"},
		"other length":     {node("q7", tensor.Float32, 1, 4, 7, 2), k, v, nil, "may differ in their heads only"},
		"3 heads":          {node("qh3", tensor.Float32, 1, 3, 8, 2), k, v, nil, "not a multiple"},
		"float64":          {node("q64", tensor.Float64, 1, 4, 8, 2), k, v, nil, "q is float64 of shape (1, 4, 8, 2), want float32 [B H N D]"},
		"v is a scalar":    {q, k, gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("s")), nil, "v is a scalar float32, want float32 [B Hkv N D]"},
		"two graphs":       {foreign, k, v, nil, "k is of a graph other than q's"},
		"v of a graph":     {q, k, foreign, nil, "v is of a graph other than q's"},
		"mask of a graph":  {q, k, v, foreignMask, "the padding mask is of a graph other than q's"},
		"mask shape":       {q, k, v, node("m", tensor.Float32, 8, 1), "padding mask (8, 1), want [1 8]"},
		"mask rank":        {q, k, v, node("m1", tensor.Float32, 8), "the padding mask is float32 of shape (8), want float32 [B N]"},
		"mask dtype":       {q, k, v, node("mi", tensor.Int32, 1, 8), "the padding mask is int32 of shape (1, 8), want float32 [B N]"},
	} {
		before := len(g.AllNodes())
		var opts []pulsecol.AttentionOption
		if c.mask != nil {
			opts = append(opts, pulsecol.WithPaddingMask(c.mask))
		}
		y, err := pulsecol.Attention(c.q, c.k, c.v, ctl.Layer(0), opts...)
		first, _, _ := strings.Cut(fmt.Sprint(err), "\n")
		if !errors.Is(err, op.ErrShape) || y != nil || !strings.Contains(first, c.want) || !strings.Contains(first, "pulsecol.layers.0.attention") || strings.Contains(first, "[columns") {
			t.Errorf("%s: got %v, %v; want ErrShape, first with %q and the layer's path", name, y, err, c.want)
		}
		if got := len(g.AllNodes()); got != before {
			t.Errorf("%s: %d nodes were left in the graph", name, got-before)
		}
	}
	otherRows, _, _, _ := qkv(gorgonia.NewGraph(), a)
	otherRows = gorgonia.NewVector(otherRows.Graph(), tensor.Int32, gorgonia.WithShape(2), gorgonia.WithName("rows"))
	for want, rows := range map[string]*gorgonia.Node{
		"rows are float32 of shape (2), want int32 [R]":  node("rows32", tensor.Float32, 2),
		"rows are int32 of shape (1, 2), want int32 [R]": node("rows2", tensor.Int32, 1, 2),
		"rows are of a graph other than q's":             otherRows,
	} {
		before := len(g.AllNodes())
		y, err := pulsecol.Attention(q, k, v, ctl.Layer(0), pulsecol.WithRows(rows))
		if !errors.Is(err, op.ErrShape) || y != nil || !strings.Contains(err.Error(), "pulsecol.layers.0.attention: wrong shape: "+want) {
			t.Errorf("got %v, %v; want ErrShape with %q and the layer's path", y, err, want)
		}
		if got := len(g.AllNodes()); got != before {
			t.Errorf("%s: %d nodes were left in the graph", want, got-before)
		}
	}
	for _, l := range []*pulsecol.Layer{nil, new(pulsecol.Layer), ctl.Layer(-1), ctl.Layer(1 << 16)} {
		if _, err := pulsecol.Attention(q, k, v, l); err == nil || !strings.Contains(err.Error(), "the layer is nil, or not one of Controller.Layer(i), 0 <= i < 65536") {
			t.Errorf("got %v", err)
		}
	}
	y := must(pulsecol.Attention(q, k, v, ctl.Layer(0)))(t)
	if fmt.Sprint(y.Shape()) != fmt.Sprint(q.Shape()) {
		t.Errorf("result %v, want %v", y.Shape(), q.Shape())
	}
	if _, err := pulsecol.Attention(y, k, v, ctl.Layer(0)); err == nil || !strings.Contains(err.Error(), "pulsecol.layers.0.attention already has its attention") {
		t.Errorf("a layer used twice: %v", err)
	}
}
