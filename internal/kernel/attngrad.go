package kernel

import "fmt"

// AttentionGrad is the backward pass of Dense (table nil) or ColumnSparse: from
// dout [B, H, N, D], the gradient of a scalar with respect to the output, it
// computes the gradients with respect to q, k and v,
//
//	dv = P^T dout
//	dP = dout v^T
//	dS = P * (dP - rowsum(P * dP))
//	dq = Scale dS k
//	dk = Scale dS^T q
//
// where P are the attention probabilities, and the query heads of one key/value
// head add up in dk and dv. Each of dq, dk and dv may be nil. A table is a
// constant: the selection of columns has no gradient. Gradients are computed in float32 for
// any precision of the operands.
func (t *Team) AttentionGrad(dq, dk, dv, dout []float32, a *Operands, table *Table) {
	a.check("AttentionGrad")
	checkOptional("AttentionGrad", "dq", dq, len(a.Q))
	checkOptional("AttentionGrad", "dk", dk, len(a.K))
	checkOptional("AttentionGrad", "dv", dv, len(a.V))
	if a.Queries() != a.Len {
		panic(fmt.Sprintf("kernel: AttentionGrad: %d queries of a sequence of %d, want all", a.Queries(), a.Len))
	}
	checkLen("AttentionGrad", "dout", len(dout), len(a.Q))
	j := gradJob{Operands: *a, dq: dq, dk: dk, dv: dv, dout: dout, group: a.Len}
	if table == nil {
		j.keys = t.keys.valid(a, 0)
	} else {
		table.check("AttentionGrad", a.Shape)
		j.table, j.sparse, j.group = *table, true, min(table.Group, a.Len)
	}
	run(t, &t.grad, a.Batch*a.KVHeads, j)
}

// gradJob has one key/value head for a task, because its query heads add to the
// same dk and dv.
type gradJob struct {
	Operands
	dq, dk, dv, dout []float32
	sparse           bool
	table            Table     // if sparse
	keys             [][]int32 // otherwise, by batch row
	group            int       // queries with the same keys
}

func (j *gradJob) run(w *scratch, kv int) {
	size := j.Len * j.HeadDim
	var g gradient
	if j.dk != nil {
		g.dk = j.dk[kv*size:][:size]
		clear(g.dk)
	}
	if j.dv != nil {
		g.dv = j.dv[kv*size:][:size]
		clear(g.dv)
	}
	perHead := j.Heads / j.KVHeads
	for index := kv * perHead; index < (kv+1)*perHead; index++ {
		g.dout = j.headOut(j.dout, index)
		if j.dq != nil {
			g.dq = j.headOut(j.dq, index)
		}
		for u := range Groups(j.Len, j.group) {
			var keys []int32
			if j.sparse {
				keys = tableKeys(&w.index[0], &j.Operands, &j.table, index, u)
			} else {
				keys = j.keys[index/j.Heads]
			}
			end := min((u+1)*j.group, j.Len)
			for first := u * j.group; first < end && !w.team.Stopped(); first += lanes {
				tile := j.newTile(index, first, min(first+lanes, end), keys)
				tile.precision = Float32
				if j.sparse {
					tile.reach, tile.sinks = min(j.table.Reach, j.Len), j.table.Sinks
				}
				w.backward(&tile, &g)
			}
		}
	}
}

// gradient has the operands of the backward pass of one query head, all [N, D]. The pass adds
// to dk and dv.
type gradient struct {
	dout       []float32
	dq, dk, dv []float32
}

