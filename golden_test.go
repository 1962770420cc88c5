package pulsecol_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

// TestGoldenAttention runs whole layers under a controller against the reference
// outputs: a refresh gives full attention, the reuse after it sparse attention.
func TestGoldenAttention(t *testing.T) {
	var cases []struct {
		Case      int
		Batch     int
		Heads     int
		KVHeads   int `json:"kv_heads"`
		Len       int `json:"seq_len"`
		HeadDim   int `json:"head_dim"`
		GroupSize int `json:"group_size"`
		Sparsity  float64
		Keep      int
		Gap       float64 `json:"min_topk_gap"`
	}
	set := golden.Open(t, "kernel/attention")
	set.JSON(&cases)
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases {
		t.Run(fmt.Sprint("case", c.Case), func(t *testing.T) {
			load := func(name string) []float32 {
				x, _ := set.Float32s(fmt.Sprintf("case%d.%s", c.Case, name))
				return x
			}
			a := &kernel.Operands{
				Shape: kernel.Shape{Batch: c.Batch, Heads: c.Heads, KVHeads: c.KVHeads, Len: c.Len, HeadDim: c.HeadDim},
				Q:     load("q"), K: load("k"), V: load("v"), Scale: float32(1 / math.Sqrt(float64(c.HeadDim))),
			}
			r := newRig(t, a, pulsecol.Config{Sparsity: c.Sparsity, GroupSize: c.GroupSize}, 1, nil)
			r.start(2)

			plain, _ := ref.Attention[float32](a, nil)
			closeTo(t, r.step(a, pulsecol.Refresh), plain, load("dense"))

			columns := must(r.ctl.Columns(0))(t)
			index, _ := set.Int32s(fmt.Sprintf("case%d.index", c.Case))
			var got, want [][]int
			for b := range c.Batch {
				for h := range c.Heads {
					for u := range columns.Groups() {
						got = append(got, columns.Keys(b, h, u))
					}
				}
			}
			for row := range slices.Chunk(index, c.Keep) {
				var keys []int
				for _, j := range row {
					keys = append(keys, int(j))
				}
				want = append(want, keys)
			}
			// Where the last kept and the first dropped key differ by less than float32
			// resolves, either is right; package op compares those score by score.
			scores := load("scores")
			if c.Gap > 2*bound(ref.Scores[float32](a, c.GroupSize, 0), scores) {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("columns (-want +got):\n%s", diff)
				}
			} else {
				t.Logf("gap %g is within rounding", c.Gap)
			}
			if slices.EqualFunc(want, got, slices.Equal[[]int]) {
				plain, _ = ref.Attention[float32](a, r.table(0))
				closeTo(t, r.step(a, pulsecol.Reuse), plain, load("sparse"))
			} else {
				want, _ := ref.Attention[float64](a, r.table(0))
				plain, _ = ref.Attention[float32](a, r.table(0))
				closeTo(t, r.step(a, pulsecol.Reuse), plain, want)
			}
		})
	}
}
