package inspect

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

// ulp is the largest relative error of rounding to float32.
const ulp = 1.0 / (1 << 24)

// testCase is a shape of attention and of a table for it.
type testCase struct {
	heads, kvHeads, n, dim int
	group, keep, padding   int
	from                   int // first query that counts
}

// cases are lengths around the sizes of words and groups, with groups that divide
// them, do not, and exceed them.
var cases = []testCase{
	{1, 1, 1, 1, 32, 1, 0, 0},
	{2, 1, 2, 3, 1, 1, 1, 0},
	{2, 2, 31, 8, 8, 6, 0, 0},
	{4, 2, 33, 16, 16, 33, 0, 0}, // every key
	{4, 2, 33, 16, 16, 21, 12, 20},
	{7, 1, 65, 8, 64, 1, 20, 0},
	{14, 2, 70, 5, 9, 11, 3, 1},
	{2, 1, 100, 32, math.MaxInt, 20, 0, 99},
	{1, 1, 40, 4, 7, 9, 40, 0}, // nothing but padding
	{1, 1, 40, 4, 7, 9, 0, 40}, // no query counts
}

func (c testCase) String() string {
	return fmt.Sprintf("H%dkv%dN%dD%d group %d keep %d padding %d from %d", c.heads, c.kvHeads, c.n, c.dim, c.group, c.keep, c.padding, c.from)
}

// attention is random, with padding on the left.
func (c testCase) attention(r *rand.Rand) *Attention {
	a := &Attention{Heads: c.heads, KVHeads: c.kvHeads, Len: c.n, HeadDim: c.dim, Scale: 1 / math.Sqrt(float64(c.dim)), From: c.from}
	for range c.heads * c.n * c.dim {
		a.Q = append(a.Q, 3*float32(r.NormFloat64()))
	}
	for range c.kvHeads * c.n * c.dim {
		a.K = append(a.K, float32(r.NormFloat64()))
	}
	if c.padding > 0 {
		a.Valid = slices.Repeat([]float32{1}, c.n)
		clear(a.Valid[:c.padding])
	}
	return a
}

// table keeps keep random keys for each group, of heads heads.
func (c testCase) table(r *rand.Rand, heads int) *Table {
	t := &Table{Heads: heads, Group: c.group}
	for range heads * kernel.Groups(c.n, c.group) {
		t.Bits = append(t.Bits, ref.Bitmap(c.n, r.Perm(c.n)[:c.keep])...)
	}
	return t
}

// naive is Measure from whole matrices of probabilities, in type F.
func naive[F ref.Float](a *Attention, t *Table) (result []Fidelity) {
	n := a.Len
	p := probabilities[F](a)
	for h := range a.Heads {
		var f Fidelity
		queries := 0.0
		for i := range n {
			if i < a.From || !a.valid(i) {
				continue
			}
			queries++
			row := p[(h*n+i)*n:][:n]
			var order []int
			kept := map[int]bool{}
			for j := range n {
				head := h % t.Heads
				words := t.Bits[(head*((n-1)/t.Group+1)+i/t.Group)*((n+31)/32):]
				if a.valid(j) {
					order = append(order, j)
					kept[j] = words[j/32]&(1<<(j%32)) != 0
				}
			}
			k := 0
			for j, is := range kept {
				if is {
					k++
					f.Mass += float64(row[j])
				}
			}
			slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(row[y], row[x]) })
			hits := 0.0
			for _, j := range order[:k] {
				if kept[j] {
					hits++
				}
			}
			if k > 0 {
				f.Recall += hits / float64(k)
			}
		}
		result = append(result, Fidelity{f.Recall / max(1, queries), f.Mass / max(1, queries)})
	}
	return result
}

func probabilities[F ref.Float](a *Attention) []F {
	p, _ := ref.Probabilities[F](&kernel.Operands{
		Shape: kernel.Shape{Batch: 1, Heads: a.Heads, KVHeads: a.KVHeads, Len: a.Len, HeadDim: a.HeadDim},
		Q:     a.Q, K: a.K, Valid: a.Valid, Scale: float32(a.Scale),
	}, nil, 0)
	return p
}