// backward is the backward pass of a tile of one panel.
func (w *scratch) backward(t *tile, g *gradient) {
	keys := len(t.keys)
	first, count := t.queries(0)
	if keys == 0 {
		if g.dq != nil {
			clear(g.dq[first*t.dim:][:count*t.dim])
		}
		return
	}
	v := t.v
	t.v, t.keep = nil, true // the probabilities are needed, not the output
	w.attend(t)

	panel := &w.panels[0]
	dimPad, dimLanes := roundUp(t.dim, rowUnit), roundUp(t.dim, lanes)
	// The panel's output is not in use, so it holds dout and then dq.
	w.packLanes(panel.output, g.dout[first*t.dim:], count, t.dim, 1)
	w.grad = sized(&w.grad, roundUp(keys, rowUnit)*lanes)
	var dots [lanes]float32 // rowsum(P * dP)
	for b := range t.blocks() {
		start := b * t.blockLen()
		list := t.block(start)
		rows := len(list)
		w.factors = [lanes]float32{}
		for i := range count {
			w.factors[i] = panel.normalizer(i, w.maxima[b*lanes+i])
		}
		p, dp := w.kept[start*lanes:], w.grad[start*lanes:]
		active.scaleRows(p, rows, w.factors[:])
		active.mulRows(units(list), t.dim, v, t.dim, panel.output, dp, lanes, false, nil)
		for j := range rows {
			pRow, dpRow := p[j*lanes:][:lanes], dp[j*lanes:][:lanes]
			for i := range dots {
				dots[i] += pRow[i] * dpRow[i]
			}
		}
	}

	// q and dout as right-hand matrices, [D padded / lanes, lanes, lanes].
	w.weights = sized(&w.weights, 2*lanes*dimLanes)
	q, dout := w.weights[:lanes*dimLanes], w.weights[lanes*dimLanes:]
	clear(w.weights)
	for i := range count {
		for d := 0; d < t.dim; d += lanes {
			width := min(lanes, t.dim-d)
			copy(q[d*lanes+i*lanes:], t.q[(first+i)*t.dim+d:][:width])
			copy(dout[d*lanes+i*lanes:], g.dout[(first+i)*t.dim+d:][:width])
		}
	}
	var keep *[lanes]float32 // of dq; nil for the first block
	for b := range t.blocks() {
		start := b * t.blockLen()
		list := t.block(start)
		rows := len(list)
		p, ds := w.kept[start*lanes:], w.grad[start*lanes:]
		for j := range rows {
			pRow, dsRow := p[j*lanes:][:lanes], ds[j*lanes:][:lanes]
			for i := range dsRow {
				dsRow[i] = t.scale * pRow[i] * (dsRow[i] - dots[i])
			}
		}
		if g.dq != nil {
			k, ldk, rowsOfK := t.k, t.dim, list
			if t.dim != dimPad {
				k, ldk = padRows(&w.v, t.k, t.dim, list)
				rowsOfK = identity[:rows]
			}
			active.mulCols(dimPad, rowsOfK, k, ldk, ds, panel.output, lanes, keep, nil)
			keep = &ones
		}
		if g.dk != nil {
			w.addRows(g.dk, t.dim, list, ds, q, count)
		}
		if g.dv != nil {
			w.addRows(g.dv, t.dim, list, p, dout, count)
		}
	}
	if g.dq != nil {
		transpose(g.dq[first*t.dim:], t.dim, panel.output, lanes, t.dim, count, ones[:])
	}
}

// addRows adds c x to the listed rows of dst [N, dim]: c is [len(list), lanes], x
// [dim padded / lanes, lanes, lanes], of whose second index count values exist.
func (w *scratch) addRows(dst []float32, dim int, list []int32, c, x []float32, count int) {
	w.product = sized(&w.product, blockKeys*lanes)
	rows := identity[:roundUp(len(list), rowUnit)]
	for d := 0; d < dim; d += lanes {
		active.mulRows(rows, count, c, lanes, x[d*lanes:], w.product, lanes, false, nil)
		width := min(lanes, dim-d)
		for j, key := range list {
			row := dst[int(key)*dim+d:][:width]
			for i, y := range w.product[j*lanes:][:width] {
				row[i] += y
			}
		}
	}
}
