package kernel

import "fmt"

// BlockTopKRows is TopKRows for whole blocks of keys (the paper's BS+PR): keys
// are pooled into consecutive blocks of block keys by summing their scores, each
// row selects the k blocks with the largest sums, and bits gets every valid key of
// these. Of equal sums the block with the smaller index goes first. A block
// without any valid key is never selected.
func (t *Team) BlockTopKRows(bits []uint32, scores []float32, rows, n, block, k int, valid []float32) {
	checkRows("BlockTopKRows", bits, scores, rows, n, 0)
	checkBlock("BlockTopKRows", block)
	checkOptional("BlockTopKRows", "valid", valid, n)
	run(t, &t.blockTopK, rows, blockTopKJob{topKJob{bits, scores, n, k, valid}, block})
}

type blockTopKJob struct {
	topKJob
	block int
}

func (j *blockTopKJob) run(w *scratch, row int) {
	bits := j.bits[row*Words(j.n):][:Words(j.n)]
	clear(bits)
	setBlocks(bits, w.topBlocks(j.scores[row*j.n:][:j.n], j.valid, j.block, j.k), 0, j.n, j.block, j.valid)
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
//   - the quota best of all blocks by the former, of which those before last count,
//   - the genQuota best blocks of the generation by the latter.
//
// A row of scores has the attention normalised over all keys, n, and then over the
// keys of the generation, n - last*block. A short last block is at a
// disadvantage, as in the published code: its sum is not divided by its length.
func (t *Team) SparseDRows(bits []uint32, scores []float32, rows, n, block, last, quota, genQuota int) {
	checkBlock("SparseDRows", block)
	if last < 0 || last > Groups(n, block) {
		panic(fmt.Sprintf("kernel: SparseDRows: last is %d, must be in [0, %d]", last, Groups(n, block)))
	}
	prompt := n
	if last < Groups(n, block) {
		prompt = last * block
	}
	checkRows("SparseDRows", bits, scores, rows, n, n-prompt)
	run(t, &t.sparseD, rows, sparseDJob{bits, scores, n, prompt, block, quota, genQuota})
}

type sparseDJob struct {
	bits            []uint32
	scores          []float32
	n, prompt       int // keys, and those before the generation
	block           int
	quota, genQuota int
}

func (j *sparseDJob) run(w *scratch, row int) {
	bits := j.bits[row*Words(j.n):][:Words(j.n)]
	clear(bits)
	gen := j.n - j.prompt
	scores := j.scores[row*(j.n+gen):][:j.n+gen]
	setBlocks(bits, w.topBlocks(scores[:j.n], nil, j.block, j.quota), 0, j.prompt, j.block, nil)
	setBlocks(bits, w.topBlocks(scores[j.n:], nil, j.block, j.genQuota), j.prompt, j.n, j.block, nil)
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
			w.order = append(w.order, sortKey(float32(sum)))
		} else {
			w.order = append(w.order, 0)
		}
	}
	w.blocks = sized(&w.blocks, Words(len(w.order)))
	w.selectTop(w.blocks, w.order, k)
	return w.blocks
}

// setBlocks sets, in a bitmap of keys, the valid keys in [lo, hi) of the selected
// blocks. Blocks are counted from key lo on.
func setBlocks(keys, blocks []uint32, lo, hi, block int, valid []float32) {
	for j := lo; j < hi; j++ {
		b := (j - lo) / block
		if blocks[b/32]>>(b%32)&1 != 0 && (valid == nil || valid[j] != 0) {
			keys[j/32] |= 1 << (j % 32)
		}
	}
}
