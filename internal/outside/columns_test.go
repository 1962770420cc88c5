package outside_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
)

// columns holds a layer's column table after a step of the given mode to the reference.
func (g *run) columns(t *testing.T, layer int, a *operands, mode pulsecol.Mode) {
	t.Helper()
	got, err := g.ctl.Columns(layer)
	before := g.tables[layer]
	switch {
	case g.course.fixed && mode == pulsecol.Dense && errors.Is(err, pulsecol.ErrStale):
		return // made by the first reuse
	case mode != pulsecol.Refresh && before == nil && !g.course.fixed:
		if !errors.Is(err, pulsecol.ErrStale) {
			t.Errorf("columns before the first refresh: %v", err)
		}
		return
	case err != nil:
		t.Errorf("columns: %v", err)
		return
	}
	g.tables[layer] = got
	if mode != pulsecol.Refresh {
		if before != nil && !slices.Equal(before.Bits, got.Bits) {
			t.Errorf("layer %d: a %v step has changed the columns", layer, mode)
		}
		if before == nil {
			g.checkFixed(t, layer, got)
		}
		return
	}
	g.counts.tables++
	g.replaced[layer], g.old[layer] = before != nil, before
	if got.Batch != a.batch || got.Heads != a.heads || got.Len != a.n {
		t.Errorf("layer %d: a table of %d x %d x %d", layer, got.Batch, got.Heads, got.Len)
		return
	}
	for b := range a.batch {
		var candidates []int
		for j := range a.n {
			if a.real(b, j) {
				candidates = append(candidates, j)
			}
		}
		if err := g.checkSelected(a, got, b, candidates); err != nil {
			t.Errorf("layer %d, batch row %d: %v", layer, b, err)
			return
		}
	}
}

// checkSelected returns an error unless the groups of a batch row keep the keys that the pattern
// says.
func (g *run) checkSelected(a *operands, got *pulsecol.ColumnTable, b int, candidates []int) error {
	sparsity := g.ctl.Config().Sparsity
	var first, scale = 0, 0.0
	var sd sparseD
	if p, ok := g.pattern.Pattern.(pulsecol.SparseD); ok {
		sd = sparseD{sparsity, a.n, p.BlockSize, p.Generation}
		first, scale = sd.first(), p.ScoreScale
	}
	row := *a // alone
	row.batch = 1
	take := func(x array, heads int) array { return x.window(b*heads*a.n*a.dim, heads*a.n*a.dim) }
	row.q, row.k, row.v = take(a.q, a.heads), take(a.k, a.kvHeads), take(a.v, a.kvHeads)
	if a.valid != nil {
		row.valid = a.valid[b*a.n : (b+1)*a.n]
	}
	scores := row.scores(got.Group, 0, scale)
	generated := row.scores(got.Group, first, scale)
	for h := range a.heads {
		for u := range got.Groups() {
			keys := got.Keys(b, h, u)
			s := scores.window((h*got.Groups()+u)*a.n, a.n)
			var err error
			switch p := g.pattern.Pattern.(type) {
			case pulsecol.Columns:
				err = isTopK(s, candidates, keep(sparsity, len(candidates)), keys)
			case pulsecol.Blocks:
				sums, blocks := blockSums(s, candidates, 0, p.Size)
				var selected []int
				if selected, err = blocksOf(keys, candidates, 0, p.Size); err == nil {
					err = isTopK(sums, blocks, keep(sparsity, (a.n+p.Size-1)/p.Size), selected)
				}
			case pulsecol.SparseD:
				err = sd.check(s, generated.window((h*got.Groups()+u)*a.n, a.n), candidates, keys)
			}
			if err == nil && slices.ContainsFunc(keys, func(j int) bool { return !slices.Contains(candidates, j) }) {
				err = errors.New("padding is kept")
			}
			if err != nil {
				return fmt.Errorf("head %d, group %d keeps %v: %w", h, u, keys, err)
			}
		}
	}
	return nil
}

// checkFixed holds the table of a pattern without refreshes to the reference: a group
// keeps what at least one of its queries sees.
func (g *run) checkFixed(t *testing.T, layer int, got *pulsecol.ColumnTable) {
	t.Helper()
	if p, ok := g.pattern.Pattern.(pulsecol.Fixed); ok {
		if want := p.Tables[layer%len(p.Tables)]; !slices.Equal(got.Bits, want.Bits) {
			t.Errorf("layer %d: a table other than the one given", layer)
		}
		return
	}
	see := g.sees(layer)
	for u := range got.Groups() {
		var want []int
		for j := range got.Len {
			for i := u * got.Group; i < min(got.Len, (u+1)*got.Group); i++ {
				if see(0, 0, i, j) {
					want = append(want, j)
					break
				}
			}
		}
		if keys := got.Keys(0, 0, u); !slices.Equal(keys, want) {
			t.Errorf("layer %d, group %d keeps %v, want %v", layer, u, keys, want)
		}
	}
}

// sees reports which keys a reuse step lets each query of a layer read.
func (g *run) sees(layer int) func(b, h, i, j int) bool {
	n := g.shape.n
	switch p := g.pattern.Pattern.(type) {
	case pulsecol.SlidingWindow:
		return func(_, _, i, j int) bool { return window(p.Width, 0, n, i, j) }
	case pulsecol.Streaming:
		return func(_, _, i, j int) bool { return window(p.Width, p.SinkFraction, n, i, j) }
	}
	table := g.tables[layer]
	kept := map[[4]int]bool{}
	for b := range table.Batch {
		for h := range table.Heads {
			for u := range table.Groups() {
				for _, j := range table.Keys(b, h, u) {
					kept[[4]int{b, h, u, j}] = true
				}
			}
		}
	}
	return func(b, h, i, j int) bool {
		return kept[[4]int{b % table.Batch, h % table.Heads, i / table.Group, j}]
	}
}

// measure takes the drift of a reuse step from the share that each layer keeps: the drop
// since the first reuse, mean over heads and layers, of each batch row and group.
func (g *run) measure(now []array) {
	if g.base == nil {
		g.base = now
	}
	groups := g.tables[0].Groups()
	g.drift = newArray(g.shape.batch * groups)
	for l, x := range now {
		for i := range x.v {
			at := i/(g.shape.heads*groups)*groups + i%groups
			g.drift.v[at] += (g.base[l].v[i] - x.v[i]) / float64(g.shape.heads*len(now))
			g.drift.e[at] += (g.base[l].e[i] + x.e[i] + 4*unit) / float64(g.shape.heads*len(now))
		}
	}
}

// checkDrift compares the drift of the most moved group.
func (g *run) checkDrift(t *testing.T) {
	t.Helper()
	low, high := 0.0, 0.0
	for i, v := range g.drift.v {
		low, high = max(low, v-g.drift.e[i]), max(high, v+g.drift.e[i])
	}
	if got := g.ctl.Drift(); got < low || got > high || math.IsNaN(got) {
		t.Errorf("drift %g, want %g to %g", got, low, high)
	}
}
