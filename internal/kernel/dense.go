package kernel

// Dense computes out = softmax(Scale q k^T) v over all valid keys: out
// [B, H, N, D], and lse [B, H, N] = log of the sum of exp(scores) unless lse is
// nil.
func Dense(out, lse []float32, a *Operands) {
	a.check("Dense")
	checkLen("Dense", "out", len(out), len(a.Q))
	checkOptional("Dense", "lse", lse, a.queries())

	keys := a.validKeys(0)
	defer keyListsPool.Put(keys)
	tiles := Groups(a.Len, tileQueries)
	parallel(a.Batch*a.Heads*tiles, func(w *scratch, task int) {
		index, first := task/tiles, task%tiles*tileQueries
		t := a.newTile(index, first, min(first+tileQueries, a.Len), keys.lists[index/a.Heads])
		t.out = a.headOut(out, index)
		if t.last < a.Len {
			t.next = t.keys[:min(blockKeys, len(t.keys))]
		}
		w.attend(&t)
		w.store(a.headLSE(lse, index), &t)
	})
}

// headOut is the part of an output [B, H, N, D] that belongs to one (batch,
// head) pair.
func (a *Operands) headOut(out []float32, index int) []float32 {
	size := a.Len * a.HeadDim
	return out[index*size:][:size]
}

// headLSE is the part of lse [B, H, N] that belongs to one (batch, head) pair.
func (a *Operands) headLSE(lse []float32, index int) []float32 {
	if lse == nil {
		return nil
	}
	return lse[index*a.Len:][:a.Len]
}
