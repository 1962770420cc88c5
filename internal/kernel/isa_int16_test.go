package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// integersOf unpacks words of integers.
func integersOf(words []float32) (x []float32) {
	for _, w := range words {
		if active.int16.perWord == 1 {
			x = append(x, w)
			continue
		}
		bits := math.Float32bits(w)
		x = append(x, float32(int16(bits)), float32(int16(bits>>16)))
	}
	return x
}

func sameFloats(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, x := range want {
		if math.Float32bits(got[i]) != math.Float32bits(x) && (got[i] == got[i] || x == x) && got[i] != x {
			t.Fatalf("%s: [%d] is %g, want %g", what, i, got[i], x)
		}
	}
}

// TestPackInt16 compares the integers of each instruction set with those of portable Go,
// which must be the same, and these with their definition.
func TestPackInt16(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	special := []float32{0, -inf, inf, nan, math.Float32frombits(0xff800001), math.MaxFloat32, 1e-42, 0x1p-120, -0x1p-101}
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(8, 8))
		b := &active.int16
		for _, rows := range []int{1, 2, 5, 8} {
			for _, n := range []int{1, 5, 8, 16, 17, 31, 32, 33, 63, 64, 128, 261} {
				for _, share := range []float32{0, 0.25} {
					list := make([]int32, rows)
					for i := range list {
						list[i] = int32(r.IntN(2 * rows))
					}
					lds, ldd := n+r.IntN(2)*3, n+r.IntN(2)*6
					src, srcIntact := window(r, (2*rows-1)*lds+n)
					for i := range src {
						if r.IntN(9) == 0 {
							src[i] = special[r.IntN(len(special))]
						}
					}
					const largest = 4095
					want, wantUnits := make([]float32, rows*n), make([]float32, n)
					quantizeRowsPortable(want, n, wantUnits, list, src, lds, n, largest, share)
					dst, intact := window(r, (b.words(rows)-1)*ldd+n)
					units, unitsIntact := window(r, n)
					before := slices.Clone(dst)
					b.packRows(dst, ldd, units, list, src, lds, n, largest, share)
					sameFloats(t, "units of packRows", units, wantUnits)
					for j := range n {
						var column []float32
						sum := 0.0
						for i := range b.words(rows) {
							column = append(column, dst[i*ldd+j])
						}
						for i, x := range integersOf(column) {
							if units[j] != units[j] {
								break
							}
							y := float32(0)
							if i < rows {
								y = want[i*n+j]
							}
							if x != y || math.Abs(float64(x)) > largest {
								t.Fatalf("packRows rows=%d n=%d: integer %d of column %d is %g, want %g", rows, n, i, j, x, y)
							}
							if i < rows {
								exact := float64(src[int(list[i])*lds+j])
								if math.Abs(float64(x*units[j])-exact) > 0.501*float64(units[j]) {
									t.Fatalf("packRows: %g stands for %g", x*units[j], exact)
								}
							}
							sum += math.Abs(float64(x))
						}
						if share > 0 && sum > float64(largest/share)+float64(rows)/2 {
							t.Fatalf("packRows rows=%d n=%d: column %d has a sum of %g", rows, n, j, sum)
						}
					}
					for i := range dst {
						if i%ldd >= n && dst[i] != before[i] {
							t.Fatalf("packRows rows=%d n=%d wrote between rows", rows, n)
						}
					}
					if !intact() || !unitsIntact() {
						t.Fatalf("packRows rows=%d n=%d wrote outside of its results", rows, n)
					}

					want, wantUnits = make([]float32, rows*n), make([]float32, rows)
					quantizeColsPortable(want, n, wantUnits, list, src, lds, n, largest)
					dst, intact = window(r, (rows-1)*ldd+b.words(n))
					units, unitsIntact = window(r, rows)
					before = slices.Clone(dst)
					b.packCols(dst, ldd, units, list, src, lds, n, largest)
					sameFloats(t, "units of packCols", units, wantUnits)
					for i := range rows {
						if got := integersOf(dst[i*ldd:][:b.words(n)]); units[i] == units[i] {
							sameFloats(t, "packCols", got, append(slices.Clone(want[i*n:][:n]), make([]float32, len(got)-n)...))
						}
					}
					for i := range dst {
						if i%ldd >= b.words(n) && dst[i] != before[i] {
							t.Fatalf("packCols rows=%d n=%d wrote between rows", rows, n)
						}
					}
					if !intact() || !unitsIntact() || !srcIntact() {
						t.Fatalf("packCols rows=%d n=%d wrote outside of its results", rows, n)
					}
				}
			}
		}
	})
}

