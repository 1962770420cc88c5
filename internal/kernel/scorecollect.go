package kernel

import "fmt"

// DenseScores is a refresh step in one visit of the keys: the dense attention
// out [B, H, M, D] and, for every group of consecutive queries, the mean
// attention that each key receives (PulseCol's ScoreCollect),
//
//	scores[b, h, u, j] = mean of P[i, j] over the queries i of group u
//
// with scores [B, H, Groups(a.To-a.From, group), N]. Groups count from a.From. The mean is
// over the queries that are not padding. Padded keys score 0, and so do all keys in a group
// of padding.
func (t *Team) DenseScores(out, scores []float32, a *Operands, group int) {
	a.check("DenseScores")
	checkLen("DenseScores", "out", len(out), len(a.Q))
	t.collectScores("DenseScores", out, scores, a.Len, a, group, 0)
}

// Scores is DenseScores without the output and over the keys [lo, N) only: the
// softmax is normalised over those keys, and scores is
// [B, H, Groups(a.To-a.From, group), N-lo], with rows at a distance of ld elements.
func (t *Team) Scores(scores []float32, ld int, a *Operands, group, lo int) {
	a.check("Scores")
	if lo < 0 || lo > a.Len {
		panic(fmt.Sprintf("kernel: Scores: lo is %d, must be in [0, %d]", lo, a.Len))
	}
	if ld < a.Len-lo {
		panic(fmt.Sprintf("kernel: Scores: ld is %d, must be at least %d", ld, a.Len-lo))
	}
	t.collectScores("Scores", nil, scores, ld, a, group, lo)
}

func (t *Team) collectScores(fn string, out, scores []float32, ld int, a *Operands, group, lo int) {
	if group <= 0 {
		panic(fmt.Sprintf("kernel: %s: group is %d, must be positive", fn, group))
	}
	from, to := a.queryRange()
	groups := Groups(to-from, group)
	checkLen(fn, "scores", len(scores), a.Batch*a.Heads*groups*ld-(ld-(a.Len-lo)))

	group = min(group, to-from)
	j := scoresJob{
		Operands: *a, out: out, scores: scores, ld: ld, keys: t.keys.valid(a, lo), lo: lo,
		from: from, to: to, group: group, groups: groups, perTask: max(1, a.scoreQueries()/group),
	}
	run(t, &t.scores, a.Batch*a.Heads*Groups(groups, j.perTask), j)
}

// scoreQueries is tileQueries where the exponentials of all keys are kept.
func (a *Operands) scoreQueries() int { return min(a.tileQueries(), packedPanels*lanes) }

type scoresJob struct {
	Operands
	out, scores []float32 // out may be nil
	ld          int       // from one row of scores to the next
	keys        [][]int32 // by batch row
	lo          int       // the first of them

	from, to int // queries
	group    int // queries of a group
	groups   int // of a head

	// perTask groups make a task: whole ones, because the queries of a group add
	// to the same row of scores, as many as fit a tile, or one in several tiles.
	perTask int
}

func (j *scoresJob) run(w *scratch, task int) {
	tasks, width := Groups(j.groups, j.perTask), j.Len-j.lo
	index, u := task/tasks, task%tasks*j.perTask
	scores := func(u int) []float32 { return j.scores[(index*j.groups+u)*j.ld:][:width] }
	last := min(u+j.perTask, j.groups)
	for u := u; u < last; u++ {
		clear(scores(u))
	}
	end := min(j.from+(u+j.perTask)*j.group, j.to)
	for first := j.from + u*j.group; first < end; first += j.scoreQueries() {
		t := j.newTile(index, first, min(first+j.scoreQueries(), end), j.keys[index/j.Heads])
		t.keep = true
		if j.out == nil {
			t.v = nil
		} else {
			t.out = j.headOut(j.out, index)
		}
		w.attend(&t)
		if j.out != nil {
			w.store(nil, &t)
		}
		for u := (first - j.from) / j.group; j.from+u*j.group < t.last; u++ {
			if m := j.groupMean(index/j.Heads, u); m.count > 0 {
				w.collect(scores(u), j.lo, &t, m)
			}
		}
	}
}

// mean is the set of queries of a mean over a group: those in [first, last) that are
// not padding, count of them.
type mean struct {
	operands           *Operands
	batch              int
	first, last, count int
}

func (j *scoresJob) groupMean(batch, u int) mean {
	first := j.from + u*j.group
	m := mean{operands: &j.Operands, batch: batch, first: first, last: min(first+j.group, j.to)}
	for i := m.first; i < m.last; i++ {
		if m.takes(i) {
			m.count++
		}
	}
	return m
}

func (m *mean) takes(query int) bool {
	return query >= m.first && query < m.last && m.operands.takesPart(m.batch, query)
}

// collect adds the share that the queries of a tile have in a mean to scores,
// the row of the mean's group; scores[0] is key lo. The tile has been attended
// with keep.
func (w *scratch) collect(scores []float32, lo int, t *tile, m mean) {
	keys := len(t.keys)
	keysPad, blocks := roundUp(keys, rowUnit), t.blocks()
	w.column = sized(&w.column, t.blockKeys())
	for p := range t.panels() {
		panel := &w.panels[p]
		first, count := t.queries(p)
		if first >= m.last || first+count <= m.first {
			continue
		}
		var weights [lanes]float32
		for i := range count {
			if m.takes(first + i) {
				weights[i] = panel.normalizer(i, panel.maximum()[i]) / float32(m.count)
			}
		}
		dot := active.dotRows
		for _, sum := range panel.sum() {
			if sum != sum {
				// This lane has NaN for probabilities. A weight of 0 must keep
				// them from groups that it does not belong to, which a
				// multiplication does not.
				dot = dotRowsPortable
			}
		}
		for b := range blocks {
			w.factors = weights
			for i, seen := range w.maxima[(p*blocks+b)*lanes:][:lanes] {
				if maximum := panel.maximum()[i]; seen != maximum && weights[i] != 0 {
					w.factors[i] *= exp2(seen - maximum)
				}
			}
			start := b * t.blockLen()
			rows := len(t.block(start))
			dot(w.column, w.kept[(p*keysPad+start)*lanes:], roundUp(rows, rowUnit), w.factors[:])
			for j, x := range w.column[:rows] {
				scores[int(t.keys[start+j])-lo] += x
			}
		}
	}
}

// normalizer is the factor that turns an exponential of lane i, computed when
// the running maximum was seen, into a probability.
func (p *panel) normalizer(i int, seen float32) float32 {
	maximum, sum := p.maximum()[i], p.sum()[i]
	if sum == 0 {
		return 0 // no key at all
	}
	if seen == maximum {
		return 1 / sum
	}
	return exp2(seen-maximum) / sum
}
