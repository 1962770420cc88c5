package kernel

import "math/bits"

// ColumnSparse is attention over the keys that a table keeps: every query of a
// group attends to the valid keys of the group's bitmap, with a softmax
// normalised over these (PulseCol's ColumnSparseAttn). out is [B, H, N, D], lse
// [B, H, N] or nil. A query without any key gives zeros and a lse of -Inf.
func (t *Team) ColumnSparse(out, lse []float32, a *Operands, table *Table) {
	a.check("ColumnSparse")
	table.check("ColumnSparse", a.Shape)
	checkLen("ColumnSparse", "out", len(out), len(a.Q))
	checkOptional("ColumnSparse", "lse", lse, a.queries())

	group := min(table.Group, a.Len)
	j := columnSparseJob{
		Operands: *a, table: *table, out: out, lse: lse,
		group: group, groups: Groups(a.Len, group), pack: max(1, packQueries/group),
	}
	run(t, &t.columnSparse, a.Batch*a.Heads*Groups(j.groups, j.pack), j)
}

type columnSparseJob struct {
	Operands
	table    Table
	out, lse []float32

	group  int // queries of a group
	groups int // of a head
	pack   int // groups of a task
}

// packQueries queries in whole groups make a task of ColumnSparse, which can
// fetch what the next group reads while it computes the current one.
const packQueries = 512

func (j *columnSparseJob) run(w *scratch, task int) {
	packs := Groups(j.groups, j.pack)
	index, u := task/packs, task%packs*j.pack
	last := min(u+j.pack, j.groups)
	next := tableKeys(&w.index[u%2], &j.Operands, &j.table, index, u)
	for ; u < last; u++ {
		keys := next
		next = nil
		if u+1 < last {
			next = tableKeys(&w.index[(u+1)%2], &j.Operands, &j.table, index, u+1)
		}
		end := min((u+1)*j.group, j.Len)
		for first := u * j.group; first < end; first += j.tileQueries() {
			tile := j.newTile(index, first, min(first+j.tileQueries(), end), keys)
			tile.reach, tile.sinks = min(j.table.Reach, j.Len), j.table.Sinks
			tile.next = next
			if tile.last < end {
				tile.next = keys
			}
			tile.next = tile.next[:min(blockKeys, len(tile.next))]
			tile.out = j.headOut(j.out, index)
			w.attend(&tile)
			w.store(j.headLSE(j.lse, index), &tile)
		}
	}
}

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
