package kernel

import "fmt"

const (
	// A task of Linear computes at most linearRows x linearCols outputs. It
	// converts its weights once per linearRows rows of x. Products of bfloat16 have
	// their own numbers instead of these four, see blocking.
	linearRows = 512
	linearCols = 8 * lanes

	// linearDepth is the length of the products summed before the sum is added
	// to the output. A packed panel of weights, [linearDepth, lanes], is 32 KiB.
	linearDepth = 256

	// linearChunk rows of x are multiplied with all packed panels before the next
	// rows, so that they stay in the second-level cache.
	linearChunk = 128
)

// Projection is a linear map of the features of a token.
type Projection struct {
	Weight Matrix
	Bias   []float32 // [Weight.Rows], or nil
}

func (p *Projection) check(fn string, x []float32, rows int) {
	p.Weight.check(fn)
	checkLen(fn, "x", len(x), rows*p.Weight.Cols)
	checkOptional(fn, "bias", p.Bias, p.Weight.Rows)
}

// Linear computes y = x w^T + bias: x [rows, w.Cols], y [rows, w.Rows], bias
// [w.Rows] or nil. Sums are float32, whatever the type of the weights and the
// precision of the products.
func (t *Team) Linear(y, x []float32, rows int, w *Matrix, bias []float32) {
	t.startLinear(linearJob{y: y, x: x, rows: rows, only: Projection{*w, bias}})
}

// Linears is Linear for several projections of the same inputs, whose outputs are
// concatenated: y [rows, sum of outputs]. It adds residual, of y's size, unless that
// is nil. parts must not change until it returns.
func (t *Team) Linears(y, x, residual []float32, rows int, parts []Projection) {
	t.startLinear(linearJob{y: y, x: x, residual: residual, rows: rows, parts: parts})
}

func (t *Team) startLinear(j linearJob) {
	if j.rows < 0 {
		panic(fmt.Sprintf("kernel: Linear: rows is %d, must not be negative", j.rows))
	}
	for i := range j.count() {
		p := j.part(i)
		p.check("Linear", j.x, j.rows)
		j.outputs += p.Weight.Rows
	}
	checkLen("Linear", "y", len(j.y), j.rows*j.outputs)
	checkOptional("Linear", "residual", j.residual, len(j.y))
	w := &j.part(0).Weight
	j.taskRows, j.cols = t.linearTask(j.rows, j.outputs, w)
	for i := range j.count() {
		j.colTasks += Groups(j.part(i).Weight.Rows, j.cols)
	}
	j.packed = packedInputs{}
	for i := range j.count() {
		t.packInputs(&j.packed, j.x, j.rows, &j.part(i).Weight)
	}
	run(t, &t.linear, rowTasks(j.rows, j.taskRows)*j.colTasks, j)
}

// linearTask is how many rows and outputs a task computes.
func (t *Team) linearTask(rows, outputs int, w *Matrix) (taskRows, cols int) {
	taskRows, cols = linearRows, linearCols
	switch {
	case w.Precision == BFloat16:
		taskRows, cols = active.bf16.blocking.rows, active.bf16.outputs
	case w.multipliesCodes() && rows <= fewRows:
		return taskRows, lanes
	}
	for cols > lanes && rowTasks(rows, taskRows)*Groups(outputs, cols) < 4*t.workers() {
		cols /= 2 // narrower tasks keep more processors busy
	}
	return taskRows, cols
}

func rowTasks(rows, taskRows int) int { return (rows + taskRows - 1) / taskRows }

type linearJob struct {
	y, x, residual []float32
	packed         packedInputs
	rows           int
	only           Projection // without parts
	parts          []Projection
	outputs        int // of all parts
	taskRows, cols int // of a task
	colTasks       int
}

func (j *linearJob) count() int { return max(1, len(j.parts)) }

func (j *linearJob) part(i int) *Projection {
	if len(j.parts) == 0 {
		return &j.only
	}
	return &j.parts[i]
}

