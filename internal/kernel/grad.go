package kernel

// AttentionGrad is the backward pass of Dense (t nil) or ColumnSparse: from
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
// constant: nothing flows into the selection of columns.
func AttentionGrad(dq, dk, dv, dout []float32, a *Operands, t *Table) {
	a.check("AttentionGrad")
	checkOptional("AttentionGrad", "dq", dq, len(a.Q))
	checkOptional("AttentionGrad", "dk", dk, len(a.K))
	checkOptional("AttentionGrad", "dv", dv, len(a.V))
	checkLen("AttentionGrad", "dout", len(dout), len(a.Q))
	dense := a.validKeys(0)
	group := a.Len
	if t != nil {
		t.check("AttentionGrad", a.Shape)
		group = min(t.Group, a.Len)
	}

	// One task has one key/value head, because its query heads add to the same
	// dk and dv.
	perHead := a.Heads / a.KVHeads
	size := a.Len * a.HeadDim
	parallel(a.Batch*a.KVHeads, func(w *scratch, kv int) {
		var g gradient
		if dk != nil {
			g.dk = dk[kv*size:][:size]
			clear(g.dk)
		}
		if dv != nil {
			g.dv = dv[kv*size:][:size]
			clear(g.dv)
		}
		for index := kv * perHead; index < (kv+1)*perHead; index++ {
			g.dout = a.headOut(dout, index)
			if dq != nil {
				g.dq = a.headOut(dq, index)
			}
			for u := range Groups(a.Len, group) {
				keys := dense[index/a.Heads]
				if t != nil {
					keys = w.tableKeys(a, t, index, u)
				}
				end := min((u+1)*group, a.Len)
				for first := u * group; first < end; first += lanes {
					tile := a.newTile(index, first, min(first+lanes, end), keys)
					if t != nil {
						tile.reach, tile.sinks = min(t.Reach, a.Len), t.Sinks
					}
					w.backward(&tile, &g)
				}
			}
		}
	})
}

// gradient is what the backward pass of one query head reads and writes, all
// [N, D]. It adds to dk and dv.
type gradient struct {
	dout       []float32
	dq, dk, dv []float32
}

// backward is the backward pass of a tile of one panel.
func (w *scratch) backward(t *tile, g *gradient) {
	keys := t.keys.len()
	first, count := t.queries(0)
	if keys == 0 {
		if g.dq != nil {
			clear(g.dq[first*t.dim:][:count*t.dim])
		}
		return
	}
	v := t.v
	t.v, t.keep = nil, true // the probabilities are wanted, not the output
	w.attend(t)

	panel := &w.panels[0]
	dimPad, dimLanes := roundUp(t.dim, rowUnit), roundUp(t.dim, lanes)
	// The panel's output is not in use, so it holds dout and then dq.
	packLanes(panel.output, g.dout[first*t.dim:], count, t.dim, 1)
	w.grad = sized(&w.grad, roundUp(keys, rowUnit)*lanes)
	var dots [lanes]float32 // rowsum(P * dP)
	for b := range t.blocks() {
		start := b * blockKeys
		rows := min(blockKeys, keys-start)
		w.factors = [lanes]float32{}
		for i := range count {
			w.factors[i] = panel.normalizer(i, w.maxima[b*lanes+i])
		}
		p, dp := w.kept[start*lanes:], w.grad[start*lanes:]
		active.scaleRows(p, rows, w.factors[:])
		rowsV, ldv := gather(&w.v, v, t.dim, &t.keys, start, rows)
		active.mulPanel(roundUp(rows, rowUnit), t.dim, rowsV, ldv, 1, panel.output, lanes, dp, lanes, false)
		for j := range rows {
			pRow, dpRow := p[j*lanes:][:lanes], dp[j*lanes:][:lanes]
			for i := range dots {
				dots[i] += pRow[i] * dpRow[i]
			}
		}
	}

	// q and dout as right-hand matrices, [count, D padded].
	w.weights = sized(&w.weights, 2*lanes*dimLanes)
	q, dout := w.weights[:lanes*dimLanes], w.weights[lanes*dimLanes:]
	clear(w.weights)
	for i := range count {
		copy(q[i*dimLanes:], t.q[(first+i)*t.dim:][:t.dim])
		copy(dout[i*dimLanes:], g.dout[(first+i)*t.dim:][:t.dim])
	}
	for b := range t.blocks() {
		start := b * blockKeys
		rows := min(blockKeys, keys-start)
		p, ds := w.kept[start*lanes:], w.grad[start*lanes:]
		for j := range rows {
			pRow, dsRow := p[j*lanes:][:lanes], ds[j*lanes:][:lanes]
			for i := range dsRow {
				dsRow[i] = t.scale * pRow[i] * (dsRow[i] - dots[i])
			}
		}
		if g.dq != nil {
			rowsK, ldk := gather(&w.k, t.k, t.dim, &t.keys, start, rows)
			active.mulPanel(dimPad, rows, rowsK, 1, ldk, ds, lanes, panel.output, lanes, start > 0)
		}
		if g.dk != nil {
			w.addRows(g.dk, t, start, rows, ds, q, count)
		}
		if g.dv != nil {
			w.addRows(g.dv, t, start, rows, p, dout, count)
		}
	}
	if g.dq != nil {
		transpose(g.dq[first*t.dim:], t.dim, panel.output, lanes, t.dim, count, 1)
	}
}

// addRows adds c x to the rows of dst [N, dim] that belong to rows keys from the
// start-th on: c is [rows, lanes], x [count, dim padded to lanes].
func (w *scratch) addRows(dst []float32, t *tile, start, rows int, c, x []float32, count int) {
	rowsPad, dimLanes := roundUp(rows, rowUnit), roundUp(t.dim, lanes)
	w.product = sized(&w.product, blockKeys*lanes)
	for d := 0; d < t.dim; d += lanes {
		active.mulPanel(rowsPad, count, c, lanes, 1, x[d:], dimLanes, w.product, lanes, false)
		width := min(lanes, t.dim-d)
		for j := range rows {
			row := dst[t.keys.at(start+j)*t.dim+d:][:width]
			for i, y := range w.product[j*lanes:][:width] {
				row[i] += y
			}
		}
	}
}
