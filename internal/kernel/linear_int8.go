package kernel

// multipliesCodes reports whether products with the matrix are of integers of 8 bits.
func (m *Matrix) multipliesCodes() bool { return m.Precision == Int8 && m.DType.Quantized() }

// fewRows is the largest number of rows for which a task of Int8 has a single panel of
// weights, which stays in the first-level cache from where it is unpacked to its product.
const fewRows = 64

const blockTaskRows = 2 * codeRows

// blocksJob packs inputs as codeProducts.mulBlocks reads them.
type blocksJob struct {
	dst, x       []float32
	rows, blocks int // blocks of a row
}

func (j *blocksJob) run(_ *scratch, task int) {
	r, in := task*blockTaskRows, j.blocks*blockInputs
	end := min(r+blockTaskRows, j.rows)
	at := func(i int) []float32 { return j.dst[i/codeRows*codeRows*j.blocks*blockWords+i%codeRows*blockWords:] }
	for i := r; i < end; i++ {
		active.codes.roundBlocks(at(i), j.x[i*in:], j.blocks)
	}
	// mulBlocks reads whole units of rows.
	for i := end; i < roundUp(end, codeRows); i++ {
		for b := range j.blocks {
			clear(at(i)[b*codeRows*blockWords:][:blockWords])
		}
	}
}

// multiplyCodes computes the task's outputs from inputs in blocks. Weights are unpacked once
// for all rows of the task.
func (l *linear) multiplyCodes() {
	s, in, f := l.s, l.w.Cols, l.w.DType.Form()
	depth := min(linearDepth, in)
	size := codePanelSize(f, depth)
	s.weights = sized(&s.weights, l.panels()*size)
	s.product = sized(&s.product, linearChunk*lanes)
	width := in / blockInputs * blockWords * codeRows
	for d := 0; d < in; d += depth {
		n := min(depth, in-d)
		panel := func(c int) codePanel { return newCodePanel(f, s.weights[(c-l.firstCol)/lanes*size:], n) }
		for c := l.firstCol; c < l.lastCol; c += lanes {
			l.w.packCodes(panel(c), s, c, min(lanes, l.lastCol-c), d, n)
		}
		for r := l.firstRow; r < l.lastRow && !s.team.Stopped(); r += linearChunk {
			rows := min(linearChunk, l.lastRow-r)
			x := l.packed.blocks[r/codeRows*width+d/blockInputs*blockWords*codeRows:]
			for c := l.firstCol; c < l.lastCol; c += lanes {
				l.multiplyBlocks(x, width, r, rows, c, n, panel(c), d > 0)
			}
		}
	}
}

// multiplyBlocks adds the products of n inputs, in blocks, with a panel to outputs c, c+1, ... of rows
// [r, r+rows), or sets these.
func (l *linear) multiplyBlocks(x []float32, width, r, rows, c, n int, p codePanel, accumulate bool) {
	f, product := l.w.DType.Form(), l.s.product
	count, padded := min(lanes, l.lastCol-c), roundUp(rows, codeRows)
	y := l.at(r, c)
	if count == lanes && rows == padded {
		active.codes.mulBlocks(f, y, l.stride, x, width, rows, n/blockInputs, p.codes, p.scales, p.minima, accumulate)
		return
	}
	if accumulate {
		for i := range rows {
			copy(product[i*lanes:][:count], y[i*l.stride:])
		}
	}
	active.codes.mulBlocks(f, product, lanes, x, width, padded, n/blockInputs, p.codes, p.scales, p.minima, accumulate)
	for i := range rows {
		copy(y[i*l.stride:][:count], product[i*lanes:])
	}
}
