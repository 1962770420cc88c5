package kernel

import "math"

const (
	// tilePanels panels of queries process a block of keys and values together, so that it is
	// fetched once for all of them.
	tilePanels = 4

	// packedPanels is tilePanels where keys and values are packed first: with more panels they
	// are packed less often.
	packedPanels = 8

	// blockKeys is the largest number of keys per step of the walk. A block of
	// scores, [blockKeys, lanes], is 16 KiB: it stays in the first-level cache
	// between the passes over it, together with one cache line of each value row. Products of
	// bfloat16 have their own number of keys and panels, see blocking.
	blockKeys = 128

	// mostPanels and mostKeys are the largest of any isa.
	mostPanels = 16
	mostKeys   = 256
)

// padList makes the capacity of an ascending list of rows a multiple of rowUnit
// and prefetchRows more, which repeat the last one: multiplications take whole units
// and prefetch rows.
func padList(list []int32) []int32 {
	n := len(list)
	for n > 0 && len(list) < roundUp(n, rowUnit)+prefetchRows {
		list = append(list, list[n-1])
	}
	return list[:n:len(list)]
}

// units is list up to a multiple of rowUnit.
func units(list []int32) []int32 { return list[:roundUp(len(list), rowUnit)] }

// identity is the list of the first rows of a matrix.
var identity = func() (list [max(mostPanels*lanes, mostKeys, linearDepth) + prefetchRows]int32) {
	for i := range list {
		list[i] = int32(i)
	}
	return list
}()

// keyLists are the keys that dense attention reads, by batch row.
type keyLists struct {
	lists [][]int32 // padded
	keys  []int32
}

// valid lists for each batch row the keys in [lo, Len) that are not padding, until
// its next call.
func (l *keyLists) valid(a *Operands, lo int) [][]int32 {
	l.lists = l.lists[:0]
	width := roundUp(a.Len, rowUnit) + prefetchRows
	if a.Valid == nil {
		keys := sized(&l.keys, width)[:0]
		for j := lo; j < a.Len; j++ {
			keys = append(keys, int32(j))
		}
		keys = padList(keys)
		for range a.Batch {
			l.lists = append(l.lists, keys)
		}
		return l.lists
	}
	buf := sized(&l.keys, a.Batch*width)
	for b := range a.Batch {
		keys := buf[b*width:][:0:width]
		for j := lo; j < a.Len; j++ {
			if a.Valid[b*a.Len+j] != 0 {
				keys = append(keys, int32(j))
			}
		}
		l.lists = append(l.lists, padList(keys))
	}
	return l.lists
}

// tile is a unit of work of attention: consecutive queries of one head and the keys
// that they share.
type tile struct {
	dim         int
	q           []float32 // [M, dim] of one head
	k, v        []float32 // [N, dim] of one head; v is nil if only scores are computed
	out         []float32 // [M, dim], nil if only scores are computed
	scale       float32
	first, last int     // queries [first, last), at most Operands.tileQueries
	position    int     // of query 0 in the sequence
	keys        []int32 // ascending, padded: see padList
	next        []int32 // the keys that the next tile reads first, which are prefetched

	// With reach >= 0, the query at position i reads key j only if |i-j| <= reach or j < sinks.
	reach, sinks int

	// keep retains the exponentials of all keys for collect and the gradient,
	// instead of those of one block.
	keep bool

	precision Precision
}

// tileQueries is the largest number of queries of a tile.
func (a *Operands) tileQueries() int {
	switch a.Precision {
	case BFloat16:
		return active.bf16.panels * lanes
	case Int16:
		return packedPanels * lanes
	}
	return tilePanels * lanes
}

// newTile is the tile of queries [first, last) of one (batch, head) pair.
func (a *Operands) newTile(index, first, last int, keys []int32) tile {
	q, k, v := a.head(index)
	return tile{
		dim: a.HeadDim, q: q, k: k, v: v, scale: a.Scale,
		first: first, last: last, position: a.First, keys: keys, reach: -1, precision: a.Precision,
	}
}

func (t *tile) panels() int { return (t.last - t.first + lanes - 1) / lanes }
func (t *tile) blocks() int { return (len(t.keys) + t.blockKeys() - 1) / t.blockKeys() }

