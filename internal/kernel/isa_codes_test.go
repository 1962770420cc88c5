package kernel

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/quant"
)

// sameNumbers compares bits, but any NaN equals any other.
func sameNumbers(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, x := range want {
		if math.Float32bits(got[i]) != math.Float32bits(x) && (got[i] == got[i] || x == x) {
			t.Fatalf("%s: [%d] is %g (%08x), portable Go has %g (%08x)", what, i, got[i], math.Float32bits(got[i]), x, math.Float32bits(x))
		}
	}
}

func quantizedTypes() (all []quant.DType) {
	for _, t := range quant.WeightTypes() {
		if t.Quantized() {
			all = append(all, t)
		}
	}
	return all
}

// TestUnpack takes random bits apart: scales are any binary16, also NaN and subnormal numbers.
func TestUnpack(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(20, 1))
		for _, typ := range quantizedTypes() {
			f := typ.Form()
			for _, s := range []struct{ rows, n, gap int }{{1, 1, 0}, {3, 2, 5}, {32, 8, 1}, {7, 3, 1000}} {
				size, in := s.n*typ.BlockBytes(), s.n*typ.Block()
				stride := size + s.gap
				blocks := make([]byte, (s.rows-1)*stride+size)
				for i := range blocks {
					blocks[i] = byte(r.Uint32())
				}
				run := func(unpack func(t quant.DType, codes []byte, scales, minima []float32, blocks []byte, rows, stride, n, ahead int)) (codes []byte, scales, minima []float32, intact func() bool) {
					codes = make([]byte, s.rows*in+1)
					codes[s.rows*in] = 77
					scales, scalesIntact := window(rand.New(rand.NewPCG(1, 1)), s.rows*in/f.Group)
					least := 0
					if f.Minima {
						least = s.rows * in / quant.MinimumGroup
					}
					minima, minimaIntact := window(rand.New(rand.NewPCG(1, 1)), least)
					unpack(typ, codes[:s.rows*in], scales, minima, blocks, s.rows, stride, s.n, 64)
					return codes, scales, minima, func() bool { return scalesIntact() && minimaIntact() }
				}
				codes, scales, minima, intact := run(active.codes.unpack)
				wantCodes, wantScales, wantMinima, _ := run(unpackPortable)
				what := fmt.Sprintf("%v %+v", typ, s)
				if !slices.Equal(codes, wantCodes) {
					t.Fatalf("%s: codes are %d, want %d", what, codes, wantCodes)
				}
				sameNumbers(t, what+" scales", scales, wantScales)
				sameNumbers(t, what+" minima", minima, wantMinima)
				if !intact() {
					t.Fatalf("%s: wrote outside of its results", what)
				}
			}
		}
	})
}

// TestRoundBlocks compares words of inputs with those of portable Go, and these with their
// definition.
func TestRoundBlocks(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	special := []float32{0, -inf, inf, nan, math.Float32frombits(0xff800001), math.MaxFloat32, 1e-42, 0x1p-120, -0x1p-101}
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(21, 1))
		for _, blocks := range []int{1, 2, 7, 40} {
			for _, odds := range []int{1000000, 200, 3} {
				src, srcIntact := window(r, blocks*blockInputs)
				for i := range src {
					if r.IntN(odds) == 0 {
						src[i] = special[r.IntN(len(special))]
					}
				}
				size := (blocks-1)*codeRows*blockWords + blockWords
				dst, intact := window(r, size)
				want := slices.Clone(dst)
				active.codes.roundBlocks(dst, src, blocks)
				roundBlocksPortable(want, src, blocks)
				for b := range blocks {
					got, want := dst[b*codeRows*blockWords:][:blockWords], want[b*codeRows*blockWords:][:blockWords]
					unit := want[unitWord]
					if unit != unit {
						if got[unitWord] == got[unitWord] {
							t.Fatalf("block %d has unit %g, want NaN", b, got[unitWord])
						}
						copy(got, want)
						continue
					}
					sums := [2]int32{}
					for i, x := range src[b*blockInputs:][:blockInputs] {
						c := int8(math.Float32bits(want[i/4]) >> (8 * (i % 4)))
						if math.Abs(float64(c)*float64(unit)-float64(x)) > 0.501*float64(unit) {
							t.Fatalf("block %d: %d times %g stands for %g", b, c, unit, x)
						}
						sums[i/16] -= int32(c)
					}
					for i, sum := range []int32{sums[0] + sums[1], sums[0], sums[1]} {
						if got := int32(math.Float32bits(want[sumWord+i])); got != sum {
							t.Fatalf("block %d: sum %d is %d, want %d", b, i, got, sum)
						}
					}
				}
				for i, w := range want {
					if math.Float32bits(dst[i]) != math.Float32bits(w) {
						t.Fatalf("%d blocks: word %d is %08x, want %08x", blocks, i, math.Float32bits(dst[i]), math.Float32bits(w))
					}
				}
				if !intact() || !srcIntact() {
					t.Fatalf("%d blocks: wrote outside of the result", blocks)
				}
			}
		}
	})
}

