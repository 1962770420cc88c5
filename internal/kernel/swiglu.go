package kernel

import "fmt"

// SwiGLU computes dst = silu(gate of x) * up of x, element by element, with
// silu(x) = x / (1 + exp(-x)) to a relative error of at most 4e-7 (see
// isa.swiGLU): x [rows, inputs], dst [rows, outputs]. Both projections are those
// of Linear. Their outputs stay in the caches.
func (t *Team) SwiGLU(dst, x []float32, rows int, gate, up Projection) {
	if rows < 0 {
		panic(fmt.Sprintf("kernel: SwiGLU: rows is %d, must not be negative", rows))
	}
	gate.check("SwiGLU", x, rows)
	up.check("SwiGLU", x, rows)
	outputs := gate.Weight.Rows
	if up.Weight.Rows != outputs {
		panic(fmt.Sprintf("kernel: SwiGLU: gate has %d outputs, up %d", outputs, up.Weight.Rows))
	}
	checkLen("SwiGLU", "dst", len(dst), rows*outputs)
	// Half as many as in Linear: outputs of both projections share a cache.
	taskRows, cols := t.linearTask(rows, outputs, &gate.Weight)
	cols = max(lanes, cols/2)
	var packed packedInputs
	t.packInputs(&packed, x, rows, &gate.Weight)
	t.packInputs(&packed, x, rows, &up.Weight)
	run(t, &t.swiGLU, rowTasks(rows, taskRows)*Groups(outputs, cols), swiGLUJob{dst, x, packed, rows, gate, up, taskRows, cols})
}

type swiGLUJob struct {
	dst, x         []float32
	packed         packedInputs
	rows           int
	gate, up       Projection
	taskRows, cols int // of a task
}

func (j *swiGLUJob) run(s *scratch, task int) {
	outputs := j.gate.Weight.Rows
	colTasks := Groups(outputs, j.cols)
	r, c := task/colTasks*j.taskRows, task%colTasks*j.cols
	l := linear{y: j.dst[r*outputs+c:], stride: outputs, x: j.x, packed: &j.packed, w: &j.gate.Weight, s: s,
		firstRow: r, lastRow: min(r+j.taskRows, j.rows),
		firstCol: c, lastCol: min(c+j.cols, outputs)}
	up := l
	up.w, up.y, up.stride = &j.up.Weight, sized(&s.up, j.taskRows*j.cols), j.cols
	l.multiply(j.gate.Bias)
	up.multiply(j.up.Bias)
	width := l.lastCol - c
	for i := r; i < l.lastRow; i++ {
		row := l.at(i, c)[:width]
		s.swiGLU(row, up.at(i, c)[:width])
	}
}

// swiGLU makes gate silu(gate) * up.
func (s *scratch) swiGLU(gate, up []float32) {
	n := len(gate) / lanes * lanes
	if n > 0 {
		active.swiGLU(gate[:n], gate[:n], up[:n])
	}
	if n < len(gate) {
		// The rest is padded to a whole unit, so that the result of an element does
		// not depend on the number of elements after it.
		g, u := s.rest[:lanes], s.rest[lanes:]
		clear(s.rest[:])
		copy(g, gate[n:])
		copy(u, up[n:])
		active.swiGLU(g, g, u)
		copy(gate[n:], g)
	}
}
