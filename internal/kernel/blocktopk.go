package kernel

import "fmt"

// BlockTopKRows is TopKRows for whole blocks of keys (the paper's BS+PR): keys
// are pooled into consecutive blocks of block keys by summing their scores, row
// r selects the k(r) blocks with the largest sums, and bits gets every valid key
// of these. Of equal sums the block with the smaller index goes first. A block
// without any valid key is never selected.
func BlockTopKRows(bits []uint32, scores []float32, rows, n, block int, k func(row int) int, valid func(row int) []float32) {
	checkRows("BlockTopKRows", bits, scores, rows, n)
	checkBlock("BlockTopKRows", block)
	parallel(rows, func(w *scratch, r int) {
		row := bits[r*Words(n):][:Words(n)]
		clear(row)
		v := validRow("BlockTopKRows", valid, r, n)
		setBlocks(row, w.topBlocks(scores[r*n:][:n], v, block, k(r)), 0, n, block, v)
	})
}

func checkBlock(fn string, block int) {
	if block <= 0 {
		panic(fmt.Sprintf("kernel: %s: block is %d, must be positive", fn, block))
	}
}

// SparseDRows is the two-part selection of SparseD ("isolated selection" of its
// paper), which keeps prompt keys from crowding out generated ones. Keys come in
// blocks; blocks from the last-th on belong to the generation. Each row selects
//
//   - the quota best of all blocks by scores, of which those before last count,
//   - the genQuota best blocks of the generation by genScores.
//
// scores is [rows, n], genScores [rows, n - last*block]: attention normalised
// over all keys and over the keys of the generation. A short last block is at a
// disadvantage, as in the published code: its sum is not divided by its length.
func SparseDRows(bits []uint32, scores, genScores []float32, rows, n, block, last, quota, genQuota int) {
	checkRows("SparseDRows", bits, scores, rows, n)
	checkBlock("SparseDRows", block)
	if last < 0 || last > Groups(n, block) {
		panic(fmt.Sprintf("kernel: SparseDRows: last is %d, must be in [0, %d]", last, Groups(n, block)))
	}
	prompt := n
	if last < Groups(n, block) {
		prompt = last * block
	}
	checkLen("SparseDRows", "genScores", len(genScores), rows*(n-prompt))
	parallel(rows, func(w *scratch, r int) {
		row := bits[r*Words(n):][:Words(n)]
		clear(row)
		setBlocks(row, w.topBlocks(scores[r*n:][:n], nil, block, quota), 0, prompt, block, nil)
		setBlocks(row, w.topBlocks(genScores[r*(n-prompt):][:n-prompt], nil, block, genQuota), prompt, n, block, nil)
	})
}

// topBlocks is the bitmap of the k blocks with the largest sums of valid scores.
func (w *scratch) topBlocks(scores, valid []float32, block, k int) []uint32 {
	block = min(block, len(scores))
	w.order = w.order[:0]
	for lo := 0; lo < len(scores); lo += block {
		sum, any := 0.0, false
		for j := lo; j < min(lo+block, len(scores)); j++ {
			if valid == nil || valid[j] != 0 {
				sum += float64(scores[j])
				any = true
			}
		}
		if any {
			w.order = append(w.order, rank(float32(sum)))
		} else {
			w.order = append(w.order, 0)
		}
	}
	w.chosen = sized(&w.chosen, Words(len(w.order)))
	w.selectTop(w.chosen, w.order, k)
	return w.chosen
}

// setBlocks sets, in a bitmap of keys, the valid keys in [lo, hi) of the chosen
// blocks. Blocks are counted from key lo on.
func setBlocks(keys, chosen []uint32, lo, hi, block int, valid []float32) {
	for j := lo; j < hi; j++ {
		b := (j - lo) / block
		if chosen[b/32]>>(b%32)&1 != 0 && (valid == nil || valid[j] != 0) {
			keys[j/32] |= 1 << (j % 32)
		}
	}
}
