package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTopKRoutines compares the vector routines of the selection with their scalar functions,
// on any bits.
func TestTopKRoutines(t *testing.T) {
	ForEachISA(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(8, 8))
		for _, n := range []int{lanes, 2 * lanes, 11 * lanes} {
			scores := make([]float32, n)
			for i := range scores {
				switch r.IntN(3) {
				case 0:
					scores[i] = math.Float32frombits(r.Uint32())
				case 1:
					scores[i] = []float32{0, float32(math.Copysign(0, -1)), 1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}[r.IntN(6)]
				default:
					scores[i] = r.Float32()
				}
			}
			order := make([]uint32, n+1)
			order[n] = guardValue
			active.sortKeys(order, scores)
			for i, s := range scores {
				if order[i] != sortKey(s) {
					t.Fatalf("sortKey(%g) = %08x, want %08x", s, order[i], sortKey(s))
				}
			}
			if order[n] != guardValue {
				t.Fatal("sortKeys wrote outside of its result")
			}
			order = order[:n]
			for _, digit := range []uint32{0, 1, order[0] >> digitShift, 1<<digitBits - 1} {
				bits, ties := make([]uint32, n/32+1), make([]uint32, n+lanes+1)
				bits[n/32], ties[n+lanes] = guardValue, guardValue
				count := active.partition(bits[:n/32], ties[:n+lanes], order, digit)
				var want []uint32
				for i, x := range order {
					if above := bits[i/32]>>(i%32)&1 == 1; above != (x>>digitShift > digit) {
						t.Fatalf("digit %d: bit %d is %v", digit, i, above)
					}
					if x>>digitShift == digit {
						want = append(want, uint32(i))
					}
				}
				if !slices.Equal(ties[:count], want) && len(want) > 0 {
					t.Fatalf("digit %d: ties %v, want %v", digit, ties[:count], want)
				}
				if count != len(want) || bits[n/32] != guardValue || ties[n+lanes] != guardValue {
					t.Fatalf("digit %d: %d ties of %d, or wrote outside of the results", digit, count, len(want))
				}
			}
		}
	})
}

// TestSortKey checks that the order of sort keys is that of TopK.
func TestSortKey(t *testing.T) {
	inf := float32(math.Inf(1))
	ascending := []float32{-inf, -math.MaxFloat32, -1, -math.SmallestNonzeroFloat32, 0,
		math.SmallestNonzeroFloat32, 1, math.Nextafter32(1, 2), math.MaxFloat32, inf}
	for i, x := range ascending {
		if sortKey(x) <= sortKeyNaN {
			t.Errorf("sortKey(%g) is not above that of NaN", x)
		}
		if i > 0 && sortKey(x) <= sortKey(ascending[i-1]) {
			t.Errorf("sortKey(%g) is not above sortKey(%g)", x, ascending[i-1])
		}
	}
	if negative := float32(math.Copysign(0, -1)); sortKey(negative) != sortKey(0) {
		t.Error("-0 and 0 differ in sort key")
	}
	for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7f800001} {
		if sortKey(math.Float32frombits(bits)) != sortKeyNaN {
			t.Errorf("sort key of the NaN %08x", bits)
		}
	}
}
