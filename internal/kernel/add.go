package kernel

// Add computes dst = a + b. dst may be a or b.
func Add(dst, a, b []float32) {
	checkLen("Add", "dst", len(dst), len(a))
	checkLen("Add", "b", len(b), len(a))
	parallelRange(len(a), elementGrain, func(lo, hi int) {
		b := b[lo:hi]
		dst := dst[lo:hi]
		for i, x := range a[lo:hi] {
			dst[i] = x + b[i]
		}
	})
}
