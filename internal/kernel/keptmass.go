package kernel

// KeptMass is the share of full attention that falls on the keys of a table, for
// one query of each group, the middle one:
//
//	dst[b, h, u] = sum over kept j of P[b, h, i, j], i = middle of group u
//
// with dst [B, H, Groups(N, t.Group)]. It is 1 for a table of all keys, and 0 for
// a padding query and where there is no key.
func KeptMass(dst []float32, a *Operands, t *Table) {
	a.check("KeptMass")
	t.check("KeptMass", a.Shape)
	groups := Groups(a.Len, t.Group)
	checkLen("KeptMass", "dst", len(dst), a.Batch*a.Heads*groups)
	keys := a.validKeys(0)
	defer keyListsPool.Put(keys)
	tasks := Groups(groups, lanes)
	parallel(a.Batch*a.Heads*tasks, func(w *scratch, task int) {
		index, u := task/tasks, task%tasks*lanes
		part := dst[index*groups:][:groups]
		w.keptMass(part[u:min(u+lanes, groups)], a, t, index, u, keys.lists[index/a.Heads])
	})
}

// keptMass is KeptMass of up to lanes groups, from u on, of one (batch, head)
// pair, whose keys are given.
func (w *scratch) keptMass(dst []float32, a *Operands, t *Table, index, u int, keys []int32) {
	q, k, _ := a.head(index)
	group, count := min(t.Group, a.Len), len(dst)
	// A tile reads consecutive queries, so the middle ones are gathered first.
	queries := sized(&w.v, count*a.HeadDim)
	var at [lanes]int
	var rows [lanes][]uint32
	for i := range count {
		first := (u + i) * group
		at[i] = (first + min(first+group, a.Len)) / 2
		rows[i] = t.row(a.Shape, index, u+i)
		copy(queries[i*a.HeadDim:][:a.HeadDim], q[at[i]*a.HeadDim:])
	}
	tile := tile{dim: a.HeadDim, q: queries, k: k, scale: a.Scale, last: count, keys: keys, reach: -1, keep: true}
	w.attend(&tile)

	clear(dst)
	panel := &w.panels[0]
	for block := range tile.blocks() {
		start := block * tile.blockLen()
		var kept [lanes]float32
		for j, key := range tile.block(start) {
			for i := range count {
				if t.keeps(rows[i], at[i], int(key)) {
					kept[i] += w.kept[(start+j)*lanes+i]
				}
			}
		}
		for i, sum := range kept[:count] {
			dst[i] += sum * panel.normalizer(i, w.maxima[block*lanes+i])
		}
	}
	for i := range count {
		if valid := a.valid(index / a.Heads); valid != nil && valid[at[i]] == 0 {
			dst[i] = 0
		}
	}
}

// keeps reports whether query i of the group with bitmap row reads key j.
func (t *Table) keeps(row []uint32, i, j int) bool {
	return row[j/32]>>(j%32)&1 != 0 && (t.Reach < 0 || j < t.Sinks || max(i-j, j-i) <= t.Reach)
}
