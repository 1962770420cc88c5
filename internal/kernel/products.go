package kernel

// products are the two products of a block of keys and values with the panels of
// a tile: their left-hand matrices and routines.
type products struct {
	precision    Precision
	keys, values rowsOf
	mulRows      mulRowsFunc
	mulCols      mulColsFunc
	steps        int // of the summation over the keys
	fetchSteps   int // as many rows as planPrefetch takes for a panel
}

// rowsOf names rows of a matrix, of which the first width elements count.
type rowsOf struct {
	matrix    []float32
	ld, width int
	list      []int32
}

// Products with Int16 sum over at most blockKeys keys. A weight can be the only
// one of its block, so it gets all bits of an int16, but all weights of a block
// together no more than 17, which leaves 13 for values. The half by which each
// weight may be rounded up is within the rest.
const (
	largestWeight = 1<<15 - 1
	weightShare   = float32(1<<15-1) / (1 << 17)
	largestValue  = 1<<13 - 1
)

// products reads float32 keys and values in place. With another precision they are
// packed, once for all panels of the tile.
func (w *scratch) products(t *tile, list []int32) (m products) {
	m.precision = t.precision
	keys, ldv := units(list), roundUp(t.dim, rowUnit)
	packed := func(words func(int) int) (width int) {
		width, m.steps = words(t.dim), words(len(list))
		m.fetchSteps = m.steps
		w.k = sized(&w.k, t.blockKeys()*width)
		m.keys = rowsOf{w.k, width, width, identity[:len(keys)]}
		if t.v != nil {
			w.v = sized(&w.v, words(t.blockKeys())*roundUp(t.dim, tileRows))
			m.values = rowsOf{w.v, ldv, t.dim, identity[:m.steps]}
		}
		return width
	}
	switch t.precision {
	case BFloat16:
		b := &active.bf16
		m.mulRows, m.mulCols = b.mulRows, b.mulCols
		width := packed(b.words)
		m.fetchSteps = m.steps / b.fewerPauses
		b.packCols(w.k, width, keys, t.k, t.dim, t.dim)
		if t.v != nil {
			if b.tiled {
				m.values.ld = m.steps
			}
			b.packValues(w.v, m.values.ld, list, t.v, t.dim, t.dim)
		}
	case Int16:
		b := &active.int16
		m.mulRows, m.mulCols = b.mulRows, b.mulCols
		w.keyUnits, w.valueUnits = sized(&w.keyUnits, blockKeys), sized(&w.valueUnits, ldv)
		width := packed(b.words)
		b.packCols(w.k, width, w.keyUnits, keys, t.k, t.dim, t.dim, largestInt16(t.dim))
		if t.v != nil {
			b.packRows(w.v, ldv, w.valueUnits, list, t.v, t.dim, t.dim, largestValue, 0)
		}
	default:
		m.mulRows, m.mulCols = active.mulRows, active.mulCols
		m.steps, m.fetchSteps = len(list), len(list)
		m.keys = rowsOf{t.k, t.dim, t.dim, keys}
		m.values.matrix, m.values.ld, m.values.list = t.values(&w.v, list)
	}
	return m
}

// packQuery packs the queries of a panel [dim, lanes] for the product with the keys,
// in place.
func (w *scratch) packQuery(t *tile, p *panel) {
	switch t.precision {
	case BFloat16:
		active.bf16.packPanel(p.query, p.query, t.dim)
	case Int16:
		active.int16.packRows(p.query, lanes, p.units[:], w.firstRows(t.dim), p.query, lanes, lanes, largestInt16(t.dim), 0)
	}
}

// firstRows lists the first n rows of a matrix.
func (w *scratch) firstRows(n int) []int32 {
	if n <= len(identity) {
		return identity[:n]
	}
	w.rows = sized(&w.rows, n)
	for i := range w.rows {
		w.rows[i] = int32(i)
	}
	return w.rows
}

// scores computes the scores s [rows, lanes] of the queries of a panel.
func (w *scratch) scores(m *products, p *panel, s []float32, rows int, next *prefetch) {
	m.mulRows(m.keys.list, m.keys.width, m.keys.matrix, m.keys.ld, p.query, s, lanes, false, next)
	if m.precision == Int16 {
		active.int16.unscale(s, lanes, s, rows, w.keyUnits, p.units[:], nil)
	}
}

// softmax adds the scores s [rows, lanes] to the softmax of a panel and packs the
// exponentials for the product with the values, if there are values.
func (w *scratch) softmax(t *tile, p *panel, s []float32, rows int) {
	if t.precision != BFloat16 || t.v == nil {
		active.softmax(s, rows, p.state[:])
		return
	}
	w.p = sized(&w.p, active.bf16.words(t.blockKeys())*lanes)
	active.bf16.softmax(w.p, s, rows, p.state[:])
}

// accumulate adds the product of the values and the exponentials s [rows, lanes]
// to what is in the output of a panel, after shrinking it, or sets it if the block
// is the first. s stays as it is, for sums and scores.
func (w *scratch) accumulate(m *products, p *panel, s []float32, rows, dim int, first bool, next *prefetch) {
	if m.precision == Int16 {
		b := &active.int16
		w.p, w.product = sized(&w.p, b.words(blockKeys)*lanes), sized(&w.product, dim*lanes)
		b.packRows(w.p, lanes, w.factors[:], identity[:rows], s, lanes, lanes, largestWeight, weightShare)
		m.mulCols(dim, m.values.list, m.values.matrix, m.values.ld, w.p, w.product, lanes, nil, next)
		keep := p.shrink()
		if first {
			keep = nil
		}
		b.unscale(p.output, lanes, w.product, dim, w.valueUnits, w.factors[:], keep)
		return
	}
	var keep *[lanes]float32
	if !first {
		keep = (*[lanes]float32)(p.shrink())
	}
	if m.precision == BFloat16 {
		s = w.p
	}
	m.mulCols(dim, m.values.list, m.values.matrix, m.values.ld, s, p.output, lanes, keep, next)
}
