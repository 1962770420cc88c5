package kernel

// ahead names rows that a later multiplication will read. The current one asks
// for them to be fetched into the second-level cache while it computes, a few at
// a time: rows of a column-sparse attention lie anywhere, which no hardware
// prefetcher foresees, and fetching them on demand takes as long as computing
// with them. It is an alias because
// the generator of the assembly, which knows its layout, cannot name types of this
// package.
type ahead = struct {
	left  int      // rows still to fetch, the first of list
	list  *int32   // as for level.mulRows
	rows  *float32 // row 0
	ld    int      // bytes from one row to the next
	lines int      // cache lines of a row
	burst int      // rows to fetch per pause of the multiplication
}

const cacheLine = 64

// planAhead makes h name the rows of src, [N, dim], in list. It returns nil if
// there are none.
func planAhead(h *ahead, src []float32, dim int, list []int32) *ahead {
	if len(list) == 0 || len(src) == 0 {
		return nil
	}
	lines := (4*dim + cacheLine - 1) / cacheLine
	*h = ahead{
		left: len(list), list: &list[0], rows: &src[0],
		ld: 4 * dim, lines: lines, burst: max(1, 8/lines),
	}
	return h
}
