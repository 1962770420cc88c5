package ref_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

// TestAttentionByHand is two queries over two keys, small enough to calculate.
func TestAttentionByHand(t *testing.T) {
	a := &kernel.Operands{
		Shape: kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: 2, HeadDim: 1},
		Q:     []float32{0, 2}, K: []float32{1, 2}, V: []float32{10, 20}, Scale: 0.5,
	}
	e := math.E / (1 + math.E) // query 1 scores 1 and 2
	want := []float64{15, 10 + 10*e}
	wantLSE := []float64{math.Ln2, 2 + math.Log(1+1/math.E)}
	out, lse := ref.Attention[float64](a, nil)
	for i := range want {
		if math.Abs(out[i]-want[i]) > 1e-12 || math.Abs(lse[i]-wantLSE[i]) > 1e-12 {
			t.Errorf("query %d: %g, %g, want %g, %g", i, out[i], lse[i], want[i], wantLSE[i])
		}
	}
	scores := ref.Scores[float64](a, 2, 0)
	if math.Abs(scores[0]-(0.5+1-e)/2) > 1e-12 || math.Abs(scores[1]-(0.5+e)/2) > 1e-12 {
		t.Errorf("scores %v", scores)
	}
	// Query 1 may only read key 1, query 0 nothing.
	table := &kernel.Table{Bits: []uint32{0, 2}, Group: 1, Reach: -1}
	out, lse = ref.Attention[float64](a, table)
	if out[0] != 0 || out[1] != 20 || !math.IsInf(lse[0], -1) || lse[1] != 2 {
		t.Errorf("with a table: %v, %v", out, lse)
	}
}

// TestGradientByDifferences compares the gradients with central differences of
// the attention itself. Inputs are multiples of the step, which float32 holds
// exactly.
func TestGradientByDifferences(t *testing.T) {
	const step = 1.0 / (1 << 9)
	r := rand.New(rand.NewPCG(1, 1))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(math.Round(r.NormFloat64()/step) * step)
		}
		return x
	}
	s := kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 5, HeadDim: 3}
	a := &kernel.Operands{Shape: s, Q: draw(2 * 4 * 5 * 3), K: draw(2 * 2 * 5 * 3), V: draw(2 * 2 * 5 * 3), Scale: 0.7,
		Valid: []float32{1, 1, 1, 1, 1, 0, 1, 1, 0, 1}}
	table := &kernel.Table{Bits: make([]uint32, 2*4*2), Group: 3, Reach: -1}
	for i := range table.Bits {
		table.Bits[i] = uint32(r.IntN(32))
	}
	window := &kernel.Table{Bits: []uint32{31, 31}, Group: 3, SharedBatch: true, SharedHeads: true, Reach: 1, Sinks: 1}
	dout := draw(len(a.Q))
	for name, table := range map[string]*kernel.Table{"dense": nil, "columns": table, "window": window} {
		loss := func() (sum float64) {
			out, _ := ref.Attention[float64](a, table)
			for i, x := range out {
				sum += x * float64(dout[i])
			}
			return sum
		}
		dq, dk, dv := ref.AttentionGrad[float64](dout, a, table)
		for _, c := range []struct {
			name string
			x    []float32
			grad []float64
		}{{"q", a.Q, dq}, {"k", a.K, dk}, {"v", a.V, dv}} {
			for i, x := range c.x {
				c.x[i] = x + step
				up := loss()
				c.x[i] = x - step
				down := loss()
				c.x[i] = x
				if want := (up - down) / (2 * step); math.Abs(c.grad[i]-want) > 1e-4*max(1, math.Abs(want)) {
					t.Fatalf("%s: d%s[%d] = %g, differences give %g", name, c.name, i, c.grad[i], want)
				}
			}
		}
	}
}
