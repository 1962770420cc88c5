package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/bf16"
)

// values unpacks the words of one row or column of words.
func values(words []float32) (x []float32) {
	for _, w := range words {
		bits := math.Float32bits(w)
		if active.bf16.perWord == 2 {
			x = append(x, bf16.ToFloat32(uint16(bits)))
		}
		x = append(x, bf16.ToFloat32(uint16(bits>>16)))
	}
	return x
}

// TestPackBF16 rounds rows in any order, of any length, from and to matrices that
// are wider, and expects the bits of package bf16.
func TestPackBF16(t *testing.T) {
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)),
		math.MaxFloat32, math.Float32frombits(0x7f800001), math.Float32frombits(0xffffffff),
		math.Float32frombits(0x3f808000), math.Float32frombits(0x3f818000), math.Float32frombits(0x3f808001)}
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 5))
		b := &active.bf16
		for _, rows := range []int{1, 2, 5, 8, 32, 33, 77} {
			for _, n := range []int{1, 5, 8, 15, 16, 17, 31, 32, 40, 63, 128} {
				list := make([]int32, rows)
				for i := range list {
					list[i] = int32(r.IntN(2 * rows))
				}
				lds, ldd := n+r.IntN(2)*3, n+r.IntN(2)*6
				src, srcIntact := window(r, (2*rows-1)*lds+n)
				for i := range src {
					if r.IntN(4) == 0 {
						src[i] = special[r.IntN(len(special))]
					}
				}
				check := func(name string, dst, got []float32, want func(i int) float32, count int) {
					t.Helper()
					for i, x := range got {
						y := float32(0)
						if i < count {
							y = bf16.ToFloat32(bf16.FromFloat32(want(i)))
						}
						if math.Float32bits(x) != math.Float32bits(y) {
							t.Fatalf("%s rows=%d n=%d: value %d is %08x, want %08x", name, rows, n, i, math.Float32bits(x), math.Float32bits(y))
						}
					}
				}
				dst, intact := window(r, (b.words(rows)-1)*ldd+n)
				before := slices.Clone(dst)
				b.packRows(dst, ldd, list, src, lds, n)
				for j := range n {
					var column []float32
					for i := range b.words(rows) {
						column = append(column, dst[i*ldd+j])
					}
					check("packRows", dst, values(column), func(i int) float32 { return src[int(list[i])*lds+j] }, rows)
				}
				for i := range dst {
					if i%ldd >= n && dst[i] != before[i] {
						t.Fatalf("packRows rows=%d n=%d wrote between rows", rows, n)
					}
				}
				if !intact() {
					t.Fatalf("packRows rows=%d n=%d wrote outside of its result", rows, n)
				}

				checkLeft := func(name string, pack packFunc, m, k int, want func(i, p int) float32) {
					t.Helper()
					words := b.words(k)
					lda, space := words+r.IntN(2)*b.unit, m
					if b.tiled {
						space = roundUp(m, tileRows)
					}
					a, intact := window(r, space*lda)
					before := slices.Clone(a)
					pack(a, lda, list, src, lds, n)
					for i := range space {
						for p := range lda {
							at := leftWord(lda, i, p)
							if i < m && p < words {
								check(name, a, values(a[at:][:1]), func(j int) float32 { return want(i, p*b.perWord+j) }, k-p*b.perWord)
							} else if p >= words && a[at] != before[at] {
								t.Fatalf("%s rows=%d n=%d wrote between rows", name, rows, n)
							}
						}
					}
					if !intact() || !srcIntact() {
						t.Fatalf("%s rows=%d n=%d wrote outside of its result", name, rows, n)
					}
				}
				checkLeft("packCols", b.packCols, rows, n, func(i, p int) float32 { return src[int(list[i])*lds+p] })
				if b.tiled {
					checkLeft("packValues", b.packValues, n, rows, func(i, p int) float32 { return src[int(list[p])*lds+i] })
				}
			}
		}
		for _, rows := range []int{1, 2, len(identity), len(identity) + 3} {
			want := make([]float32, b.words(rows)*lanes)
			panel, intact := window(r, max(rows*lanes, len(want)))
			b.packPanel(want, panel, rows)
			b.packPanel(panel, panel, rows)
			if !slices.Equal(values(panel[:len(want)]), values(want)) || !intact() {
				t.Fatalf("packPanel of %d rows in place differs", rows)
			}
		}
	})
}

// TestMultiplicationsBF16 is TestMultiplications for words.
func TestMultiplicationsBF16(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(6, 6))
		b := &active.bf16
		for _, m := range []int{8, 16, 24, 32, 72} {
			for _, k := range []int{1, 2, 7, 16, 64, 101} {
				x, _ := window(r, m*k) // [m, k]
				y, _ := window(r, k*lanes)
				for _, s := range [][]float32{x, y} {
					roundRowsPortable(s, 0, identity[:1], s, 0, len(s))
				}
				words := b.words(k)
				panel := make([]float32, words*lanes)
				b.packPanel(panel, y, k)
				rows := make([]float32, roundUp(m, tileRows)*words)
				b.packCols(rows, words, identity[:m], x, k, k)
				transposed, cols, ld := make([]float32, k*m), make([]float32, words*roundUp(m, tileRows)), m
				if b.tiled {
					ld = words
				}
				transposePortable(transposed, m, x, k, m, k, slices.Repeat(ones[:1], k))
				b.packValues(cols, ld, identity[:k], transposed, m, m)
				for _, keep := range []*[lanes]float32{nil, &ones} {
					for name, call := range map[string]func(c []float32, next *prefetch){
						"mulRows": func(c []float32, next *prefetch) {
							b.mulRows(identity[:m], words, rows, words, panel, c, lanes, keep != nil, next)
						},
						"mulCols": func(c []float32, next *prefetch) {
							b.mulCols(m, identity[:words], cols, ld, panel, c, lanes, keep, next)
						},
					} {
						c, intact := window(r, m*lanes)
						before := slices.Clone(c)
						call(c, planPrefetch(new(prefetch), x, k, identity[:m], nil, 0, m))
						for i := range m {
							for j := range lanes {
								want, scale := 0.0, 0.0
								for p := range k {
									z := float64(x[i*k+p]) * float64(y[p*lanes+j])
									want += z
									scale += math.Abs(z)
								}
								if keep != nil {
									want += float64(before[i*lanes+j])
								}
								near(t, name, c[i*lanes+j], want, scale+math.Abs(want))
							}
						}
						if !intact() {
							t.Fatalf("%s m=%d k=%d wrote outside of its result", name, m, k)
						}
					}
				}
			}
		}
	})
}