// TestMeasure holds recall and mass of tables of their own for each head and of
// shared ones to whole matrices.
func TestMeasure(t *testing.T) {
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 0))
			a := c.attention(r)
			a.Scale = float64(float32(a.Scale))
			tables := []*Table{c.table(r, c.heads), c.table(r, 1), {Heads: 1, Group: 1, Bits: make([]uint32, c.n*kernel.Words(c.n))}}
			got := Measure(a, tables)
			for i, table := range tables {
				want, plain := naive[float64](a, table), naive[float32](a, table)
				for h := range want {
					if math.Abs(got[i][h].Recall-want[h].Recall) > 1e-12 {
						t.Errorf("table %d, head %d: recall %v, want %v", i, h, got[i][h].Recall, want[h].Recall)
					}
					off := 2*math.Abs(plain[h].Mass-want[h].Mass) + 16*ulp
					if !(math.Abs(got[i][h].Mass-want[h].Mass) <= off) {
						t.Errorf("table %d, head %d: mass %v, want %v within %g", i, h, got[i][h].Mass, want[h].Mass, off)
					}
				}
			}
		})
	}
}

// TestMeasureLimits: the columns of groups of one query catch all of the top k;
// all keys catch everything; equal keys count in their order.
func TestMeasureLimits(t *testing.T) {
	for _, c := range cases {
		if max(c.padding, c.from) == c.n { // nothing to measure
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			c.group = 1
			a := c.attention(rand.New(rand.NewPCG(2, 0)))
			keep := min(c.keep, c.n-c.padding)
			scores := make([]float32, c.heads*c.n*c.n)
			var team kernel.Team
			team.Scores(scores, c.n, &kernel.Operands{
				Shape: kernel.Shape{Batch: 1, Heads: c.heads, KVHeads: c.kvHeads, Len: c.n, HeadDim: c.dim},
				Q:     a.Q, K: a.K, V: a.K, Valid: a.Valid, Scale: float32(a.Scale),
			}, 1, 0)
			oracle := &Table{Heads: c.heads, Group: 1, Bits: make([]uint32, c.heads*c.n*kernel.Words(c.n))}
			team.TopKRows(oracle.Bits, scores, c.heads*c.n, c.n, keep, a.Valid)
			all := &Table{Heads: 1, Group: c.n, Bits: ref.Bitmap(c.n, rand.Perm(c.n))}
			for h, f := range Measure(a, []*Table{oracle})[0] {
				if f.Recall != 1 {
					t.Errorf("head %d: the recall of each query's own columns is %v, want 1", h, f.Recall)
				}
			}
			for h, f := range Measure(a, []*Table{all})[0] {
				if f.Recall != 1 || math.Abs(f.Mass-1) > 1e-12 {
					t.Errorf("head %d: all keys have recall %v and mass %v, want 1 and 1", h, f.Recall, f.Mass)
				}
			}
		})
	}
	same := &Attention{Heads: 1, KVHeads: 1, Len: 8, HeadDim: 1, Q: slices.Repeat([]float32{1}, 8), K: slices.Repeat([]float32{1}, 8), Scale: 1}
	kept := &Table{Heads: 1, Group: 8, Bits: ref.Bitmap(8, []int{0, 1, 6, 7})}
	if got := Measure(same, []*Table{kept})[0][0]; got != (Fidelity{0.5, 0.5}) {
		t.Errorf("of equal keys: %+v, want 0.5 and 0.5", got)
	}
}

// TestMeasureInBlocks: sequences so long that their queries come in several
// blocks, and any number of threads, give the same.
func TestMeasureInBlocks(t *testing.T) {
	c := testCase{1, 1, 1100, 4, 32, 100, 7, 3}
	if c.n*c.n <= blockScores {
		t.Fatal("the case has one block only")
	}
	r := rand.New(rand.NewPCG(3, 0))
	a, table := c.attention(r), c.table(r, 1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	three := Measure(a, []*Table{table})
	runtime.GOMAXPROCS(1)
	if diff := gocmp.Diff(Measure(a, []*Table{table}), three); diff != "" {
		t.Errorf("1 thread against 3:\n%s", diff)
	}
	want := naive[float64](a, table)[0]
	if got := three[0][0]; math.Abs(got.Recall-want.Recall) > 1e-12 || math.Abs(got.Mass-want.Mass) > 1e-6 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestMeasureNaN: a NaN shows, and does not hang or panic.
func TestMeasureNaN(t *testing.T) {
	c := testCase{2, 1, 33, 4, 8, 5, 0, 0}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		r := rand.New(rand.NewPCG(4, 0))
		a, table := c.attention(r), c.table(r, 2)
		a.K[3] = bad
		for h, f := range Measure(a, []*Table{table})[0] {
			if !math.IsNaN(f.Mass) {
				t.Errorf("%v among the keys: head %d has mass %v, want NaN", bad, h, f.Mass)
			}
		}
	}
}

// TestDensityAndChurn counts pairs one by one.
func TestDensityAndChurn(t *testing.T) {
	for _, c := range cases {
		r := rand.New(rand.NewPCG(5, 0))
		x, y := c.table(r, c.heads), c.table(r, c.heads)
		var kept, replaced float64
		for h := range c.heads {
			for i := range c.n {
				was, is := x.row(h, i, c.n), y.row(h, i, c.n)
				for j := range c.n {
					if is[j/32]>>(j%32)&1 == 1 {
						kept++
						if was[j/32]>>(j%32)&1 == 0 {
							replaced++
						}
					}
				}
			}
		}
		if got, want := y.Density(c.n), kept/float64(c.heads*c.n*c.n); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v: density %v, want %v", c, got, want)
		}
		if got, want := y.Churn(x, c.n), replaced/kept; math.Abs(got-want) > 1e-12 {
			t.Errorf("%v: churn %v, want %v", c, got, want)
		}
		if got := y.Churn(y, c.n); got != 0 {
			t.Errorf("%v: churn %v of a table to itself, want 0", c, got)
		}
		empty := &Table{Heads: c.heads, Group: c.group, Bits: make([]uint32, len(x.Bits))}
		if d, churn := empty.Density(c.n), empty.Churn(x, c.n); d != 0 || churn != 0 {
			t.Errorf("%v: without keys density %v and churn %v, want 0 and 0", c, d, churn)
		}
	}
}

