package pulsecol_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
)

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
					a := attncase.Seeded(12, s)
					if padded {
						attncase.PadLeft(a, 0, 20)
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
					tol.SameBits(t, "second step", r.step(a, pulsecol.Reuse), first)
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
	a := attncase.Seeded(13, s)
	attncase.PadLeft(a, 0, 20)
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
			a := attncase.Seeded(14, s)
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
