package kernel

import "github.com/pulsecol/pulsecol/internal/bf16"

// bf16Products are the routines of an isa for products of bfloat16. They take
// their operands in words of perWord values that are neighbours in the summed
// dimension. A word has the size and the Go type of a float32: with one value to
// a word it is that value, rounded; with two it is the pair, the first in the
// lower half. Only these routines look into words.
type bf16Products struct {
	perWord int

	// unit is the number of words that are summed at a time. Words are padded with
	// zeros to whole units.
	unit int

	// packRows makes words of neighbours in a column, packCols of neighbours in a
	// row, of the first n elements of the rows of src that list names, rows at a
	// distance of lds; ldd is the distance in dst. In packRows, dst may be src if the
	// list is 0, 1, 2, ... and ldd is lds.
	//
	//	packRows: dst[i*ldd+j] = src[list[i*perWord]*lds+j] and the next in the column
	//	packCols: dst[i*ldd+j] = src[list[i]*lds+j*perWord] and the next in the row
	packRows, packCols packFunc

	// mulRows and mulCols are those of isa on words: k, lda, the rows of b and
	// the list of mulCols count words. Lists of rows are 0, 1, 2, ... What packCols
	// makes is a of mulRows, what packValues makes a of mulCols; the other packing
	// makes b.
	mulRows mulRowsFunc
	mulCols mulColsFunc

	// packValues is packRows unless tiled is set. Then both matrices a are made of
	// tiles of tileRows rows of unit words, in which word p of row i is
	//
	//	a[i/tileRows*tileRows*lda + p/unit*tileRows*unit + i%tileRows*unit + p%unit]
	//
	// and that of mulCols is transposed, [m, words].
	packValues packFunc
	tiled      bool

	// softmax is isa.softmax, and writes the exponentials as packPanel would.
	softmax func(words, s []float32, rows int, state []float32)

	blocking

	// fewerPauses is the factor by which mulRows and mulCols pause less often to
	// prefetch than those of isa for as many words: see planPrefetch.
	fewerPauses int

	// peakFMA is isa.peakFMA for these products.
	peakFMA func(n int) (flops int)
}

// tileRows is the number of rows of a tile.
const tileRows = 16

// blocking is the sizes of the blocks of packed products.
type blocking struct {
	panels int // of queries, that walk over the keys together
	keys   int // of a block

	// Of a linear layer: rows of x and outputs of a task, rows that all outputs meet
	// before the next, and products that are summed before the sum is added to the
	// output.
	rows, outputs, chunk, depth int
}

// packedBlocking is the blocking of Int16, and of bfloat16 without AMX.
var packedBlocking = blocking{
	panels: packedPanels, keys: blockKeys,
	rows: linearRows, outputs: linearCols, chunk: linearChunk, depth: linearDepth,
}

// The routines that an isa has in several kinds: see isa and bf16Products.
type (
	mulRowsFunc = func(list []int32, k int, a []float32, lda int, b, c []float32, ldc int, accumulate bool, next *prefetch)
	mulColsFunc = func(m int, list []int32, a []float32, lda int, b, c []float32, ldc int, keep *[lanes]float32, next *prefetch)
	packFunc    = func(dst []float32, ldd int, list []int32, src []float32, lds, n int)
)

// words is the number of words of n values.
func (p *bf16Products) words(n int) int { return roundUp((n+p.perWord-1)/p.perWord, p.unit) }

// packPanel is packRows for a panel src [rows, lanes]: dst [words(rows), lanes],
// which may be src.
func (p *bf16Products) packPanel(dst, src []float32, rows int) {
	const step = 256 // whole units
	for i := 0; i < rows; i += step {
		p.packRows(dst[p.words(i)*lanes:], lanes, identity[:min(step, rows-i)], src[i*lanes:], lanes, lanes)
	}
}

// roundedProducts multiplies rounded numbers with the routines of an isa for
// float32. round is its packFunc with one value to a word.
func (l *isa) roundedProducts(round packFunc) bf16Products {
	return bf16Products{
		perWord: 1, unit: 1, packRows: round, packCols: round, packValues: round,
		mulRows: l.mulRows, mulCols: l.mulCols,
		softmax: func(words, s []float32, rows int, state []float32) {
			l.softmax(s, rows, state)
			round(words, lanes, identity[:rows], s, lanes, lanes)
		},
		blocking: packedBlocking, fewerPauses: 1, peakFMA: l.peakFMA,
	}
}

func roundRowsPortable(dst []float32, ldd int, list []int32, src []float32, lds, n int) {
	for i, row := range list {
		to := dst[i*ldd:][:n]
		for j, x := range src[int(row)*lds:][:n] {
			to[j] = bf16.ToFloat32(bf16.FromFloat32(x))
		}
	}
}

// PeakFMABF16 is PeakFMA for the products of BFloat16.
func PeakFMABF16(n int) (flops int) { return n * active.bf16.peakFMA(n) }
