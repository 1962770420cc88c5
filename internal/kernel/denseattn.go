package kernel

// Dense computes out = softmax(Scale q k^T) v over all valid keys: out
// [B, H, M, D], and lse [B, H, M] = log of the sum of exp(scores) unless lse is
// nil. It computes the queries [a.From, a.To).
func (t *Team) Dense(out, lse []float32, a *Operands) {
	a.check("Dense")
	checkLen("Dense", "out", len(out), len(a.Q))
	checkOptional("Dense", "lse", lse, a.allQueries())

	from, to := a.queryRange()
	before := from / a.tileQueries()
	tiles := Groups(to, a.tileQueries()) - before
	run(t, &t.dense, a.Batch*a.Heads*tiles, denseJob{*a, out, lse, t.keys.valid(a, 0), before, tiles})
}

type denseJob struct {
	Operands
	out, lse []float32
	keys     [][]int32 // by batch row
	before   int       // tiles of a head before the query range
	tiles    int       // tiles of a head with queries of the range
}

func (j *denseJob) run(w *scratch, task int) {
	queries := j.tileQueries()
	index, first := task/j.tiles, (j.before+task%j.tiles)*queries
	t := j.newTile(index, first, min(first+queries, j.Queries()), j.keys[index/j.Heads])
	t.out = j.headOut(j.out, index)
	if t.last < j.Queries() {
		t.next = t.keys[:min(t.blockKeys(), len(t.keys))]
	}
	w.attend(&t)
	w.store(j.headLSE(j.lse, index), &t)
}

// headOut is the part of an output [B, H, M, D] that belongs to one (batch,
// head) pair.
func (a *Operands) headOut(out []float32, index int) []float32 {
	size := a.Queries() * a.HeadDim
	return out[index*size:][:size]
}

// headLSE is the part of lse [B, H, M] that belongs to one (batch, head) pair.
func (a *Operands) headLSE(lse []float32, index int) []float32 {
	if lse == nil {
		return nil
	}
	return lse[index*a.Queries():][:a.Queries()]
}
