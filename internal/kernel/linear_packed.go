package kernel

// packedInputs are the inputs of a linear layer in the form that products read, where they are
// packed once for all tasks.
type packedInputs struct {
	tiles  []float32 // of words of bfloat16, see bf16Products.tiled
	blocks []float32 // see codeProducts
}

// packInputs packs all of x [rows, w.Cols], once for all tasks, where the products with w are
// of tiles or of codes. Words of tiles are those of mulRows with as many to a row as
// w.Cols values make.
func (t *Team) packInputs(p *packedInputs, x []float32, rows int, w *Matrix) {
	b := &active.bf16
	switch {
	case w.Precision == BFloat16 && b.tiled && p.tiles == nil:
		width := b.words(w.Cols)
		p.tiles = sized(&t.inputs, roundUp(rows, tileRows)*width)
		run(t, &t.tiles, rowTasks(rows, tileTaskRows), tilesJob{p.tiles, x, rows, w.Cols, width})
	case w.multipliesCodes() && p.blocks == nil:
		width := w.Cols / blockInputs
		p.blocks = sized(&t.inputs, roundUp(rows, rowUnit)*width*blockWords)
		run(t, &t.blocks, rowTasks(rows, blockTaskRows), blocksJob{p.blocks, x, rows, width})
	}
}

const tileTaskRows = 4 * tileRows

type tilesJob struct {
	tiles, x          []float32
	rows, cols, width int
}

func (j *tilesJob) run(_ *scratch, task int) {
	r := task * tileTaskRows
	list := identity[:min(tileTaskRows, j.rows-r)]
	active.bf16.packCols(j.tiles[r*j.width:], j.width, list, j.x[r*j.cols:], j.cols, j.cols)
}

// packedLinear is a task of Linear with a precision that rounds. Rows of x
// are packed once for all outputs of the task, or of all tasks, weights once for all
// its rows.
type packedLinear struct {
	*linear
	words   func(n int) int
	mulRows mulRowsFunc
	width   int // words of a row of weights, at most
}

func (l *linear) multiplyPacked() {
	p := packedLinear{linear: l}
	size := packedBlocking
	if l.w.Precision == Int16 {
		p.words, p.mulRows = active.int16.words, active.int16.mulRows
	} else {
		p.words, p.mulRows = active.bf16.words, active.bf16.mulRows
		size = active.bf16.blocking
	}
	s, in := l.s, l.w.Cols
	depth := min(size.depth, in)
	p.width = p.words(depth)
	s.weights = sized(&s.weights, l.panels()*lanes*p.width)
	s.valueUnits = sized(&s.valueUnits, l.panels()*lanes)
	s.k = sized(&s.k, size.chunk*p.width)
	s.keyUnits = sized(&s.keyUnits, size.chunk)
	s.product = sized(&s.product, size.chunk*lanes)
	for d := 0; d < in; d += depth {
		n := min(depth, in-d)
		for c := l.firstCol; c < l.lastCol; c += lanes {
			p.packWeights(c, d, n)
		}
		for r := l.firstRow; r < l.lastRow && !s.team.Stopped(); r += size.chunk {
			rows := min(size.chunk, l.lastRow-r)
			x, ld := p.packInputs(r, rows, d, n)
			for c := l.firstCol; c < l.lastCol; c += lanes {
				p.multiply(x, ld, r, rows, c, n, d > 0)
			}
		}
	}
}

// panel is where the weights of outputs c, c+1, ... are, and their units.
func (p *packedLinear) panel(c int) (words, units []float32) {
	c -= p.firstCol
	return p.s.weights[c*p.width:], p.s.valueUnits[c:][:lanes]
}

// packWeights makes a panel [words, lanes] of columns [d, d+n) of the weights of
// outputs c, c+1, ...
func (p *packedLinear) packWeights(c, d, n int) {
	s, w, count := p.s, p.w, min(lanes, p.lastCol-c)
	panel, units := p.panel(c)
	rounded := w.DType == BF16 && w.Precision == BFloat16
	switch {
	case rounded && active.bf16.perWord == 1:
		w.pack(panel, s, c, count, d, n)
		return
	case rounded && active.bf16.perWord == 2 && w.Cols%2 == 0:
		// Pairs of neighbours are words already, and moving words is what the
		// type F32 does.
		pairs := Matrix{Rows: w.Rows, Cols: w.Cols / 2, DType: F32, Data: w.Data}
		pairs.pack(panel, s, c, count, d/2, n/2)
		clear(panel[n/2*lanes : active.bf16.words(n)*lanes])
		return
	}
	s.v = sized(&s.v, n*lanes)
	w.pack(s.v, s, c, count, d, n)
	if w.Precision == Int16 {
		active.int16.packRows(panel, lanes, units, identity[:n], s.v, lanes, lanes, largestInt16(n), 0)
	} else {
		active.bf16.packPanel(panel, s.v, n)
	}
}

// packInputs packs columns [d, d+n) of rows [r, r+rows) of x, or finds their tiles:
// a matrix of words and the distance between its rows.
func (p *packedLinear) packInputs(r, rows, d, n int) (words []float32, ld int) {
	x, in, s := p.x[r*p.w.Cols+d:], p.w.Cols, p.s
	if p.w.Precision == BFloat16 && p.packed.tiles != nil {
		ld = p.words(in)
		return p.packed.tiles[r*ld+p.words(d)*tileRows:], ld
	}
	if p.w.Precision == Int16 {
		active.int16.packCols(s.k, p.width, s.keyUnits, identity[:rows], x, in, n, largestInt16(n))
	} else {
		active.bf16.packCols(s.k, p.width, identity[:rows], x, in, n)
	}
	return s.k, p.width
}

// ones are the factors by which Int16 multiplies the sums that it adds to.
var ones = func() (x [lanes]float32) {
	for i := range x {
		x[i] = 1
	}
	return x
}()

// multiply adds the products of the packed inputs x, of which n values to a row
// count, and the weights of outputs c, c+1, ... to rows [r, r+rows) of y, or sets
// these.
func (p *packedLinear) multiply(x []float32, ld, r, rows, c, n int, accumulate bool) {
	s, count := p.s, min(lanes, p.lastCol-c)
	list, k := identity[:roundUp(rows, rowUnit)], p.words(n)
	panel, units := p.panel(c)
	y, stride := p.at(r, c), p.stride
	if p.w.Precision != Int16 && count == lanes && rows == len(list) {
		p.mulRows(list, k, x, ld, panel, y, stride, accumulate, nil)
		return
	}
	p.mulRows(list, k, x, ld, panel, s.product, lanes, false, nil)
	if p.w.Precision == Int16 {
		var keep []float32
		if accumulate {
			keep = ones[:]
		}
		if count == lanes {
			active.int16.unscale(y, stride, s.product, rows, s.keyUnits, units, keep)
			return
		}
		active.int16.unscale(s.product, lanes, s.product, rows, s.keyUnits, units, nil)
	}
	for i := range rows {
		dst := y[i*stride:][:count]
		for j, sum := range s.product[i*lanes:][:count] {
			if accumulate {
				sum += dst[j]
			}
			dst[j] = sum
		}
	}
}