// blockKeys is the largest number of keys of a block.
func (t *tile) blockKeys() int {
	if t.precision == BFloat16 {
		return active.bf16.keys
	}
	return blockKeys
}

// queries is the range of queries of panel p.
func (t *tile) queries(p int) (first, count int) {
	first = t.first + p*lanes
	return first, min(lanes, t.last-first)
}

// panel is the state of up to 32 queries while they walk over the keys. Unused
// lanes compute with a query of zeros; their results are never read.
type panel struct {
	query  []float32          // [D, lanes], scaled such that scores are powers of 2, or packed
	output []float32          // [D padded, lanes], not yet divided by the sum
	state  [3 * lanes]float32 // maximum, sum, shrink: see isa.softmax
	units  [lanes]float32     // of the query, if it is integers
}

func (p *panel) maximum() []float32 { return p.state[:lanes] }
func (p *panel) sum() []float32     { return p.state[lanes : 2*lanes] }
func (p *panel) shrink() []float32  { return p.state[2*lanes:] }

// attend computes softmax(scale q k^T) v for a tile into w.panels, block by
// block of keys with a running maximum (the online softmax of FlashAttention).
// The result is left unnormalised; store divides by the sum. It returns between
// blocks if the team has to stop.
func (w *scratch) attend(t *tile) {
	dimPad := roundUp(t.dim, rowUnit)
	for p := range t.panels() {
		panel := &w.panels[p]
		first, count := t.queries(p)
		panel.query = sized(&panel.query, max(t.dim, active.bf16.words(t.dim))*lanes)
		w.packLanes(panel.query, t.q[first*t.dim:], count, t.dim, float32(float64(t.scale)*math.Log2E))
		w.packQuery(t, panel)
		panel.output = sized(&panel.output, dimPad*lanes)
		for i := range lanes {
			panel.maximum()[i] = float32(math.Inf(-1))
			panel.sum()[i] = 0
		}
	}
	keys := len(t.keys)
	keysPad := roundUp(keys, rowUnit)
	if t.keep {
		w.kept = sized(&w.kept, t.panels()*keysPad*lanes)
		w.maxima = sized(&w.maxima, t.panels()*t.blocks()*lanes)
	} else {
		w.s = sized(&w.s, t.blockKeys()*lanes)
	}
	for start := 0; start < keys && !w.team.Stopped(); start += t.blockLen() {
		list := t.block(start)
		rows := len(list)
		mul := w.products(t, list)
		upcoming := t.next
		if start+rows < keys {
			upcoming = t.block(start + rows)
		}
		// The last block also fetches what store and packLanes will touch. The
		// next tile has the queries that follow, as far as its rows are known.
		var q, out []float32
		if start+rows == keys {
			out = t.out[min(t.first*t.dim, len(t.out)):]
			if len(t.next) > 0 {
				q = t.q[t.last*t.dim:]
			}
		}
		count := min(t.last-t.first, len(q)/t.dim)
		nextK := planPrefetch(&w.nextK, t.k, t.dim, upcoming, q, count, t.panels()*mul.fetchSteps)
		nextV := planPrefetch(&w.nextV, t.v, t.dim, upcoming, out, min(t.last-t.first, len(out)/t.dim), t.panels()*mul.fetchSteps)
		for p := range t.panels() {
			panel := &w.panels[p]
			s := w.s
			if t.keep {
				s = w.kept[(p*keysPad+start)*lanes:]
			}
			w.scores(&mul, panel, s, rows, nextK)
			if t.reach >= 0 {
				t.mask(s, p, list)
			}
			w.softmax(t, panel, s, rows)
			if t.keep {
				copy(w.maxima[(p*t.blocks()+start/t.blockLen())*lanes:], panel.maximum())
			}
			if t.v != nil {
				w.accumulate(&mul, panel, s, rows, dimPad, start == 0, nextV)
			}
		}
	}
}

// blockLen is the number of keys of all blocks but the last: blocks are of about
// the same size, because a small one costs more than its share.
func (t *tile) blockLen() int {
	blocks := max(1, t.blocks())
	unit := rowUnit
	if t.precision == BFloat16 {
		unit = max(unit, active.bf16.unit*active.bf16.perWord)
	}
	return roundUp((len(t.keys)+blocks-1)/blocks, unit)
}

