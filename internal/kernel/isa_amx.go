//go:build amd64 && !noasm

package kernel

// tileWords is the number of words that AMX sums at a time.
const tileWords = 16

// tileProducts are the products of AMX: tiles of 16 rows of 16 words. They are so fast that
// packing operands and writing sums take a notable time; larger blocks do both less often.
func tileProducts() bf16Products {
	return bf16Products{
		perWord:     2,
		unit:        tileWords,
		packRows:    packRowsAMX,
		packCols:    packColsAMX,
		packValues:  packTransposedAMX,
		tiled:       true,
		mulRows:     mulRowsAMX,
		mulCols:     mulColsAMX,
		softmax:     softmaxAMX,
		blocking:    blocking{panels: mostPanels, keys: mostKeys, rows: 1024, outputs: 512, chunk: 64, depth: 1024},
		fewerPauses: 4,
		peakFMA:     peakFMAAMX,
	}
}

// packRowsAMX is bf16Products.packRows for whole tiles.
func packRowsAMX(dst []float32, ldd int, list []int32, src []float32, lds, n int) {
	packRowsAVX512BF16(dst, ldd, list, src, lds, n)
	words := (len(list) + 1) / 2
	for i := words; i < roundUp(words, tileWords); i++ {
		clear(dst[i*ldd:][:n])
	}
}

// softmaxAMX is bf16Products.softmax for whole tiles.
func softmaxAMX(words, s []float32, rows int, state []float32) {
	softmaxAVX512BF16(words, s, rows, state)
	n := (rows + 1) / 2
	clear(words[n*lanes : roundUp(n, tileWords)*lanes])
}
