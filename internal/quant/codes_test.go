package quant_test

import (
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// TestUnpack: codes, scales and minima make the elements that Decode makes, of random bits
// with finite scales.
func TestUnpack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	for _, typ := range quant.WeightTypes() {
		if !typ.Quantized() {
			continue
		}
		const n = 40
		f, in := typ.Form(), n*typ.Block()
		blocks := make([]byte, typ.Bytes(in))
		for i := range blocks {
			blocks[i] = byte(r.Uint32())
			if r.IntN(2) == 0 {
				blocks[i] &= 0x37 // few numbers that are not finite
			}
		}
		codes, scales, minima := make([]byte, in), make([]float32, in/f.Group), make([]float32, in/quant.MinimumGroup)
		typ.Unpack(codes, scales, minima, blocks, n)
		got, want := make([]float32, in), make([]float32, in)
		typ.Decode(want, blocks, 0)
		compared := 0
		for i := range got {
			if f.Minima {
				got[i] = scales[i/f.Group]*float32(codes[i]) + minima[i/quant.MinimumGroup]
			} else {
				got[i] = scales[i/f.Group] * float32(int(codes[i])-f.Offset)
			}
			if got[i] != got[i] && want[i] != want[i] {
				got[i], want[i] = 0, 0 // NaN of any bits
			} else {
				compared++
			}
		}
		tol.SameBits(t, typ.String(), got, want)
		if compared < in/2 {
			t.Errorf("%v: only %d of %d elements are numbers", typ, compared, in)
		}
	}
}