// most is the largest code of a form.
func most(f quant.Form) uint32 {
	return map[int]uint32{8: 15, 16: 31, 32: 63, 128: 255, 0: 31}[f.Offset]
}

// randomPanel fills a panel with any codes of the type.
func randomPanel(r *rand.Rand, typ quant.DType, n int) codePanel {
	p := newCodePanel(typ.Form(), make([]float32, codePanelSize(typ.Form(), n)), n)
	most := most(typ.Form())
	for i := range p.codes {
		word := uint32(0)
		for range 4 {
			code := r.Uint32() & most
			if r.IntN(4) == 0 {
				code = most * (code & 1)
			}
			word = word<<8 | code
		}
		p.codes[i] = math.Float32frombits(word)
	}
	for _, numbers := range [][]float32{p.scales, p.minima} {
		for i := range numbers {
			// Short, as those of every type: products with codes are exact.
			numbers[i] = math.Float32frombits(math.Float32bits(float32(r.NormFloat64())) &^ 1023)
		}
	}
	return p
}

// TestExpand: panels of float32 have the bits of portable Go.
func TestExpand(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(22, 1))
		for _, typ := range quantizedTypes() {
			for _, n := range []int{32, 96, 256} {
				p := randomPanel(r, typ, n)
				p.scales[3], p.scales[5] = 0, float32(math.Copysign(0, -1))
				dst, intact := window(r, n*lanes)
				active.codes.expand(typ.Form(), dst, p.codes, p.scales, p.minima, n)
				want := make([]float32, n*lanes)
				expandPortable(typ.Form(), want, p.codes, p.scales, p.minima, n)
				sameNumbers(t, fmt.Sprint(typ, n), dst, want)
				if !intact() {
					t.Fatalf("%v %d: wrote outside of the result", typ, n)
				}
			}
		}
	})
}

// TestMulBlocks: sums have the bits of portable Go, with the largest integers too.
func TestMulBlocks(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(23, 1))
		for _, typ := range quantizedTypes() {
			f := typ.Form()
			for _, s := range []struct{ rows, blocks, gap int }{{4, 1, 0}, {8, 3, 5}, {12, 8, 1}} {
				p := randomPanel(r, typ, s.blocks*blockInputs)
				// The largest sums: of the largest codes and inputs of one sign.
				for k := 0; k < len(p.codes); k += lanes {
					p.codes[k] = math.Float32frombits(most(f) * 0x01010101)
				}
				width := s.blocks * codeRows * blockWords
				ldx := width + s.gap*codeRows*blockWords
				x := make([]float32, (s.rows/codeRows-1)*ldx+width)
				for i := range s.rows {
					numbers, _ := window(r, s.blocks*blockInputs)
					for j := range numbers {
						switch {
						case i < 2:
							numbers[j] = []float32{-5, 5}[i]
						case r.IntN(3) == 0:
							numbers[j] = []float32{-5, 5}[r.IntN(2)]
						}
					}
					roundBlocksPortable(x[i/codeRows*ldx+i%codeRows*blockWords:], numbers, s.blocks)
				}
				ldy := lanes + s.gap
				y, intact := window(r, (s.rows-1)*ldy+lanes)
				want := slices.Clone(y)
				for _, accumulate := range []bool{true, false} {
					active.codes.mulBlocks(f, y, ldy, x, ldx, s.rows, s.blocks, p.codes, p.scales, p.minima, accumulate)
					mulBlocksPortable(f, want, ldy, x, ldx, s.rows, s.blocks, p.codes, p.scales, p.minima, accumulate)
					sameNumbers(t, fmt.Sprintf("%v %+v", typ, s), y, want)
				}
				if !intact() {
					t.Fatalf("%v %+v: wrote outside of the result", typ, s)
				}
			}
		}
	})
}

// TestFMA32 compares with exact arithmetic, rounded once, also where rounding twice is wrong.
func TestFMA32(t *testing.T) {
	r := rand.New(rand.NewPCG(24, 1))
	number := func() float32 { return math.Float32frombits(uint32(0x3f000000+r.IntN(1<<25)) | uint32(r.IntN(2))<<31) }
	twice := 0
	for range 300000 {
		x, y := number(), number()
		z := number() * float32(math.Ldexp(1, r.IntN(60)-30))
		if r.IntN(2) == 0 { // the product is half a last bit of z, and a little more or less
			z = float32(1<<23 + r.IntN(1<<23))
			x, y = 0.5+float32(r.IntN(3)-1)*0x1p-24, 1+float32(r.IntN(3)-1)*0x1p-23
		}
		exact := new(big.Float).SetPrec(300).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		exact.Add(exact, big.NewFloat(float64(z)))
		want, _ := exact.Float32()
		if got := fma32(x, y, z); got != want {
			t.Fatalf("fma32(%g, %g, %g) = %g, want %g", x, y, z, got, want)
		}
		if float32(float64(x)*float64(y)+float64(z)) != want {
			twice++
		}
	}
	if twice == 0 {
		t.Error("no case in which rounding twice is wrong")
	}
}
