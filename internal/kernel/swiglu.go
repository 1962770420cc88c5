package kernel

// SwiGLU computes dst = silu(gate) * up with silu(x) = x / (1 + exp(-x)). dst
// may be gate or up.
func (t *Team) SwiGLU(dst, gate, up []float32) {
	checkLen("SwiGLU", "dst", len(dst), len(gate))
	checkLen("SwiGLU", "up", len(up), len(gate))
	s := spans{len(gate), elementGrain}
	run(t, &t.swiGLU, s.tasks(), swiGLUJob{dst, gate, up, s})
}

type swiGLUJob struct {
	dst, gate, up []float32
	spans
}

func (j *swiGLUJob) run(_ *scratch, task int) {
	lo, hi := j.bounds(task)
	for i := lo; i < hi; i++ {
		g := j.gate[i]
		j.dst[i] = g / (1 + exp32(-g)) * j.up[i]
	}
}
