package kernel

// SwiGLU computes dst = silu(gate) * up with silu(x) = x / (1 + exp(-x)). dst
// may be gate or up.
func SwiGLU(dst, gate, up []float32) {
	checkLen("SwiGLU", "dst", len(dst), len(gate))
	checkLen("SwiGLU", "up", len(up), len(gate))
	parallelRange(len(gate), elementGrain, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			g := gate[i]
			dst[i] = g / (1 + exp32(-g)) * up[i]
		}
	})
}
