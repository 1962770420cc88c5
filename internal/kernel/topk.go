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
	w := getScratch()
	defer putScratch(w)
	order := w.rank(scores, nil)
	w.selectTop(bits, order, k)
}

// TopKRows is TopK for rows of n scores each: bits [rows, Words(n)], scores
// [rows, n]. Row r selects k(r) keys of those that valid(r) does not mark with 0,
// or all of them if there are fewer. valid may be nil, and may return nil.
// Both functions are called from several goroutines.
func TopKRows(bits []uint32, scores []float32, rows, n int, k func(row int) int, valid func(row int) []float32) {
	checkRows("TopKRows", bits, scores, rows, n)
	parallel(rows, func(w *scratch, r int) {
		order := w.rank(scores[r*n:][:n], validRow("TopKRows", valid, r, n))
		w.selectTop(bits[r*Words(n):][:Words(n)], order, k(r))
	})
}

func checkRows(fn string, bits []uint32, scores []float32, rows, n int) {
	if rows < 0 || n <= 0 || !fits(rows, n) {
		panic(fmt.Sprintf("kernel: %s: %d rows of %d scores", fn, rows, n))
	}
	checkLen(fn, "bits", len(bits), rows*Words(n))
	checkLen(fn, "scores", len(scores), rows*n)
}

func validRow(fn string, valid func(row int) []float32, row, n int) []float32 {
	if valid == nil {
		return nil
	}
	v := valid(row)
	checkOptional(fn, "valid(row)", v, n)
	return v
}

// rank turns scores into integers of the same order: NaN is rankNaN, below all
// others, and excluded entries are 0.
func (w *scratch) rank(scores, valid []float32) []uint32 {
	w.order = sized(&w.order, len(scores))
	for i, s := range scores {
		w.order[i] = rank(s)
	}
	if valid != nil {
		for i, v := range valid {
			if v == 0 {
				w.order[i] = 0
			}
		}
	}
	return w.order
}

const rankNaN = 1

// rank maps a float32 to a uint32 that compares the same. IEEE 754 orders floats
// of one sign as their bits, so positive numbers get their sign bit flipped and
// negative ones all bits. -0 counts as 0.
func rank(f float32) uint32 {
	if f != f {
		return rankNaN
	}
	b := math.Float32bits(f + 0) // -0 + 0 = 0
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

// selectTop sets the bits of the k largest non-zero ranks, smaller index first
// among equals, and clears all others. It has no branch that depends on a single
// rank, since such branches are unpredictable.
func (w *scratch) selectTop(bits, order []uint32, k int) {
	clear(bits)
	candidates := len(order)
	for _, r := range order {
		candidates -= int(equal(r, 0))
	}
	k = min(k, candidates)
	if k <= 0 {
		return
	}
	threshold, above := w.kthLargest(order, k)
	for i := range bits {
		var word uint32
		for b, r := range order[32*i : min(32*i+32, len(order))] {
			word |= less(threshold, r) << (b % 32)
		}
		bits[i] = word
	}
	for i := 0; above < k; i++ {
		if order[i] == threshold {
			bits[i/32] |= 1 << (i % 32)
			above++
		}
	}
}

// less is 1 if x < y, else 0.
func less(x, y uint32) uint32 { return uint32((uint64(x) - uint64(y)) >> 63) }

// equal is 1 if x == y, else 0.
func equal(x, y uint32) uint32 { return 1 ^ less(x, y) ^ less(y, x) }

// kthLargest finds the k-th largest of order, 1 <= k <= len(order), and the
// number of larger ones. It goes digit by digit: a histogram of the leading
// digit tells the digit of the k-th, and only the ranks with that digit go on.
func (w *scratch) kthLargest(order []uint32, k int) (threshold uint32, above int) {
	w.ties = sized(&w.ties, len(order))
	ties := order
	for _, digit := range [...]struct{ shift, width int }{{21, 11}, {10, 11}, {0, 10}} {
		var histogram [1 << 11]int32
		mask := uint32(1)<<digit.width - 1
		for _, r := range ties {
			histogram[r>>digit.shift&mask]++
		}
		value := mask
		for above+int(histogram[value]) < k {
			above += int(histogram[value])
			value--
		}
		threshold |= value << digit.shift
		n := uint32(0)
		for _, r := range ties {
			w.ties[n] = r // n never overtakes the position of r
			n += equal(r>>digit.shift&mask, value)
		}
		ties = w.ties[:n]
	}
	return threshold, above
}
