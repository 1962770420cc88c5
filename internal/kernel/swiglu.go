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

func (j *swiGLUJob) run(w *scratch, task int) {
	lo, hi := j.bounds(task)
	units := lo + (hi-lo)/lanes*lanes
	if units > lo {
		active.swiGLU(j.dst[lo:units], j.gate[lo:units], j.up[lo:units])
	}
	if units < hi {
		// The rest is padded to a whole unit, so that what an element gives does not
		// depend on how many stand behind it.
		gate, up := w.rest[:lanes], w.rest[lanes:]
		clear(w.rest[:])
		copy(gate, j.gate[units:hi])
		copy(up, j.up[units:hi])
		active.swiGLU(gate, gate, up)
		copy(j.dst[units:hi], gate)
	}
}
