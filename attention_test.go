package pulsecol_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// shapes are the cases of small heads without padding. A controller does not depend on the
// size of a head, and tests of padding make their own masks.
func shapes() (cases []attncase.Case) {
	most := int(26e5)
	if testing.Short() {
		most = 3e5
	}
	for _, c := range attncase.Cases {
		if c.Padding == nil && c.HeadDim <= 32 && c.Cost() <= most {
			cases = append(cases, c)
		}
	}
	return cases
}

// refreshOnce refreshes in step 1 and reuses from then on.
var refreshOnce = pulsecol.Uniform{Refreshes: 1}

// TestDenseAttention: switched off, without sparsity, and in a schedule's dense
// steps, attention is op.NewDenseAttn to the bit.
func TestDenseAttention(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.String(), func(t *testing.T) {
			a := attncase.Seeded(1, s.Shape)
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
				"sparsity 0":  {GroupSize: s.Group, Schedule: pulsecol.Always{}},
				"AlwaysDense": {GroupSize: s.Group, Sparsity: 0.5, Schedule: pulsecol.AlwaysDense{}},
				"Skip":        {GroupSize: s.Group, Sparsity: 0.5, Schedule: pulsecol.Skip{Fraction: 0.8}},
			} {
				r := newRig(t, a, cfg, 1, nil)
				r.start(4)
				for range 3 {
					tol.SameBits(t, name, r.step(a, pulsecol.Dense), want)
				}
				if _, err := r.ctl.Columns(0); !errors.Is(err, pulsecol.ErrStale) {
					t.Errorf("%s: dense steps made columns: %v", name, err)
				}
			}
			r := newRig(t, a, pulsecol.Config{GroupSize: s.Group, Sparsity: 0.5}, 1, nil)
			r.start(4)
			r.ctl.SetDense(true)
			tol.SameBits(t, "SetDense", r.step(a, pulsecol.Dense), want)
		})
	}
}

// TestColumns holds refresh and reuse steps to the reference at ragged sizes: the
// output of a refresh, which keys it keeps, and the outputs of reuses with new
// inputs and with the inputs of the refresh.
func TestColumns(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.String(), func(t *testing.T) {
			a, b := attncase.Seeded(2, s.Shape), attncase.Seeded(3, s.Shape)
			r := newRig(t, a, pulsecol.Config{Sparsity: s.Sparsity, GroupSize: s.Group, Schedule: refreshOnce}, 1, nil)
			r.start(3)
			checkAttention(t, r.step(a, pulsecol.Refresh), a, nil)
			columns := must(r.ctl.Columns(0))(t)
			if got, want := columns.Groups(), (s.Len+s.Group-1)/s.Group; got != want {
				t.Fatalf("%d groups, want %d", got, want)
			}
			keep := max(1, int((1-s.Sparsity)*float64(s.Len)))
			checkColumns(t, columns, a, s.Group, func(int) int { return keep })
			checkAttention(t, r.step(b, pulsecol.Reuse), b, r.table(0))
			checkAttention(t, r.step(a, pulsecol.Reuse), a, r.table(0))
			if keep == s.Len { // a table with every key is full attention
				checkAttention(t, r.values(), a, nil)
			}
		})
	}
}

func checkAttention(t *testing.T, got []float32, a *kernel.Operands, table *kernel.Table) {
	t.Helper()
	plain, _ := ref.Attention[float32](a, table)
	want, _ := ref.Attention[float64](a, table)
	tol.ClosePlain(t, got, plain, want)
}

// checkColumns checks that each group keeps the keys of a batch row with the
// highest scores, as many as keep says; scores within rounding may swap.
func checkColumns(t *testing.T, columns *pulsecol.ColumnTable, a *kernel.Operands, group int, keep func(batch int) int) {
	t.Helper()
	scores, plain := ref.Scores[float64](a, group, 0), ref.Scores[float32](a, group, 0)
	gap := 2 * tol.Bound(plain, scores)
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
	a := attncase.Seeded(4, s)
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
		tol.SameBits(t, "refresh", r.step(&one, pulsecol.Refresh), part(refresh))
		tol.SameBits(t, "reuse", r.step(&one, pulsecol.Reuse), part(reuse))
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

// TestGroupedQueryHeads: query head h reads key head h/(H/Hkv). The result equals that of
// keys repeated for every query head.
func TestGroupedQueryHeads(t *testing.T) {
	for _, ratio := range []int{1, 2, 7} {
		t.Run(fmt.Sprint(ratio), func(t *testing.T) {
			s := kernel.Shape{Batch: 2, Heads: 2 * ratio, KVHeads: 2, Len: 40, HeadDim: 8}
			a := attncase.Seeded(5, s)
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
			tol.SameBits(t, "refresh", grouped.step(a, pulsecol.Refresh), full.step(&copies, pulsecol.Refresh))
			tol.SameBits(t, "reuse", grouped.step(a, pulsecol.Reuse), full.step(&copies, pulsecol.Reuse))
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
	a := attncase.Seeded(6, s)
	attncase.PadLeft(a, pad...)
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

// TestPaddingIsNeverKept: with every pattern, no padding key is among the columns.
func TestPaddingIsNeverKept(t *testing.T) {
	s := kernel.Shape{Batch: 3, Heads: 2, KVHeads: 1, Len: 44, HeadDim: 8}
	pad := []int{3, 20, s.Len}
	a := attncase.Seeded(6, s)
	attncase.PadLeft(a, pad...)
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

// TestThreads: the number of threads changes no bit of outputs or columns.
func TestThreads(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 3, KVHeads: 1, Len: 70, HeadDim: 16}
	a := attncase.Seeded(15, s)
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
			tol.SameBits(t, fmt.Sprint(threads, " threads"), got[m], want[m])
		}
		if diff := cmp.Diff(bits, table); diff != "" {
			t.Errorf("%d threads: %s", threads, diff)
		}
	}
}

// TestScale: a config's scale replaces 1/sqrt(head dimension).
func TestScale(t *testing.T) {
	a := attncase.Seeded(16, kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 40, HeadDim: 4})
	a.Scale = 1.25
	r := newRig(t, a, pulsecol.Config{Sparsity: 0.5, GroupSize: 8, Scale: 1.25, Schedule: refreshOnce}, 1, nil)
	r.start(2)
	checkAttention(t, r.step(a, pulsecol.Refresh), a, nil)
	checkColumns(t, must(r.ctl.Columns(0))(t), a, 8, func(int) int { return 20 })
	checkAttention(t, r.step(a, pulsecol.Reuse), a, r.table(0))
}
