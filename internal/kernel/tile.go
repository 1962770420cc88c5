package kernel

import "math"

const (
	// tilePanels panels of queries walk over the keys together, so that a block
	// of keys and values is fetched once for all of them.
	tilePanels  = 4
	tileQueries = tilePanels * lanes

	// blockKeys is the number of keys per step of the walk. A block of scores,
	// [blockKeys, lanes], is 32 KiB: it stays in the first-level cache between
	// the three passes over it.
	blockKeys = 256
)

// keySet is the keys a tile reads: the list if there is one, else the range
// [lo, hi).
type keySet struct {
	lo, hi int
	list   []int32 // ascending
}

// len is the number of keys.
func (s *keySet) len() int {
	if s.list != nil {
		return len(s.list)
	}
	return s.hi - s.lo
}

// at is the i-th key.
func (s *keySet) at(i int) int {
	if s.list != nil {
		return int(s.list[i])
	}
	return s.lo + i
}

// setOf makes a keySet of an ascending list. A list without gaps becomes a
// range, whose rows need no gathering.
func setOf(list []int32) keySet {
	if len(list) == 0 {
		return keySet{}
	}
	first, last := int(list[0]), int(list[len(list)-1])
	if last-first+1 == len(list) {
		return keySet{lo: first, hi: last + 1}
	}
	return keySet{list: list}
}

// validKeys is the key set of each batch row: the keys in [lo, Len) that are not
// padding.
func (a *Operands) validKeys(lo int) []keySet {
	sets := make([]keySet, a.Batch)
	for b := range sets {
		valid := a.valid(b)
		if valid == nil {
			sets[b] = keySet{lo: lo, hi: a.Len}
			continue
		}
		list := make([]int32, 0, a.Len-lo)
		for j := lo; j < a.Len; j++ {
			if valid[j] != 0 {
				list = append(list, int32(j))
			}
		}
		sets[b] = setOf(list)
	}
	return sets
}

// tile is the piece of an attention that is computed at a time: some
// consecutive queries of one head and the keys that they share.
type tile struct {
	dim         int
	q, k, v     []float32 // one head each, [N, dim]; v is nil if only scores are wanted
	scale       float32
	first, last int // queries [first, last), at most tileQueries
	keys        keySet

	// With reach >= 0, query i reads key j only if |i-j| <= reach or j < sinks.
	reach, sinks int

	// keep retains the exponentials of all keys for collect and the gradient,
	// instead of those of one block.
	keep bool
}

// newTile is the tile of queries [first, last) of one (batch, head) pair.
func (a *Operands) newTile(index, first, last int, keys keySet) tile {
	q, k, v := a.head(index)
	return tile{
		dim: a.HeadDim, q: q, k: k, v: v, scale: a.Scale,
		first: first, last: last, keys: keys, reach: -1,
	}
}

func (t *tile) panels() int { return (t.last - t.first + lanes - 1) / lanes }
func (t *tile) blocks() int { return (t.keys.len() + blockKeys - 1) / blockKeys }

// queries is the range of queries of panel p.
func (t *tile) queries(p int) (first, count int) {
	first = t.first + p*lanes
	return first, min(lanes, t.last-first)
}

// panel is the state of up to 32 queries while they walk over the keys. Unused
// lanes compute with a query of zeros; their results are never read.
type panel struct {
	query  []float32          // [D, lanes], scaled
	output []float32          // [D padded, lanes], not yet divided by the sum
	state  [3 * lanes]float32 // maximum, sum, shrink: see level.softmax
}

func (p *panel) maximum() []float32 { return p.state[:lanes] }
func (p *panel) sum() []float32     { return p.state[lanes : 2*lanes] }
func (p *panel) shrink() []float32  { return p.state[2*lanes:] }