// block is the block of keys from the start-th on.
func (t *tile) block(start int) []int32 {
	return t.keys[start:][:min(t.blockLen(), len(t.keys)-start)]
}

// values is where the values of the keys in list are: a matrix, the distance
// between its rows, and the rows. They are copied into buf if the multiplication,
// which takes whole units of the dimension, would read beyond the last one.
func (t *tile) values(buf *[]float32, list []int32) ([]float32, int, []int32) {
	if t.v == nil || t.dim%rowUnit == 0 {
		return t.v, t.dim, list
	}
	v, ld := padRows(buf, t.v, t.dim, list)
	return v, ld, identity[:len(list)]
}

// padRows copies the listed rows of src [N, dim] to buf, padded to a multiple of
// rowUnit elements, the distance between rows it returns. The padding is not
// initialised: multiplications turn it into results that are not read.
func padRows(buf *[]float32, src []float32, dim int, list []int32) ([]float32, int) {
	ld := roundUp(dim, rowUnit)
	dst := sized(buf, len(list)*ld)
	for i, row := range list {
		copy(dst[i*ld:][:dim], src[int(row)*dim:])
	}
	return dst, ld
}

// mask sets the scores of the listed keys to -Inf where panel p has queries out
// of reach.
func (t *tile) mask(s []float32, p int, list []int32) {
	first, count := t.queries(p)
	first += t.position
	for j, key := range list {
		key := int(key)
		if key < t.sinks {
			continue
		}
		// The queries at key-reach ... key+reach are lanes lo ... hi-1.
		lo := min(max(key-t.reach-first, 0), count)
		hi := min(max(key+t.reach-first+1, 0), count)
		row := s[j*lanes:][:count]
		for i := range lo {
			row[i] = float32(math.Inf(-1))
		}
		for i := hi; i < count; i++ {
			row[i] = float32(math.Inf(-1))
		}
	}
}

// packLanes writes count <= lanes rows of src [count, n] as the lanes of
// dst [n, lanes], times scale. Unused lanes become zeros.
func (w *scratch) packLanes(dst, src []float32, count, n int, scale float32) {
	if count < lanes {
		clear(dst[:n*lanes])
	}
	factors := sized(&w.scales, n)
	for j := range factors {
		factors[j] = scale
	}
	transpose(dst, lanes, src, n, count, n, factors)
}

// transpose computes dst[j*ldd+i] = scale[j] * src[i*lds+j] for i < m, j < n of any
// size.
func transpose(dst []float32, ldd int, src []float32, lds, m, n int, scale []float32) {
	mUnits, nUnits := m/rowUnit*rowUnit, n/rowUnit*rowUnit
	if mUnits > 0 && nUnits > 0 {
		active.transpose(dst, ldd, src, lds, mUnits, nUnits, scale)
	}
	if nUnits < n {
		transposePortable(dst[nUnits*ldd:], ldd, src[nUnits:], lds, m, n-nUnits, scale[nUnits:])
	}
	if mUnits < m {
		transposePortable(dst[mUnits:], ldd, src[mUnits*lds:], lds, m-mUnits, nUnits, scale)
	}
}

// store normalises the outputs of a tile and writes them, and the natural
// logarithms of the softmax denominators if lse [M], those of the tile's head, is
// not nil, to the rows of the tile's queries.
func (w *scratch) store(lse []float32, t *tile) {
	for p := range t.panels() {
		panel := &w.panels[p]
		first, count := t.queries(p)
		dst := t.out[first*t.dim:]
		if len(t.keys) > 0 {
			for i, sum := range panel.sum() {
				w.factors[i] = 1 / sum
			}
			transpose(dst, t.dim, panel.output, lanes, t.dim, count, w.factors[:])
		}
		for i := range count {
			sum := panel.sum()[i]
			if sum == 0 {
				clear(dst[i*t.dim:][:t.dim]) // no key at all
			}
			if lse != nil {
				lse[first+i] = float32(float64(panel.maximum()[i])*math.Ln2 + math.Log(float64(sum)))
			}
		}
	}
}
