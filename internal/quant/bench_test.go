package quant_test

import (
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol/internal/quant"
)

// BenchmarkEncode reports the time of an element.
func BenchmarkEncode(b *testing.B) {
	src := make([]float32, 1<<14)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range src {
		src[i] = float32(0.02 * r.NormFloat64())
	}
	for _, typ := range quant.WeightTypes() {
		b.Run(typ.String(), func(b *testing.B) {
			dst := make([]byte, typ.Bytes(len(src)))
			for b.Loop() {
				if err := typ.Encode(dst, src); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(src)), "ns/element")
		})
	}
}