// attend computes softmax(scale q k^T) v for a tile into w.panels, block by
// block of keys with a running maximum (the online softmax of FlashAttention).
// The result is left unnormalised; store divides by the sum.
func (w *scratch) attend(t *tile) {
	dimPad := roundUp(t.dim, rowUnit)
	for p := range t.panels() {
		panel := &w.panels[p]
		first, count := t.queries(p)
		panel.query = sized(&panel.query, t.dim*lanes)
		packLanes(panel.query, t.q[first*t.dim:], count, t.dim, t.scale)
		panel.output = sized(&panel.output, dimPad*lanes)
		for i := range lanes {
			panel.maximum()[i] = float32(math.Inf(-1))
			panel.sum()[i] = 0
		}
	}
	keys := t.keys.len()
	keysPad := roundUp(keys, rowUnit)
	if t.keep {
		w.kept = sized(&w.kept, t.panels()*keysPad*lanes)
		w.maxima = sized(&w.maxima, t.panels()*t.blocks()*lanes)
	} else {
		w.s = sized(&w.s, blockKeys*lanes)
	}
	for start := 0; start < keys; start += blockKeys {
		rows := min(blockKeys, keys-start)
		rowsPad := roundUp(rows, rowUnit)
		k, ldk := gather(&w.k, t.k, t.dim, &t.keys, start, rows)
		var v []float32
		var ldv int
		if t.v != nil {
			v, ldv = gather(&w.v, t.v, t.dim, &t.keys, start, rows)
		}
		for p := range t.panels() {
			panel := &w.panels[p]
			s := w.s
			if t.keep {
				s = w.kept[(p*keysPad+start)*lanes:]
			}
			active.mulPanel(rowsPad, t.dim, k, ldk, 1, panel.query, lanes, s, lanes, false)
			if t.reach >= 0 {
				t.mask(s, p, start, rows)
			}
			active.softmax(s, rows, panel.state[:])
			if t.keep {
				copy(w.maxima[(p*t.blocks()+start/blockKeys)*lanes:], panel.maximum())
			}
			if v == nil {
				continue
			}
			if start > 0 && !allOnes(panel.shrink()) {
				active.scaleRows(panel.output, dimPad, panel.shrink())
			}
			active.mulPanel(dimPad, rows, v, 1, ldv, s, lanes, panel.output, lanes, start > 0)
		}
	}
}

func allOnes(x []float32) bool {
	for _, f := range x {
		if f != 1 {
			return false
		}
	}
	return true
}

// mask sets the scores of rows keys from the start-th on to -Inf where panel p
// has queries out of reach.
func (t *tile) mask(s []float32, p, start, rows int) {
	first, count := t.queries(p)
	for j := range rows {
		key := t.keys.at(start + j)
		if key < t.sinks {
			continue
		}
		// Queries key-reach ... key+reach are lanes lo ... hi-1.
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
func packLanes(dst, src []float32, count, n int, scale float32) {
	if count < lanes {
		clear(dst[:n*lanes])
	}
	transpose(dst, lanes, src, n, count, n, scale)
}

// transpose computes dst[j*ldd+i] = scale * src[i*lds+j] for i < m, j < n of any
// size.
func transpose(dst []float32, ldd int, src []float32, lds, m, n int, scale float32) {
	mUnits, nUnits := m/rowUnit*rowUnit, n/rowUnit*rowUnit
	if mUnits > 0 && nUnits > 0 {
		active.transpose(dst, ldd, src, lds, mUnits, nUnits, scale)
	}
	if nUnits < n {
		transposePortable(dst[nUnits*ldd:], ldd, src[nUnits:], lds, m, n-nUnits, scale)
	}
	if mUnits < m {
		transposePortable(dst[mUnits:], ldd, src[mUnits*lds:], lds, m-mUnits, nUnits, scale)
	}
}

// gather returns rows keys of src [N, dim] from the start-th key of the set on,
// and the distance between rows. They are rows of src itself if keys are
// consecutive and both sizes are multiples of rowUnit, otherwise a copy padded
// to such multiples. The padding is not initialised: mulPanel turns it into rows
// of results that nobody reads.
func gather(buf *[]float32, src []float32, dim int, keys *keySet, start, rows int) ([]float32, int) {
	ld := roundUp(dim, rowUnit)
	if keys.list == nil && ld == dim && rows%rowUnit == 0 {
		return src[keys.at(start)*dim:], dim
	}
	dst := sized(buf, roundUp(rows, rowUnit)*ld)
	for i := range rows {
		copy(dst[i*ld:][:dim], src[keys.at(start+i)*dim:])
	}
	return dst, ld
}

// store normalises the outputs of a tile and writes them, and the natural
// logarithms of the softmax denominators if lse is not nil, to the rows of the
// tile's queries: out [N, D] and lse [N] are those of the tile's head.
func (w *scratch) store(out, lse []float32, t *tile) {
	dimPad := roundUp(t.dim, rowUnit)
	for p := range t.panels() {
		panel := &w.panels[p]
		first, count := t.queries(p)
		dst := out[first*t.dim:]
		if t.keys.len() > 0 {
			for i, sum := range panel.sum() {
				w.factors[i] = 1 / sum
			}
			active.scaleRows(panel.output, dimPad, w.factors[:])
			transpose(dst, t.dim, panel.output, lanes, t.dim, count, 1)
		}
		for i := range count {
			sum := panel.sum()[i]
			if sum == 0 {
				clear(dst[i*t.dim:][:t.dim]) // no key at all
			}
			if lse != nil {
				lse[first+i] = float32(float64(panel.maximum()[i]) + math.Log(float64(sum)))
			}
		}
	}
}