// TestUnion counts the keys of blocks of groups of a table that says which: keys of
// each group in turn, head after head.
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
		table := &Table{Heads: c.heads, Group: c.group}
		for _, keys := range c.keys {
			table.Bits = append(table.Bits, ref.Bitmap(c.n, keys)...)
		}
		table.check(c.heads, c.n)
		if got := table.Union(c.n); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestUnionOfRandom: of tables with a known share in common, what chance makes of it.
func TestUnionOfRandom(t *testing.T) {
	const n, keep = 4096, 819
	for _, group := range []int{32, 64} {
		for _, share := range []float64{0, 0.83} {
			table := &Table{Heads: 1, Group: group, Bits: columns.Random(n, group, keep, share)}
			common := math.Round(share * keep)
			missed := math.Pow(1-(keep-common)/(n-common), float64(128/group)) // by all groups, of a key they do not share
			want := (common + (n-common)*(1-missed)) / keep
			if got := table.Union(n); math.Abs(got-want) > 0.02 {
				t.Errorf("groups of %d, %g shared: %.3f, want about %.3f", group, share, got, want)
			}
		}
	}
}

// TestMap: cells cover every pair once, hold the highest probability of theirs,
// and agree with Measure.
func TestMap(t *testing.T) {
	for _, c := range cases {
		for _, most := range []int{1, 7, 32, 1000} {
			t.Run(fmt.Sprintf("%v most %d", c, most), func(t *testing.T) {
				r := rand.New(rand.NewPCG(6, 0))
				a := c.attention(r)
				table, head := c.table(r, c.heads), c.heads-1
				m := NewMap(a, head, table, most)
				if m.Cells > most || m.Cells*m.Side < c.n || (m.Cells-1)*m.Side >= c.n {
					t.Fatalf("%d cells of %d for %d tokens, at most %d", m.Cells, m.Side, c.n, most)
				}
				if want := Measure(a, []*Table{table})[0][head]; m.Fidelity != want {
					t.Errorf("fidelity %+v, want %+v", m.Fidelity, want)
				}
				p := probabilities[float64](a)[head*c.n*c.n:]
				kept, highest := make([]int, len(m.Pairs)), make([]float64, len(m.Pairs))
				var sum Pairs
				for i := range c.n {
					for j := range c.n {
						cell := i/m.Side*m.Cells + j/m.Side
						if i < a.From || !a.valid(i) || !a.valid(j) {
							continue
						}
						sum.All++
						kept[cell] += int(table.row(head, i, c.n)[j/32] >> (j % 32) & 1)
						highest[cell] = max(highest[cell], p[i*c.n+j])
					}
				}
				for cell, pairs := range m.Pairs {
					sum.All -= pairs.All
					if pairs.Kept != kept[cell] || pairs.Hit > pairs.Kept || pairs.Kept+pairs.Miss > pairs.All {
						t.Errorf("cell %d: %+v, want %d kept", cell, pairs, kept[cell])
					}
					if math.Abs(m.Attention[cell]-highest[cell]) > 1e-5 {
						t.Errorf("cell %d: highest probability %v, want %v", cell, m.Attention[cell], highest[cell])
					}
					sum.Kept += pairs.Kept
					sum.Hit += pairs.Hit
					sum.Miss += pairs.Miss
				}
				if sum.All != 0 || sum.Hit+sum.Miss != sum.Kept { // each query has as many top keys as it keeps
					t.Errorf("%d pairs are missing; %d hits and %d misses for %d kept", sum.All, sum.Hit, sum.Miss, sum.Kept)
				}
			})
		}
	}
}
