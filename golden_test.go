package pulsecol_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// TestGoldenAttention runs whole layers under a controller against the reference
// outputs: a refresh gives full attention, the reuse after it sparse attention.
func TestGoldenAttention(t *testing.T) {
	golden.Attentions(t, func(t *testing.T, c *golden.Attention) {
		a := c.Operands()
		r := newRig(t, a, pulsecol.Config{Sparsity: c.Sparsity, GroupSize: c.GroupSize}, 1, nil)
		r.start(2)

		plain, _ := ref.Attention[float32](a, nil)
		tol.ClosePlain(t, r.step(a, pulsecol.Refresh), plain, c.Float32s("dense"))

		columns := must(r.ctl.Columns(0))(t)
		index := c.Index()
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
		scores := c.Float32s("scores")
		if c.Gap > 2*tol.Bound(ref.Scores[float32](a, c.GroupSize, 0), scores) {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
		} else {
			t.Logf("gap %g is within rounding", c.Gap)
		}
		if slices.EqualFunc(want, got, slices.Equal[[]int]) {
			plain, _ = ref.Attention[float32](a, r.table(0))
			tol.ClosePlain(t, r.step(a, pulsecol.Reuse), plain, c.Float32s("sparse"))
		} else {
			want, _ := ref.Attention[float64](a, r.table(0))
			plain, _ = ref.Attention[float32](a, r.table(0))
			tol.ClosePlain(t, r.step(a, pulsecol.Reuse), plain, want)
		}
	})
}
