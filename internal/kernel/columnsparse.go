package kernel

import "math/bits"

// ColumnSparse is attention over the keys that a table keeps: every query of a
// group attends to the valid keys of the group's bitmap, with a softmax
// normalised over these (PulseCol's ColumnSparseAttn). out is [B, H, M, D], lse
// [B, H, M] or nil. A query without any key gives zeros and a lse of -Inf. It
// computes the queries [a.From, a.To).
func (t *Team) ColumnSparse(out, lse []float32, a *Operands, table *Table) {
	a.check("ColumnSparse")
	table.check("ColumnSparse", a.Shape)
	checkLen("ColumnSparse", "out", len(out), len(a.Q))
	checkOptional("ColumnSparse", "lse", lse, a.allQueries())

	group := min(table.Group, a.Queries())
	from, to := a.queryRange()
	j := columnSparseJob{
		Operands: *a, table: *table, out: out, lse: lse,
		group: group, before: from / group, groups: Groups(to, group), pack: max(1, packQueries/group),
	}
	run(t, &t.columnSparse, a.Batch*a.Heads*Groups(j.groups-j.before, j.pack), j)
}

type columnSparseJob struct {
	Operands
	table    Table
	out, lse []float32

	group  int // queries of a group
	before int // groups of a head before the query range
	groups int // of a head, up to the end of the query range
	pack   int // groups of a task
}

// packQueries queries in whole groups make a task of ColumnSparse, which prefetches the rows
// of the next group while it computes the current one.
const packQueries = 512

func (j *columnSparseJob) run(w *scratch, task int) {
	packs := Groups(j.groups-j.before, j.pack)
	index, u := task/packs, j.before+task%packs*j.pack
	last := min(u+j.pack, j.groups)
	from, to := j.queryRange()
	next := tableKeys(&w.index[u%2], &j.Operands, &j.table, index, u)
	for ; u < last; u++ {
		keys := next
		next = nil
		if u+1 < last {
			next = tableKeys(&w.index[(u+1)%2], &j.Operands, &j.table, index, u+1)
		}
		end := min((u+1)*j.group, to)
		for first := max(u*j.group, from); first < end; first += j.tileQueries() {
			limit := min(first+j.tileQueries(), end)
			tile := j.newTile(index, first, limit, keys)
			tile.reach, tile.sinks = min(j.table.Reach, j.Len), j.table.Sinks
			tile.next = next
			if tile.last < end {
				tile.next = keys
			}
			tile.next = tile.next[:min(tile.blockKeys(), len(tile.next))]
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
	list := sized(buf, roundUp(a.Len, rowUnit)+prefetchRows)
	n := 0
	for i, word := range t.row(a.Shape, index, u) {
		if rest := a.Len - 32*i; rest < 32 {
			word &= 1<<rest - 1
		}
		if valid != nil {
			word &= nonzero(valid[32*i : min(32*i+32, a.Len)])
		}
		// prefetchRows keys are written at a time, also beyond the last bit: the end of a
		// loop over the bits is unpredictable.
		for count := bits.OnesCount32(word); count > 0; count -= prefetchRows {
			some := list[n:][:prefetchRows]
			for k := range some {
				some[k] = int32(32*i + bits.TrailingZeros32(word))
				word &= word - 1
			}
			n += min(count, prefetchRows)
		}
	}
	return padList(list[:n])
}

// nonzero has bit i set if x[i] is not 0, for up to 32 elements.
func nonzero(x []float32) (word uint32) {
	for i, f := range x {
		if f != 0 {
			word |= 1 << i
		}
	}
	return word
}
