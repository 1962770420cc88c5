package pulsecol_test

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// cacheReference is one attention layer with a cache as docs/cache.md describes it, in
// float64 and plain loops, for columns and blocks of keys and patterns fixed by position.
type cacheReference struct {
	cfg pulsecol.Config
	kernel.Shape
	valid []float32 // [B, N]; nil without padding

	k, v  []float64      // [B, Hkv, N, D]
	table map[[3]int]set // by batch row, head and group of all rows; nil before a refresh
	block map[[3]int]set // by batch row, head and group of active rows; nil before they are selected

	filled, pending bool // the cache has all keys; a refresh has fallen due

	magnitude float64 // of scores: the largest sum of |q_d k_d| / sqrt(D) so far
}

// next returns what a step has to do: step i of a block, whose index counts from 0 as the
// step's number from 1 over the generation. previous is the first row of the block before.
// selects says that the columns of the block are selected for active rows.
func (c *cacheReference) next(b pulsecol.Block, index, i, previous, number, total int, dense bool) (p pulsecol.Pass, selects bool) {
	end := b.End
	if c.cfg.Cache == pulsecol.PrefixCache {
		end = c.Len
	}
	first := i == 0
	switch every := c.cfg.PrefillEvery; {
	case !c.filled, first && index == 0, first && every > 0 && index%every == 0:
		p.Kind, p.Rows = pulsecol.Prefill, c.Len
	case first:
		p.Kind, p.First, p.Rows = pulsecol.Commit, previous, end-previous
	default:
		p.Kind, p.First, p.Rows = pulsecol.BlockStep, b.First, end-b.First
	}
	c.filled = true
	if _, static := c.cfg.Pattern.(pulsecol.Streaming); static {
		if !dense {
			p.Mode = pulsecol.Reuse
		}
		return p, false
	}
	if c.cfg.Sparsity == 0 {
		return p, false
	}
	if first {
		c.block = nil
	}
	scheduled := c.cfg.Schedule.Mode(number, total)
	c.pending = c.pending || scheduled == pulsecol.Refresh
	switch {
	case dense || scheduled == pulsecol.Dense:
		return p, false
	case p.Kind == pulsecol.Prefill && (c.pending || c.table == nil):
		p.Mode, c.pending = pulsecol.Refresh, false
		return p, true
	case p.Kind == pulsecol.Prefill:
		p.Mode = pulsecol.Reuse
		return p, true
	case p.Kind == pulsecol.Commit || c.block == nil:
		return p, true
	}
	p.Mode = pulsecol.Reuse
	return p, false
}

// set are the keys that a group keeps.
type set map[int]bool

// step computes the rows of a pass from their queries, keys and values, [B, H, rows, D].
func (c *cacheReference) step(p pulsecol.Pass, b pulsecol.Block, selects bool, q, k, v []float32) []float64 {
	for head := range c.Batch * c.KVHeads {
		for i := range p.Rows * c.HeadDim {
			to := (head*c.Len+p.First)*c.HeadDim + i
			c.k[to], c.v[to] = float64(k[head*p.Rows*c.HeadDim+i]), float64(v[head*p.Rows*c.HeadDim+i])
		}
	}
	to := b.End // active rows are [b.First, to)
	if c.cfg.Cache == pulsecol.PrefixCache {
		to = c.Len
	}
	group := c.cfg.GroupSize
	if p.Mode == pulsecol.Refresh {
		c.table = c.selectKeys(q, p, 0, c.Len)
	}
	if selects {
		c.block = c.selectKeys(q, p, b.First, to)
		for _, keys := range c.block {
			for j := b.First; j < b.End; j++ {
				keys[j] = true
			}
		}
	}
	y := make([]float64, len(q))
	for batch := range c.Batch {
		for h := range c.Heads {
			for i := range p.Rows {
				at := p.First + i
				see := func(j int) bool { return true }
				active := at >= b.First && at < to
				switch pattern := c.cfg.Pattern.(type) {
				case pulsecol.Streaming:
					if p.Mode == pulsecol.Reuse {
						sinks := int(math.Ceil(pattern.SinkFraction * float64(c.Len)))
						see = func(j int) bool { return max(at-j, j-at) <= pattern.Width/2 || j < sinks }
					}
				default:
					switch {
					case p.Mode != pulsecol.Reuse:
					case p.Kind == pulsecol.BlockStep:
						keys := c.block[[3]int{batch, h, (at - b.First) / group}]
						see = func(j int) bool { return keys[j] }
					case !active:
						keys := c.table[[3]int{batch, h, at / group}]
						see = func(j int) bool { return keys[j] }
					}
				}
				row := ((batch*c.Heads+h)*p.Rows + i) * c.HeadDim
				weights := c.weights(q[row:][:c.HeadDim], batch, h, see)
				for j, w := range weights {
					for d := range c.HeadDim {
						y[row+d] += w * c.v[c.at(batch, h, j)+d]
					}
				}
			}
		}
	}
	return y
}

// tolerance is how far an output in float32 may be off. A score of D products, which are
// rounded and added up, has an error of at most (D+2)·tol.ULP·magnitude, and a weight that of
// its exponent and its normalization: up to twice that relative to itself.
func (c *cacheReference) tolerance() float64 {
	largest := 0.0
	for _, x := range c.v {
		largest = max(largest, math.Abs(x))
	}
	return (2*float64(c.HeadDim+2)*c.magnitude + 16) * tol.ULP * largest
}

