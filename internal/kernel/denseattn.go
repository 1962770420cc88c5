package kernel

// Dense computes out = softmax(Scale q k^T) v over all valid keys: out
// [B, H, M, D], and lse [B, H, M] = log of the sum of exp(scores) unless lse is
// nil. It computes the queries [a.From, a.To).
func (t *Team) Dense(out, lse []float32, a *Operands) {
	a.check("Dense")
	checkLen("Dense", "out", len(out), len(a.Q))
	checkOptional("Dense", "lse", lse, a.allQueries())

	from, to := a.queryRange()
	tiles := Groups(to-from, a.tileQueries())
	run(t, &t.dense, a.Batch*a.Heads*tiles, denseJob{*a, out, lse, t.keys.valid(a, 0), from, to, tiles})
}

type denseJob struct {
	Operands
	out, lse []float32
	keys     [][]int32 // by batch row
	from, to int       // queries
	tiles    int       // of a head
}

func (j *denseJob) run(w *scratch, task int) {
	queries := j.tileQueries()
	index, first := task/j.tiles, j.from+task%j.tiles*queries
	t := j.newTile(index, first, min(first+queries, j.to), j.keys[index/j.Heads])
	t.out = j.headOut(j.out, index)
	if t.last < j.to {
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
