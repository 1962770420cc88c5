package kernel

import "math/bits"

// ColumnSparse is attention over the keys that a table keeps: every query of a
// group attends to the valid keys of the group's bitmap, with a softmax
// normalised over these (PulseCol's ColumnSparseAttn). out is [B, H, N, D], lse
// [B, H, N] or nil. A query without any key gives zeros and a lse of -Inf.
func ColumnSparse(out, lse []float32, a *Operands, t *Table) {
	a.check("ColumnSparse")
	t.check("ColumnSparse", a.Shape)
	checkLen("ColumnSparse", "out", len(out), len(a.Q))
	checkOptional("ColumnSparse", "lse", lse, a.queries())

	groups := Groups(a.Len, t.Group)
	group := min(t.Group, a.Len)
	packs := Groups(groups, max(1, packQueries/group))
	parallel(a.Batch*a.Heads*packs, func(w *scratch, task int) {
		index, pack := task/packs, task%packs
		u := pack * max(1, packQueries/group)
		last := min(u+max(1, packQueries/group), groups)
		next := tableKeys(&w.index[u%2], a, t, index, u)
		for ; u < last; u++ {
			keys := next
			next = nil
			if u+1 < last {
				next = tableKeys(&w.index[(u+1)%2], a, t, index, u+1)
			}
			end := min((u+1)*group, a.Len)
			for first := u * group; first < end; first += tileQueries {
				tile := a.newTile(index, first, min(first+tileQueries, end), keys)
				tile.reach, tile.sinks = min(t.Reach, a.Len), t.Sinks
				tile.next = next
				if tile.last < end {
					tile.next = keys
				}
				tile.next = tile.next[:min(blockKeys, len(tile.next))]
				tile.out = a.headOut(out, index)
				w.attend(&tile)
				w.store(a.headLSE(lse, index), &tile)
			}
		}
	})
}

// packQueries queries in whole groups make a task of ColumnSparse, which can
// fetch what the next group reads while it computes the current one.
const packQueries = 512

// tableKeys expands the bitmap of group u of one (batch, head) pair, less the
// padding.
func tableKeys(buf *[]int32, a *Operands, t *Table, index, u int) []int32 {
	valid := a.valid(index / a.Heads)
	list := sized(buf, roundUp(a.Len, rowUnit)+soonRows)[:0]
	for i, word := range t.row(a.Shape, index, u) {
		for ; word != 0; word &= word - 1 {
			j := i*32 + bits.TrailingZeros32(word)
			if j < a.Len && (valid == nil || valid[j] != 0) {
				list = append(list, int32(j))
			}
		}
	}
	return padList(list)
}