// TestMultiplicationsInt16 goes from numbers to numbers: packing, multiplication
// and unscale, against the product of the integers.
func TestMultiplicationsInt16(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(9, 9))
		b := &active.int16
		for _, m := range []int{8, 24} {
			for _, k := range []int{1, 2, 7, 16, 64, 101} {
				x, _ := window(r, m*k) // [m, k]
				y, _ := window(r, k*lanes)
				words, largest := b.words(k), largestInt16(k)
				transposed := make([]float32, k*m)
				transposePortable(transposed, m, x, k, m, k, slices.Repeat(ones[:1], k))

				// The integers themselves.
				ix, iy, unitX, unitY := make([]float32, m*k), make([]float32, k*lanes), make([]float32, m), make([]float32, lanes)
				quantizeColsPortable(ix, k, unitX, identity[:m], x, k, k, largest)
				quantizeRowsPortable(iy, lanes, unitY, identity[:k], y, lanes, lanes, largest, 0)

				panel, byLane := make([]float32, words*lanes), make([]float32, lanes)
				b.packRows(panel, lanes, byLane, identity[:k], y, lanes, lanes, largest, 0)
				rows, cols, byRow := make([]float32, m*words), make([]float32, words*m), make([]float32, m)
				for name, call := range map[string]func(c []float32){
					"mulRows": func(c []float32) {
						b.packCols(rows, words, byRow, identity[:m], x, k, k, largest)
						b.mulRows(identity[:m], words, rows, words, panel, c, lanes, false, nil)
					},
					"mulCols": func(c []float32) {
						b.packRows(cols, m, byRow, identity[:k], transposed, m, m, largest, 0)
						b.mulCols(m, identity[:words], cols, m, panel, c, lanes, nil, nil)
					},
				} {
					sums, sumsIntact := window(r, m*lanes)
					call(sums)
					const ldc = lanes + 5
					for _, keep := range [][]float32{nil, y[:lanes]} {
						c, intact := window(r, (m-1)*ldc+lanes)
						before := slices.Clone(c)
						b.unscale(c, ldc, sums, m, byRow, byLane, keep)
						for i := range m {
							for j := range lanes {
								want := 0.0
								for p := range k {
									want += float64(ix[i*k+p]) * float64(iy[p*lanes+j])
								}
								if !(math.Abs(want) < 1<<31) {
									t.Fatalf("%s m=%d k=%d: a sum of %g", name, m, k, want)
								}
								scale := float64(unitX[i]) * float64(unitY[j])
								want *= scale
								scale *= float64(k) * float64(largest) * float64(largest)
								if keep != nil {
									kept := float64(before[i*ldc+j]) * float64(keep[j])
									want += kept
									scale += math.Abs(kept)
								}
								near(t, name, c[i*ldc+j], want, scale)
							}
							if i < m-1 && !slices.Equal(c[i*ldc+lanes:(i+1)*ldc], before[i*ldc+lanes:(i+1)*ldc]) {
								t.Fatalf("unscale wrote between rows")
							}
						}
						if !intact() || !sumsIntact() {
							t.Fatalf("%s m=%d k=%d wrote outside of its result", name, m, k)
						}
					}
				}
			}
		}
	})
}
