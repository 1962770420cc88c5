package kernel

// KeptMass is the share of full attention that falls on the keys of a table, for
// one query of each group, the middle one:
//
//	dst[b, h, u] = sum over kept j of P[b, h, i, j], i = middle of group u
//
// with dst [B, H, Groups(M, t.Group)]. It is 1 for a table of all keys, and 0 for
// a padding query and where there is no key.
func (t *Team) KeptMass(dst []float32, a *Operands, table *Table) {
	a.check("KeptMass")
	table.check("KeptMass", a.Shape)
	groups := Groups(a.Queries(), table.Group)
	checkLen("KeptMass", "dst", len(dst), a.Batch*a.Heads*groups)
	j := keptMassJob{Operands: *a, table: table, dst: dst, keys: t.keys.valid(a, 0), groups: groups}
	run(t, &t.keptMass, a.Batch*a.Heads*Groups(groups, lanes), j)
}

type keptMassJob struct {
	Operands
	table  *Table
	dst    []float32
	keys   [][]int32 // by batch row
	groups int       // of a head
}

// run does up to lanes groups of one (batch, head) pair.
func (j *keptMassJob) run(w *scratch, task int) {
	tasks := Groups(j.groups, lanes)
	index, u := task/tasks, task%tasks*lanes
	dst := j.dst[index*j.groups+u:][:min(lanes, j.groups-u)]
	keys, table := j.keys[index/j.Heads], j.table
	q, k, _ := j.head(index)
	group := min(table.Group, j.Queries())

	// A tile reads consecutive queries, so the middle ones are gathered first.
	queries := sized(&w.v, len(dst)*j.HeadDim)
	var at [lanes]int
	var rows [lanes][]uint32
	for i := range dst {
		first := (u + i) * group
		at[i] = (first + min(first+group, j.Queries())) / 2
		rows[i] = table.row(j.Shape, index, u+i)
		copy(queries[i*j.HeadDim:][:j.HeadDim], q[at[i]*j.HeadDim:])
	}
	t := tile{dim: j.HeadDim, q: queries, k: k, scale: j.Scale, last: len(dst), keys: keys, reach: -1, keep: true}
	w.attend(&t)

	clear(dst)
	panel := &w.panels[0]
	for block := range t.blocks() {
		start := block * t.blockLen()
		var kept [lanes]float32
		for b, key := range t.block(start) {
			for i := range dst {
				if table.keeps(rows[i], j.First+at[i], int(key)) {
					kept[i] += w.kept[(start+b)*lanes+i]
				}
			}
		}
		for i := range dst {
			dst[i] += kept[i] * panel.normalizer(i, w.maxima[block*lanes+i])
		}
	}
	for i := range dst {
		if !j.takesPart(index/j.Heads, at[i]) {
			dst[i] = 0
		}
	}
}

// keeps reports whether the query at position i, of the group with bitmap row, reads key j.
func (t *Table) keeps(row []uint32, i, j int) bool {
	return row[j/32]>>(j%32)&1 != 0 && (t.Reach < 0 || j < t.Sinks || max(i-j, j-i) <= t.Reach)
}
