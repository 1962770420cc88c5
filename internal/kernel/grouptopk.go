package kernel

import (
	"fmt"
	"math"
)

// TopK selects the k largest of scores: bits [Words(len(scores))] gets exactly
// min(k, len(scores)) bits. Of equal scores the one with the smaller index goes
// first, and NaN comes after everything. The selection is exact.
func TopK(bits []uint32, scores []float32, k int) {
	checkLen("TopK", "bits", len(bits), Words(len(scores)))
	w := scratchPool.Get().(*scratch)
	defer scratchPool.Put(w)
	order := w.sortKeys(scores, nil)
	w.selectTop(bits, order, k)
}

// TopKRows is TopK for rows of n scores each: bits [rows, Words(n)], scores
// [rows, n]. Each row selects k of the keys that valid [n] does not mark with 0, or
// all of them if there are fewer. valid may be nil.
func (t *Team) TopKRows(bits []uint32, scores []float32, rows, n, k int, valid []float32) {
	checkRows("TopKRows", bits, scores, rows, n, 0)
	checkOptional("TopKRows", "valid", valid, n)
	run(t, &t.topK, rows, topKJob{bits, scores, n, k, valid})
}

type topKJob struct {
	bits   []uint32
	scores []float32
	n, k   int
	valid  []float32
}

func (j *topKJob) run(w *scratch, row int) {
	order := w.sortKeys(j.scores[row*j.n:][:j.n], j.valid)
	w.selectTop(j.bits[row*Words(j.n):][:Words(j.n)], order, j.k)
}

// checkRows checks rows of scores of n keys and more others.
func checkRows(fn string, bits []uint32, scores []float32, rows, n, more int) {
	if rows < 0 || n <= 0 || !fits(2, rows, n) {
		panic(fmt.Sprintf("kernel: %s: %d rows of %d scores", fn, rows, n))
	}
	checkLen(fn, "bits", len(bits), rows*Words(n))
	checkLen(fn, "scores", len(scores), rows*(n+more))
}

// sortKeys turns scores into integers of the same order: NaN is sortKeyNaN, below all
// others, and excluded entries are 0.
func (w *scratch) sortKeys(scores, valid []float32) []uint32 {
	w.order = sized(&w.order, len(scores))
	order := w.order
	units := len(scores) / lanes * lanes
	if units > 0 {
		active.sortKeys(order[:units], scores[:units])
	}
	sortKeysPortable(order[units:], scores[units:])
	if valid != nil {
		for i, v := range valid {
			if v == 0 {
				order[i] = 0
			}
		}
	}
	return order
}

const sortKeyNaN = 1

// The leading digitBits bits of a sort key are compared first.
const (
	digitBits  = 11
	digitShift = 32 - digitBits
)

// sortKey maps a float32 to a uint32 that compares the same. IEEE 754 orders floats
// of one sign as their bits, so positive numbers get their sign bit flipped and
// negative ones all bits. -0 counts as 0.
func sortKey(f float32) uint32 {
	const sign, inf = 1 << 31, 0x7f800000
	b := math.Float32bits(f)
	switch {
	case b&^sign > inf:
		return sortKeyNaN
	case b == sign:
		b = 0
	}
	return b ^ (uint32(int32(b)>>31) | sign)
}

// selectTop sets the bits of the k largest non-zero sort keys, smaller index first
// among equals, and clears all others. A histogram of the
// leading digits gives the digit of the k-th largest; sort keys with a larger digit are
// selected, and only those with the same digit are compared further. There is no
// branch that depends on a single sort key, since such branches are unpredictable.
func (w *scratch) selectTop(bits, order []uint32, k int) {
	clear(bits)
	if k <= 0 || len(order) == 0 {
		return
	}
	// Two histograms, because an increment waits for the previous one if both are of the
	// same digit.
	var histogram [2][1 << digitBits]int32
	for i, r := range order {
		histogram[i&1][r>>digitShift]++
	}
	digit, above := uint32(1<<digitBits-1), 0
	for ; digit > 0; digit-- {
		n := int(histogram[0][digit] + histogram[1][digit])
		if above+n >= k {
			break
		}
		above += n
	}
	if digit == 0 {
		// Excluded entries have this digit.
		candidates := len(order)
		for _, r := range order {
			candidates -= int(equal(r, 0))
		}
		if k = min(k, candidates); k == 0 {
			return
		}
	}

	w.ties = sized(&w.ties, len(order)+lanes)
	units, n := len(order)/lanes*lanes, 0
	if units > 0 {
		n = active.partition(bits[:units/32], w.ties, order[:units], digit)
	}
	if units < len(order) {
		last := w.ties[n:]
		more := partitionPortable(bits[units/32:], last, order[units:], digit)
		for i := range last[:more] {
			last[i] += uint32(units)
		}
		n += more
	}
	if k -= above; k == 0 {
		return
	}
	threshold, above := kthLargest(order, w.ties[:n], k)
	for _, i := range w.ties[:n] {
		bits[i/32] |= less(threshold, order[i]) << (i % 32)
	}
	for _, i := range w.ties[:n] {
		if above == k {
			return
		}
		if order[i] == threshold {
			bits[i/32] |= 1 << (i % 32)
			above++
		}
	}
}

// less is 1 if x < y, else 0.
func less(x, y uint32) uint32 { return uint32((uint64(x) - uint64(y)) >> 63) }

// equal is 1 if x == y, else 0.
func equal(x, y uint32) uint32 { return uint32((uint64(x^y) - 1) >> 63) }

// kthLargest finds the k-th largest of the sort keys that index names, which agree in
// their leading 11 bits, and the number of larger ones, 1 <= k <= len(index). It
// proceeds digit by digit, with digits so short that a histogram costs less than the
// few sort keys.
func kthLargest(order, index []uint32, k int) (threshold uint32, above int) {
	threshold = order[index[0]] >> 21
	for shift := 14; shift >= 0; shift -= 7 {
		var histogram [1 << 7]int32
		for _, i := range index {
			r := order[i]
			histogram[r>>shift&127] += int32(equal(r>>(shift+7), threshold))
		}
		digit := uint32(127)
		for above+int(histogram[digit]) < k {
			above += int(histogram[digit])
			digit--
		}
		threshold = threshold<<7 | digit
	}
	return threshold, above
}
