package kernel

// SwiGLU computes dst = silu(gate) * up with silu(x) = x / (1 + exp(-x)), with a
// relative error of at most 4e-7 (see level.swiGLU). dst may be gate or up.
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
	units := lo + (hi-lo)/lanes*lanes
	if units > lo {
		active.swiGLU(j.dst[lo:units], j.gate[lo:units], j.up[lo:units])
	}
	swiGLUPortable(j.dst[units:hi], j.gate[units:hi], j.up[units:hi])
}
