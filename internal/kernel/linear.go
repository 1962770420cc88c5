package kernel

import "fmt"

const (
	// A task of Linear computes at most linearRows x linearCols outputs. It
	// converts its weights once per linearRows rows of x.
	linearRows = 512
	linearCols = 8 * lanes

	// linearDepth is the length of the products summed before the sum is added
	// to the output. A packed panel of weights, [linearDepth, lanes], is 32 KiB.
	linearDepth = 256

	// linearChunk rows of x meet all packed panels before the next ones do, to
	// be read from the second-level cache.
	linearChunk = 128
)

// Linear computes y = x w^T + bias: x [rows, w.Cols], y [rows, w.Rows], bias
// [w.Rows] or nil. Sums are float32, whatever the type of the weights and the
// precision of the products.
func (t *Team) Linear(y, x []float32, rows int, w *Matrix, bias []float32) {
	w.check("Linear")
	if rows < 0 {
		panic(fmt.Sprintf("kernel: Linear: rows is %d, must not be negative", rows))
	}
	checkLen("Linear", "x", len(x), rows*w.Cols)
	checkLen("Linear", "y", len(y), rows*w.Rows)
	checkOptional("Linear", "bias", bias, w.Rows)
	rowTasks, cols := (rows+linearRows-1)/linearRows, linearCols
	for cols > lanes && rowTasks*Groups(w.Rows, cols) < 4*t.workers() {
		cols /= 2 // narrower tasks keep more processors busy
	}
	run(t, &t.linear, rowTasks*Groups(w.Rows, cols), linearJob{y, x, rows, w, bias, cols})
}

type linearJob struct {
	y, x []float32
	rows int
	w    *Matrix
	bias []float32
	cols int // outputs of a task
}

func (j *linearJob) run(s *scratch, task int) {
	colTasks := Groups(j.w.Rows, j.cols)
	r, c := task/colTasks*linearRows, task%colTasks*j.cols
	l := linear{y: j.y, x: j.x, w: j.w, s: s,
		firstRow: r, lastRow: min(r+linearRows, j.rows),
		firstCol: c, lastCol: min(c+j.cols, j.w.Rows)}
	l.multiplyAll()
	if j.bias != nil {
		l.add(j.bias)
	}
}

// linear is one task: rows [firstRow, lastRow) of x, rows [firstCol, lastCol) of w.
type linear struct {
	y, x                                 []float32
	w                                    *Matrix
	s                                    *scratch
	firstRow, lastRow, firstCol, lastCol int
}

func (l *linear) add(bias []float32) {
	for i := l.firstRow; i < l.lastRow; i++ {
		row := l.y[i*l.w.Rows:][:l.w.Rows]
		for j := l.firstCol; j < l.lastCol; j++ {
			row[j] += bias[j]
		}
	}
}

func (l *linear) multiplyAll() {
	if l.w.Precision.rounds() {
		l.multiplyPacked()
		return
	}
	in := l.w.Cols
	depth := min(linearDepth, in)
	panelSize := depth * lanes
	l.s.weights = sized(&l.s.weights, linearCols/lanes*panelSize)
	l.s.column = sized(&l.s.column, depth)
	l.s.product = sized(&l.s.product, linearChunk*lanes)

	for d := 0; d < in; d += depth {
		n := min(depth, in-d)
		for c := l.firstCol; c < l.lastCol; c += lanes {
			panel := l.s.weights[(c-l.firstCol)/lanes*panelSize:]
			l.w.pack(panel, l.s.column, c, min(lanes, l.lastCol-c), d, n)
		}
		for r := l.firstRow; r < l.lastRow && !l.s.team.Stopped(); r += linearChunk {
			rows := min(linearChunk, l.lastRow-r)
			whole := rows / rowUnit * rowUnit
			if whole > 0 {
				l.multiply(r, whole, d, n)
			}
			if whole < rows {
				l.multiply(r+whole, rows-whole, d, n)
			}
		}
	}
}

// multiply adds the products over columns [d, d+n) of x and w to rows
// [row, row+rows) of y: whole units of rows, or less than one.
func (l *linear) multiply(row, rows, d, n int) {
	x, list := l.x[row*l.w.Cols+d:], identity[:rows]
	if rows < rowUnit {
		list = padList(append(sized(&l.s.index[0], rowUnit+soonRows)[:0], list...))
	}
	out := l.w.Rows
	panelSize := min(linearDepth, l.w.Cols) * lanes
	for c := l.firstCol; c < l.lastCol; c += lanes {
		panel := l.s.weights[(c-l.firstCol)/lanes*panelSize:]
		y := l.y[row*out+c:]
		width := min(lanes, l.lastCol-c)
		if width == lanes && rows >= rowUnit {
			active.mulRows(list, n, x, l.w.Cols, panel, y, out, d > 0, nil)
			continue
		}
		active.mulRows(units(list), n, x, l.w.Cols, panel, l.s.product, lanes, false, nil)
		for i := range rows {
			dst := y[i*out:][:width]
			for j, sum := range l.s.product[i*lanes:][:width] {
				if d > 0 {
					sum += dst[j]
				}
				dst[j] = sum
			}
		}
	}
}
