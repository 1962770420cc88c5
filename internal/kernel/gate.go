package kernel

import "math"

// Gate computes dst = silu(gate) * up, element by element, as SwiGLU of its projections.
// dst may be gate or up.
func (t *Team) Gate(dst, gate, up []float32) {
	checkLen("Gate", "dst", len(dst), len(gate))
	checkLen("Gate", "up", len(up), len(gate))
	s := spans{len(gate), elementGrain}
	run(t, &t.gate, s.tasks(), gateJob{dst: dst, gate: gate, up: up, spans: s})
}

// GateGrad is the backward pass of Gate: from dy, the gradient of a scalar with respect to
// the result, it computes
//
//	dgate = dy up σ (1 + gate (1-σ))
//	dup = dy gate σ
//
// with σ = 1 / (1 + exp(-gate)). Each of dgate and dup may be nil, dgate may be gate, and
// dup may be up.
func (t *Team) GateGrad(dgate, dup, dy, gate, up []float32) {
	checkLen("GateGrad", "gate", len(gate), len(dy))
	checkLen("GateGrad", "up", len(up), len(dy))
	checkOptional("GateGrad", "dgate", dgate, len(dy))
	checkOptional("GateGrad", "dup", dup, len(dy))
	s := spans{len(gate), elementGrain}
	run(t, &t.gate, s.tasks(), gateJob{dgate: dgate, dup: dup, dy: dy, gate: gate, up: up, spans: s})
}

type gateJob struct {
	dst            []float32 // nil in the backward pass
	gate, up       []float32
	dgate, dup, dy []float32
	spans
}

func (j *gateJob) run(s *scratch, task int) {
	lo, hi := j.bounds(task)
	if j.dst != nil {
		if &j.dst[lo] == &j.up[lo] { // s.swiGLU writes over the gate
			gate := sized(&s.up, hi-lo)
			copy(gate, j.gate[lo:hi])
			s.swiGLU(gate, j.up[lo:hi])
			copy(j.dst[lo:hi], gate)
			return
		}
		copy(j.dst[lo:hi], j.gate[lo:hi])
		s.swiGLU(j.dst[lo:hi], j.up[lo:hi])
		return
	}
	for i := lo; i < hi; i++ {
		g, u, dy := j.gate[i], j.up[i], j.dy[i]
		e := min(exp32(-g), math.MaxFloat32)
		sigmoid := 1 / (1 + e)
		if j.dgate != nil {
			j.dgate[i] = dy * u * sigmoid * (1 + g*(e*sigmoid)) // 1-sigmoid without cancellation
		}
		if j.dup != nil {
			j.dup[i] = dy * g * sigmoid
		}
	}
}
