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
	selectTop(bits, order, k)
}

// TopKRows is TopK for rows of n scores each: bits [rows, Words(n)], scores
// [rows, n]. Row r selects k(r) keys of those that valid(r) does not mark with 0,
// or all of them if there are fewer. valid may be nil, and may return nil.
// Both functions are called from several goroutines.
func TopKRows(bits []uint32, scores []float32, rows, n int, k func(row int) int, valid func(row int) []float32) {
	checkRows("TopKRows", bits, scores, rows, n)
	parallel(rows, func(w *scratch, r int) {
		order := w.rank(scores[r*n:][:n], validRow("TopKRows", valid, r, n))
		selectTop(bits[r*Words(n):][:Words(n)], order, k(r))
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
// of one sign as their bits, so the sign bit is flipped for positive numbers and
// everything for negative ones. -0 counts as 0.
func rank(f float32) uint32 {
	if f != f {
		return rankNaN
	}
	b := math.Float32bits(f + 0) // -0 + 0 = 0
	if b>>31 == 0 {
		return b | 1<<31
	}
	return ^b
}

// selectTop sets the bits of the k largest non-zero ranks, smaller index first
// among equals, and clears all others. It looks for the k-th largest rank digit
// by digit: a histogram of the leading digit says which value of the digit the
// k-th has and how many ranks lie above it.
func selectTop(bits, order []uint32, k int) {
	clear(bits)
	candidates := 0
	for _, r := range order {
		if r != 0 {
			candidates++
		}
	}
	k = min(k, candidates)
	if k <= 0 {
		return
	}
	var threshold, mask uint32
	remaining := k
	for _, digit := range [...]struct{ shift, width int }{{21, 11}, {10, 11}, {0, 10}} {
		var histogram [1 << 11]int32
		digitMask := uint32(1)<<digit.width - 1
		for _, r := range order {
			if r&mask == threshold {
				histogram[r>>digit.shift&digitMask]++
			}
		}
		value := digitMask
		for remaining > int(histogram[value]) {
			remaining -= int(histogram[value])
			value--
		}
		threshold |= value << digit.shift
		mask |= digitMask << digit.shift
	}
	// remaining of the ranks equal to threshold belong to the selection.
	for i, r := range order {
		if r < threshold {
			continue
		}
		if r == threshold {
			if remaining == 0 {
				continue
			}
			remaining--
		}
		bits[i/32] |= 1 << (i % 32)
	}
}
