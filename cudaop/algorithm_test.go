//go:build cuda

package cudaop_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
)

// TestAlgorithms: a product gives the same bits whether trials find its algorithm
// or cuBLASLt's heuristic does, and adds its residual once.
func TestAlgorithms(t *testing.T) {
	needGPU(t)
	r := rand.New(rand.NewPCG(14, 0))
	normal := func(n int) []uint16 {
		x := make([]uint16, n)
		for i := range x {
			x[i] = bf16.FromFloat32(float32(r.NormFloat64()))
		}
		return x
	}
	sizes := [][3]int{{65, 64, 64}, {133, 72, 40}, {300, 512, 264}, {129, 4096, 96}} // short and wide ones are split along what is added up
	if !testing.Short() {
		sizes = append(sizes, [3]int{4096, 4096, 4096}) // as in a model
	}
	for _, s := range sizes {
		n, in, out := s[0], s[1], s[2]
		x, w := normal(n*in), normal(out*in)
		for _, c := range []struct {
			name           string
			bias, residual []uint16
		}{
			{"alone", nil, nil},
			{"biased", normal(out), nil},
			{"residual", nil, normal(n * out)},
		} {
			t.Run(fmt.Sprintf("%dx%dx%d,%s", n, in, out, c.name), func(t *testing.T) {
				multiply := func(from int64) []uint16 {
					defer cudaop.SetTryFrom(cudaop.SetTryFrom(from))
					g := gorgonia.NewGraph()
					one := input(g, "x", make([]float32, 8), 1, 1, 8)
					read(must(op.Apply(must(cudaop.Wrap(op.NewAdd("add"), op.AutoPrecision))(t), one, one))(t)) // a graph without it has no GPU
					y, same, of, err := cudaop.Multiply(machine(t, g), n, in, out, x, w, c.bias, c.residual)
					if err != nil {
						t.Fatal(err)
					}
					if from == 0 {
						t.Logf("%d of %d algorithms give the same bits", same, of)
					} else if of != 1 {
						t.Errorf("%d algorithms, want the heuristic's first alone", of)
					}
					return y
				}
				want := multiply(math.MaxInt64)
				if got := multiply(0); !slices.Equal(got, want) {
					t.Error("the fastest algorithm gives other bits than the first")
				}
				plain := 0.0 // of one place, for a product that both get wrong
				i, j := n/2, out/3
				for d := range in {
					plain += float64(bf16.ToFloat32(x[i*in+d])) * float64(bf16.ToFloat32(w[j*in+d]))
				}
				if c.bias != nil {
					plain += float64(bf16.ToFloat32(c.bias[j]))
				}
				if c.residual != nil {
					plain += float64(bf16.ToFloat32(c.residual[i*out+j]))
				}
				if got := float64(bf16.ToFloat32(want[i*out+j])); math.Abs(got-plain) > math.Abs(plain)/128+1e-4*math.Sqrt(float64(in)) {
					t.Errorf("[%d %d] is %v, want %v", i, j, got, plain)
				}
			})
		}
	}
}
