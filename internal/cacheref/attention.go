package cacheref

import (
	"math"
	"slices"
)

// Mode is how the rows of a forward attend.
type Mode string

// The modes.
const (
	Dense   Mode = "dense"   // to all keys
	Refresh Mode = "refresh" // all rows, to all keys: main table and block columns are selected
	Reuse   Mode = "reuse"   // all rows, to the main table
	First   Mode = "first"   // first forward of a block: active rows to all keys, others to the main table; block columns are selected
	Within  Mode = "block"   // active rows, to block columns and the block
)

// window is what a forward computes.
type window struct {
	mode           Mode
	first, end     int // rows
	active, beyond int // active rows: [active, beyond)
	blockEnd       int
}

// table holds the keys of each query head and group, ascending.
type table [][][]int

// memory is what one layer keeps of one sequence.
type memory struct {
	keys, values [][]float64 // [position][kv head * head dim]; nil where there are none
	main, block  table
}

// attend returns the attention of rows [w.first, w.end), queries q, over all keys and
// values of the sequence from pad on.
func (m *Model) attend(mem *memory, c *Columns, w window, pad int, q, keys, values [][]float64) [][]float64 {
	out := make([][]float64, len(q))
	for i := range out {
		out[i] = make([]float64, m.heads*m.headDim)
	}
	if w.mode == Refresh {
		mem.main = make(table, m.heads)
	}
	if w.mode == Refresh || w.mode == First {
		mem.block = make(table, m.heads)
	}
	all := span(pad, len(keys))
	for h := range m.heads {
		probabilities := make([][]float64, len(q)) // over all keys, of the rows that attend to all
		for i := range q {
			row := w.first + i
			isActive := row >= w.active && row < w.beyond
			read := all
			switch {
			case w.mode == Reuse, w.mode == First && len(q) == len(keys) && !isActive:
				read = mem.main[h][row/c.GroupSize]
			case w.mode == Within:
				read = union(mem.block[h][(row-w.active)/c.GroupSize], span(max(w.active, pad), w.blockEnd))
			}
			p := m.probabilities(h, q[i], keys, read)
			m.weigh(h, out[i], p, values, read)
			probabilities[i] = p
		}
		selectKeys := func(lo, hi int) []int {
			return topKeys(probabilities[max(lo, pad)-w.first:max(hi, pad)-w.first], all, c.Sparsity)
		}
		if w.mode == Refresh {
			for lo := 0; lo < w.end; lo += c.GroupSize {
				mem.main[h] = append(mem.main[h], selectKeys(lo, min(lo+c.GroupSize, w.end)))
			}
		}
		if w.mode == Refresh || w.mode == First {
			for lo := w.active; lo < w.beyond; lo += c.GroupSize {
				mem.block[h] = append(mem.block[h], selectKeys(lo, min(lo+c.GroupSize, w.beyond)))
			}
		}
	}
	return out
}

// probabilities returns the softmax of query head h over the keys at the positions in
// read.
func (m *Model) probabilities(h int, q []float64, keys [][]float64, read []int) []float64 {
	p := make([]float64, len(read))
	for n, j := range read {
		dot := 0.0
		key := m.kvHead(keys[j], h)
		for d, x := range m.head(q, h) {
			dot += x * key[d]
		}
		p[n] = dot / math.Sqrt(float64(m.headDim))
	}
	top, sum := slices.Max(p), 0.0
	for n := range p {
		p[n] = math.Exp(p[n] - top)
		sum += p[n]
	}
	for n := range p {
		p[n] /= sum
	}
	return p
}

// weigh adds the mean of the values, weighted by p, to out of query head h.
func (m *Model) weigh(h int, out, p []float64, values [][]float64, read []int) {
	mean := m.head(out, h)
	for n, j := range read {
		for d, x := range m.kvHead(values[j], h) {
			mean[d] += p[n] * x
		}
	}
}

// head returns the part of a row that is head h's.
func (m *Model) head(row []float64, h int) []float64 { return row[h*m.headDim:][:m.headDim] }

// kvHead returns the part of a row that query head h reads of keys or values.
func (m *Model) kvHead(row []float64, h int) []float64 {
	return m.head(row, h/(m.heads/m.kvHeads))
}

// topKeys returns the k keys with the highest mean probability over the rows, ascending.
// Without rows all means are 0.
func topKeys(rows [][]float64, keys []int, sparsity float64) []int {
	mean := make([]float64, len(keys))
	for _, p := range rows {
		for n := range p {
			mean[n] += p[n] / float64(len(rows))
		}
	}
	order := span(0, len(keys))
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case mean[a] > mean[b]:
			return -1
		case mean[a] < mean[b]:
			return 1
		}
		return 0
	})
	// 1e-9 keeps products that are whole numbers on paper.
	k := max(1, int((1-sparsity)*float64(len(keys))+1e-9))
	var kept []int
	for _, n := range order[:k] {
		kept = append(kept, keys[n])
	}
	slices.Sort(kept)
	return kept
}

// span returns lo to hi-1.
func span(lo, hi int) []int {
	var s []int
	for i := lo; i < hi; i++ {
		s = append(s, i)
	}
	return s
}

// union returns the members of a or b, ascending.
func union(a, b []int) []int {
	u := slices.Concat(a, b)
	slices.Sort(u)
	return slices.Compact(u)
}