// at is where key j of query head h begins.
func (c *cacheReference) at(batch, h, j int) int {
	return ((batch*c.KVHeads+h/(c.Heads/c.KVHeads))*c.Len + j) * c.HeadDim
}

// weights are the attention probabilities of a query over the keys that it sees.
func (c *cacheReference) weights(q []float32, batch, h int, see func(j int) bool) []float64 {
	w, sum, largest := make([]float64, c.Len), 0.0, math.Inf(-1)
	for j := range w {
		w[j] = math.Inf(-1)
		if see(j) && (c.valid == nil || c.valid[batch*c.Len+j] != 0) {
			w[j] = 0
			var magnitude float64
			for d, x := range q {
				product := float64(x) * c.k[c.at(batch, h, j)+d] / math.Sqrt(float64(c.HeadDim))
				w[j] += product
				magnitude += math.Abs(product)
			}
			c.magnitude = max(c.magnitude, magnitude)
			largest = max(largest, w[j])
		}
	}
	for j := range w {
		w[j] = math.Exp(w[j] - largest)
		sum += w[j]
	}
	for j := range w {
		w[j] /= sum
	}
	return w
}

// selectKeys returns the keys with the highest mean weight of each group of the rows
// [from, to), a pass's own.
func (c *cacheReference) selectKeys(q []float32, p pulsecol.Pass, from, to int) map[[3]int]set {
	selected := map[[3]int]set{}
	for batch := range c.Batch {
		for h := range c.Heads {
			for first := from; first < to; first += c.cfg.GroupSize {
				mean := make([]float64, c.Len)
				for i := first; i < min(first+c.cfg.GroupSize, to); i++ {
					if c.valid != nil && c.valid[batch*c.Len+i] == 0 {
						continue
					}
					row := ((batch*c.Heads+h)*p.Rows + i - p.First) * c.HeadDim
					for j, w := range c.weights(q[row:][:c.HeadDim], batch, h, func(int) bool { return true }) {
						mean[j] += w
					}
				}
				selected[[3]int{batch, h, (first - from) / c.cfg.GroupSize}] = c.top(mean, batch)
			}
		}
	}
	return selected
}

// top returns the keys of the units, single keys or blocks of keys, with the highest sums.
func (c *cacheReference) top(mean []float64, batch int) set {
	size := 1
	if p, ok := c.cfg.Pattern.(pulsecol.Blocks); ok {
		size = p.Size
	}
	type unit struct {
		first int
		sum   float64
	}
	var units []unit
	for first := 0; first < c.Len; first += size {
		u, real := unit{first: first}, false
		for j := first; j < min(first+size, c.Len); j++ {
			if c.valid == nil || c.valid[batch*c.Len+j] != 0 {
				u.sum += mean[j]
				real = true
			}
		}
		if real {
			units = append(units, u)
		}
	}
	count := len(units)
	if size > 1 {
		count = (c.Len + size - 1) / size
	}
	keep := max(1, int(math.Floor((1-c.cfg.Sparsity)*float64(count)+1e-9)))
	slices.SortStableFunc(units, func(a, b unit) int { return cmp.Compare(b.sum, a.sum) })
	keys := set{}
	for _, u := range units[:min(keep, len(units))] {
		for j := u.first; j < min(u.first+size, c.Len); j++ {
			keys[j] = true
		}
	}
	return keys
}

// checkBlock compares the columns of the active block with the reference's: those that a
// controller gives, and those that were observed. Patterns that are fixed by position have
// none.
func (c *cacheReference) checkBlock(t *testing.T, ctl *pulsecol.Controller, b pulsecol.Block, seen *pulsecol.BlockColumns) {
	t.Helper()
	got, err := ctl.BlockColumns(0)
	if _, static := c.cfg.Pattern.(pulsecol.Streaming); static {
		if !errors.Is(err, pulsecol.ErrStale) || seen != nil {
			t.Errorf("columns of a block are %+v, %v, and observed %+v; want none", got, err, seen)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	end := b.End
	if c.cfg.Cache == pulsecol.PrefixCache {
		end = c.Len
	}
	if got.Batch != c.Batch || got.Heads != c.Heads || got.Len != c.Len || got.First != b.First || got.Rows != end-b.First || got.Group != c.cfg.GroupSize {
		t.Fatalf("columns of %+v, want %+v in groups of %d of the rows [%d, %d)", got, c.Shape, c.cfg.GroupSize, b.First, end)
	}
	if !reflect.DeepEqual(got, seen) {
		t.Errorf("observed %+v, want %+v", seen, got)
	}
	if groups := c.Batch * c.Heads * got.Groups(); groups != len(c.block) {
		t.Errorf("%d groups, want %d", groups, len(c.block))
	}
	for at, want := range c.block {
		if keys := got.Keys(at[0], at[1], at[2]); !slices.Equal(keys, slices.Sorted(maps.Keys(want))) {
			t.Errorf("batch row %d, head %d, group %d keeps %v, want %v", at[0], at[1], at[2], keys, slices.Sorted(maps.Keys(want)))
		}
	}
}
