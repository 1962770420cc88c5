package kernel

// prefetch names rows that later work reads or writes. A multiplication prefetches
// them into the second-level cache while it computes, a few at a time: the addresses
// of the rows of a column-sparse attention are irregular, so hardware does not
// prefetch them, and a fetch on demand takes as long as the computation. The last
// entry stays empty.
//
// It is an alias because the generator of the assembly, which uses its layout, cannot name
// types of this package.
type prefetch = [3]struct {
	left  int      // rows still to start, the first of list
	list  *int32   // as for isa.mulRows
	rows  *float32 // row 0, nil after the last entry
	ld    int      // bytes from one row to the next
	lines int      // cache lines of a row
	line  int      // the first lines of the latest row, which are still to be fetched
	burst int      // lines to fetch per pause of the multiplication, in the first entry
}

const cacheLine = 64

// prefetchSteps is the number of steps between pauses of the assembly.
const prefetchSteps = 16

// prefetchRows is the number of entries beyond the end of a list that multiplications
// read.
const prefetchRows = 8

// planPrefetch sets h to the rows of src, [N, dim], in list and the first count rows
// of then, which are prefetched while `rows` rows of the same size are multiplied with
// a panel. Both may be empty.
func planPrefetch(h *prefetch, src []float32, dim int, list []int32, then []float32, count, rows int) *prefetch {
	*h = prefetch{}
	n := 0
	add := func(rows []float32, list []int32) {
		if len(list) > 0 && len(rows) > 0 {
			h[n].left, h[n].list, h[n].rows = len(list), &list[0], &rows[0]
			h[n].ld, h[n].lines = 4*dim, (4*dim+cacheLine-1)/cacheLine
			n++
		}
	}
	add(src, list)
	add(then, identity[:count])
	if n == 0 {
		return nil
	}
	pauses := max(1, rows*dim/(rowUnit*prefetchSteps))
	h[0].burst = (h[0].left*h[0].lines + h[1].left*h[1].lines + pauses - 1) / pauses
	return h
}
