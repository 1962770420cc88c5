package kernel

import "fmt"

// MatMul is a matrix product of float32, C = Scale op(A) op(B), added to C with Add. Matrices
// are row by row, with LDA and LDC elements from one row to the next. W, if it is not nil,
// is a matrix [K, N] in place of B.
type MatMul struct {
	M, N, K int
	A       []float32 // [M, K], or with TransA [K, M]
	LDA     int
	TransA  bool
	B       []float32 // [K, N], or with TransB [N, K]
	TransB  bool
	W       *Matrix
	C       []float32 // [M, N]
	LDC     int
	Scale   float32
	Add     bool
}

// matMulDepth is the length of the products summed before the sum is added to C.
const matMulDepth = 256

// MatMul computes a product. Products and sums are float32, whatever the type and the
// precision of W.
func (t *Team) MatMul(p MatMul) {
	p.check()
	rows, cols := linearRows, linearCols
	for cols > lanes && rowTasks(p.M, rows)*Groups(p.N, cols) < 4*t.workers() {
		cols /= 2
	}
	j := matMulJob{MatMul: p, taskRows: rows, taskCols: cols}
	run(t, &t.matMul, rowTasks(p.M, rows)*Groups(p.N, cols), j)
}

func (p *MatMul) check() {
	if p.M <= 0 || p.N <= 0 || p.K <= 0 {
		panic(fmt.Sprintf("kernel: MatMul: [%d %d] by [%d %d], must be positive", p.M, p.K, p.K, p.N))
	}
	rows, cols := p.M, p.K
	if p.TransA {
		rows, cols = p.K, p.M
	}
	if p.LDA < cols || p.LDC < p.N {
		panic(fmt.Sprintf("kernel: MatMul: rows of A are %d apart and have %d elements, of C %d and %d", p.LDA, cols, p.LDC, p.N))
	}
	checkAtLeast("MatMul", "A", len(p.A), (rows-1)*p.LDA+cols)
	checkAtLeast("MatMul", "C", len(p.C), (p.M-1)*p.LDC+p.N)
	if p.W == nil {
		checkLen("MatMul", "B", len(p.B), p.K*p.N)
		return
	}
	p.W.check("MatMul")
	if p.W.Rows != p.K || p.W.Cols != p.N || p.TransB {
		panic(fmt.Sprintf("kernel: MatMul: weight [%d %d], must be [%d %d], not transposed", p.W.Rows, p.W.Cols, p.K, p.N))
	}
}

func checkAtLeast(fn, name string, have, want int) {
	if have < want {
		panic(fmt.Sprintf("kernel: %s: %s has %d elements, must have at least %d", fn, name, have, want))
	}
}

type matMulJob struct {
	MatMul
	taskRows, taskCols int
}

func (j *matMulJob) run(s *scratch, task int) {
	colTasks := Groups(j.N, j.taskCols)
	r, c := task/colTasks*j.taskRows, task%colTasks*j.taskCols
	rows, cols := min(j.taskRows, j.M-r), min(j.taskCols, j.N-c)
	s.weights = sized(&s.weights, Groups(cols, lanes)*matMulDepth*lanes)
	for d := 0; d < j.K && !s.team.Stopped(); d += matMulDepth {
		n := min(matMulDepth, j.K-d)
		j.pack(s, c, cols, d, n)
		for i := 0; i < rows; i += linearChunk {
			count := min(linearChunk, rows-i)
			whole := count / rowUnit * rowUnit
			for at := 0; at < cols; at += lanes {
				panel, width := s.weights[at/lanes*matMulDepth*lanes:], min(lanes, cols-at)
				if whole > 0 {
					j.multiply(s, r+i, whole, c+at, width, d, n, panel)
				}
				if whole < count {
					j.multiply(s, r+i+whole, count-whole, c+at, width, d, n, panel)
				}
			}
		}
	}
}

// pack makes panels [n, lanes] of rows [d, d+n), columns [c, c+cols) of op(B), times Scale.
func (j *matMulJob) pack(s *scratch, c, cols, d, n int) {
	line := sized(&s.column, max(cols, n))
	for at := 0; at < cols; at += lanes {
		panel, width := s.weights[at/lanes*matMulDepth*lanes:][:n*lanes], min(lanes, cols-at)
		if width < lanes {
			clear(panel)
		}
		switch {
		case j.TransB:
			for i := range line[:n] {
				line[i] = j.Scale
			}
			transpose(panel, lanes, j.B[(c+at)*j.K+d:], j.K, width, n, line)
			continue
		case j.W == nil:
			for i := range n {
				copy(panel[i*lanes:][:width], j.B[(d+i)*j.N+c+at:])
			}
		default:
			continue // below, a whole row at once
		}
		j.scale(panel, n)
	}
	if j.W == nil {
		return
	}
	for i := range n {
		j.W.decode(line[:cols], d+i, c)
		for at := 0; at < cols; at += lanes {
			copy(s.weights[at/lanes*matMulDepth*lanes+i*lanes:][:lanes], line[at:cols])
		}
	}
	for at := 0; at < cols; at += lanes {
		j.scale(s.weights[at/lanes*matMulDepth*lanes:], n)
	}
}

func (j *matMulJob) scale(panel []float32, n int) {
	if j.Scale == 1 {
		return
	}
	var factors [lanes]float32
	for i := range factors {
		factors[i] = j.Scale
	}
	active.scaleRows(panel, n, factors[:])
}

// multiply adds op(A) panel over rows [d, d+n) of op(B) to rows [r, r+rows), columns
// [c, c+width) of C: whole units of rows, or less than one.
func (j *matMulJob) multiply(s *scratch, r, rows, c, width, d, n int, panel []float32) {
	dst := j.C[r*j.LDC+c:]
	add := j.Add || d > 0
	if width == lanes && rows >= rowUnit {
		j.product(s, dst, j.LDC, r, rows, d, n, panel, add)
		return
	}
	// A narrow or short piece goes through a whole one.
	product := sized(&s.product, linearChunk*lanes)
	j.product(s, product, lanes, r, rows, d, n, panel, false)
	for i := range rows {
		row := dst[i*j.LDC:][:width]
		for k, x := range product[i*lanes:][:width] {
			if add {
				x += row[k]
			}
			row[k] = x
		}
	}
}

// product computes rows [r, r+rows) of op(A) by a panel.
func (j *matMulJob) product(s *scratch, dst []float32, ldd, r, rows, d, n int, panel []float32, add bool) {
	if !j.TransA {
		list := identity[:rows]
		if rows < rowUnit {
			list = padList(append(sized(&s.index[0], rowUnit+prefetchRows)[:0], list...))
		}
		active.mulRows(units(list), n, j.A[r*j.LDA+d:], j.LDA, panel, dst, ldd, add, nil)
		return
	}
	a, lda := j.A[d*j.LDA+r:], j.LDA
	if rows < rowUnit { // columns of A that fill no unit are copied, with any others after them
		columns := sized(&s.grad, n*rowUnit)
		for i := range n {
			copy(columns[i*rowUnit:][:rows], a[i*lda:])
		}
		a, lda = columns, rowUnit
	}
	var keep *[lanes]float32
	if add {
		keep = &ones
	}
	active.mulCols(roundUp(rows, rowUnit), identity[:n], a, lda, panel, dst, ldd, keep, nil)
}
