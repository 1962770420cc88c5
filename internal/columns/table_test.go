package columns_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

// TestTable compares the counts of a table with loops over queries and keys.
func TestTable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for _, c := range []struct{ heads, n, group, first, queries int }{
		{1, 1, 1, 0, 0}, {2, 31, 8, 0, 0}, {3, 32, 32, 0, 0}, {1, 33, 16, 0, 0}, {2, 100, 7, 0, 0}, {2, 65, 1 << 40, 0, 0},
		{2, 100, 7, 30, 17}, {1, 33, 16, 1, 32}, {1, 33, 16, 32, 1}, {2, 40, 50, 3, 9},
	} {
		rows := c.n
		if c.queries > 0 {
			rows = c.queries
		}
		size := c.heads * kernel.Groups(rows, c.group) * kernel.Words(c.n)
		random := func() *columns.Table {
			x := &columns.Table{Heads: c.heads, Len: c.n, Group: c.group, Bits: make([]uint32, size), First: c.first, Queries: c.queries}
			for _, row := range x.Rows() {
				for j := range c.n {
					if r.IntN(3) == 0 {
						columns.Set(row, j)
					}
				}
			}
			return x
		}
		x, old := random(), random()
		if err := x.Check(); err != nil {
			t.Fatal(err)
		}
		pairs, added := 0, 0
		for head := range c.heads {
			for query := range rows {
				now, before := x.Row(head, query/c.group), old.Of(head, c.first+query)
				for j := range c.n {
					if columns.Has(now, j) {
						pairs++
						if !columns.Has(before, j) {
							added++
						}
					}
				}
			}
		}
		if got := x.Pairs(); got != pairs {
			t.Errorf("%+v: %d pairs, want %d", c, got, pairs)
		}
		if got := x.NewPairs(old); got != added {
			t.Errorf("%+v: %d new pairs, want %d", c, got, added)
		}
		if got, want := x.Density(), float64(pairs)/float64(c.heads*rows*c.n); math.Abs(got-want) > 1e-12 {
			t.Errorf("%+v: density %v, want %v", c, got, want)
		}
		if got, want := x.Churn(old), float64(added)/float64(max(1, pairs)); math.Abs(got-want) > 1e-12 {
			t.Errorf("%+v: churn %v, want %v", c, got, want)
		}
		empty := &columns.Table{Heads: c.heads, Len: c.n, Group: c.group, Bits: make([]uint32, size), First: c.first, Queries: c.queries}
		if d, churn := empty.Density(), empty.Churn(x); d != 0 || churn != 0 || x.Churn(x) != 0 {
			t.Errorf("%+v: without keys density %v and churn %v, churn %v of a table to itself; want 0", c, d, churn, x.Churn(x))
		}
		beyond := *x
		if beyond.First, beyond.Queries = c.n-rows+1, rows; beyond.Check() == nil {
			t.Errorf("%+v: queries beyond the last token are no error", c)
		}
		x.Bits = append(x.Bits, 0)
		if x.Check() == nil {
			t.Errorf("%+v: a word more is no error", c)
		}
	}
}

// TestRow: keys are set, listed and cleared one by one.
func TestRow(t *testing.T) {
	row := make([]uint32, 3)
	for _, j := range []int{95, 0, 31, 32, 33} {
		columns.Set(row, j)
	}
	if got := slices.Collect(columns.Keys(row)); !slices.Equal(got, []int{0, 31, 32, 33, 95}) || columns.Count(row) != 5 {
		t.Errorf("keys %v, %d of them", got, columns.Count(row))
	}
	columns.Clear(row, 32)
	if columns.Has(row, 32) || !columns.Has(row, 33) {
		t.Errorf("keys %v after 32 is cleared", slices.Collect(columns.Keys(row)))
	}
}

// TestUnion compares Union with counts by hand, for given keys of each group, head by head.
func TestUnion(t *testing.T) {
	same := func(times int, keys ...int) (groups [][]int) { return slices.Repeat([][]int{keys}, times) }
	for _, c := range []struct {
		name            string
		heads, n, group int
		keys            [][]int // [heads * groups]
		want            float64 // NaN: none
	}{
		{"all the same", 1, 128, 32, same(4, 0, 31, 32, 127), 1},
		{"none shared", 1, 128, 32, [][]int{{0, 1}, {40, 41}, {80, 81}, {126, 127}}, 4},
		{"one of two shared", 1, 128, 32, [][]int{{0, 1}, {0, 2}, {0, 3}, {0, 4}}, 2.5},
		{"groups that keep more than others", 1, 128, 64, [][]int{{0, 1, 2}, {2}}, 1.5},
		{"a last block that is short", 1, 200, 64, [][]int{{0}, {1}, {2}, {2}}, 1.5}, // the last group has 8 queries
		{"a last block of fewer groups", 1, 130, 64, [][]int{{0}, {1}, {2}}, 2},      // does not count
		{"two heads", 2, 128, 64, [][]int{{5}, {5}, {5}, {6}}, 1.5},
		{"two groups of 48", 1, 144, 48, [][]int{{0}, {1}, {7}}, 2}, // the next block begins at 96
		{"a block without keys", 1, 256, 64, [][]int{{3}, {4}, {}, {}}, 2},
		{"no keys at all", 1, 128, 64, [][]int{{}, {}}, math.NaN()},
		{"one group", 1, 20, 32, [][]int{{0, 1}}, math.NaN()},
		{"one group in a block", 1, 256, 128, [][]int{{0}, {1}}, math.NaN()},
		{"one group for all", 1, 300, math.MaxInt, [][]int{{0}}, math.NaN()},
	} {
		table := &columns.Table{Heads: c.heads, Len: c.n, Group: c.group}
		for _, keys := range c.keys {
			table.Bits = append(table.Bits, ref.Bitmap(c.n, keys)...)
		}
		if err := table.Check(); err != nil {
			t.Fatal(err)
		}
		if got := table.Union(); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestUnionOfRandom: random tables with a known common share have the expected Union.
func TestUnionOfRandom(t *testing.T) {
	const n, keep = 4096, 819
	for _, group := range []int{32, 64} {
		for _, share := range []float64{0, 0.83} {
			table := &columns.Table{Heads: 1, Len: n, Group: group, Bits: columns.Random(n, group, keep, share)}
			common := math.Round(share * keep)
			missed := math.Pow(1-(keep-common)/(n-common), float64(128/group)) // by all groups, of a key they do not share
			want := (common + (n-common)*(1-missed)) / keep
			if got := table.Union(); math.Abs(got-want) > 0.02 {
				t.Errorf("groups of %d, %g shared: %.3f, want about %.3f", group, share, got, want)
			}
		}
	}
}