func (j *linearJob) run(s *scratch, task int) {
	r, colTask := task/j.colTasks*j.taskRows, task%j.colTasks
	p, left := j.part(0), 0 // outputs of the parts before
	for i := 1; colTask >= Groups(p.Weight.Rows, j.cols); i++ {
		colTask -= Groups(p.Weight.Rows, j.cols)
		left += p.Weight.Rows
		p = j.part(i)
	}
	c := colTask * j.cols
	at := r*j.outputs + left + c
	l := linear{y: j.y[at:], stride: j.outputs, x: j.x, packed: &j.packed, w: &p.Weight, s: s,
		firstRow: r, lastRow: min(r+j.taskRows, j.rows),
		firstCol: c, lastCol: min(c+j.cols, p.Weight.Rows)}
	l.multiply(p.Bias)
	if j.residual != nil {
		l.addResidual(j.residual[at:])
	}
}

// linear is one task: rows [firstRow, lastRow) of x, rows [firstCol, lastCol) of w.
type linear struct {
	y                                    []float32 // from the first output on
	stride                               int       // between rows of y
	x                                    []float32
	packed                               *packedInputs
	w                                    *Matrix
	s                                    *scratch
	firstRow, lastRow, firstCol, lastCol int
}

// panels is how many panels of weights the task has.
func (l *linear) panels() int { return (l.lastCol - l.firstCol + lanes - 1) / lanes }

// at is y from the output of row i of x and row j of w on.
func (l *linear) at(i, j int) []float32 { return l.y[(i-l.firstRow)*l.stride+j-l.firstCol:] }

// multiply computes the task's outputs.
func (l *linear) multiply(bias []float32) {
	switch {
	case l.w.multipliesCodes():
		l.multiplyCodes()
	case l.w.Precision.rounds():
		l.multiplyPacked()
	default:
		l.multiplyFloats()
	}
	if bias == nil {
		return
	}
	for i := l.firstRow; i < l.lastRow; i++ {
		row := l.at(i, l.firstCol)
		for j, b := range bias[l.firstCol:l.lastCol] {
			row[j] += b
		}
	}
}

// addResidual adds a residual of the layout of y.
func (l *linear) addResidual(residual []float32) {
	for i := l.firstRow; i < l.lastRow; i++ {
		row := l.at(i, l.firstCol)[:l.lastCol-l.firstCol]
		for j, r := range residual[(i-l.firstRow)*l.stride:][:len(row)] {
			row[j] += r
		}
	}
}

func (l *linear) multiplyFloats() {
	in := l.w.Cols
	depth := min(linearDepth, in)
	panelSize := depth * lanes
	l.s.weights = sized(&l.s.weights, l.panels()*panelSize)
	l.s.product = sized(&l.s.product, linearChunk*lanes)

	for d := 0; d < in; d += depth {
		n := min(depth, in-d)
		for c := l.firstCol; c < l.lastCol; c += lanes {
			panel := l.s.weights[(c-l.firstCol)/lanes*panelSize:]
			l.w.pack(panel, l.s, c, min(lanes, l.lastCol-c), d, n)
		}
		for r := l.firstRow; r < l.lastRow && !l.s.team.Stopped(); r += linearChunk {
			rows := min(linearChunk, l.lastRow-r)
			whole := rows / rowUnit * rowUnit
			if whole > 0 {
				l.multiplyRows(r, whole, d, n)
			}
			if whole < rows {
				l.multiplyRows(r+whole, rows-whole, d, n)
			}
		}
	}
}

// multiplyRows adds the products over columns [d, d+n) of x and w to rows
// [row, row+rows) of y: whole units of rows, or less than one.
func (l *linear) multiplyRows(row, rows, d, n int) {
	x, list := l.x[row*l.w.Cols+d:], identity[:rows]
	if rows < rowUnit {
		list = padList(append(sized(&l.s.index[0], rowUnit+prefetchRows)[:0], list...))
	}
	panelSize := min(linearDepth, l.w.Cols) * lanes
	for c := l.firstCol; c < l.lastCol; c += lanes {
		panel := l.s.weights[(c-l.firstCol)/lanes*panelSize:]
		y := l.at(row, c)
		width := min(lanes, l.lastCol-c)
		if width == lanes && rows >= rowUnit {
			active.mulRows(list, n, x, l.w.Cols, panel, y, l.stride, d > 0, nil)
			continue
		}
		// A narrow or short piece goes through a whole one, so that its sums are added up
		// in the same order.
		for i := range rows {
			copy(l.s.product[i*lanes:][:width], y[i*l.stride:])
		}
		active.mulRows(units(list), n, x, l.w.Cols, panel, l.s.product, lanes, d > 0, nil)
		for i := range rows {
			copy(y[i*l.stride:][:width], l.s.product[i*lanes:])
		}
	}
}
