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
	"github.com/pulsecol/pulsecol/internal/tol"
)

// testCase is a shape of attention and of a table for it.
type testCase struct {
	heads, kvHeads, n, dim int
	group, keep, padding   int
	from                   int // first query that counts
	first, rows            int // queries, if not of all tokens
}

// cases are lengths around the sizes of words and groups, with groups that divide
// them, do not, and exceed them.
var cases = []testCase{
	{1, 1, 1, 1, 32, 1, 0, 0, 0, 0},
	{2, 1, 2, 3, 1, 1, 1, 0, 0, 0},
	{2, 2, 31, 8, 8, 6, 0, 0, 0, 0},
	{4, 2, 33, 16, 16, 33, 0, 0, 0, 0}, // every key
	{4, 2, 33, 16, 16, 21, 12, 20, 0, 0},
	{7, 1, 65, 8, 64, 1, 20, 0, 0, 0},
	{14, 2, 70, 5, 9, 11, 3, 1, 0, 0},
	{2, 1, 100, 32, math.MaxInt, 20, 0, 99, 0, 0},
	{1, 1, 40, 4, 7, 9, 40, 0, 0, 0},  // nothing but padding
	{1, 1, 40, 4, 7, 9, 0, 40, 0, 0},  // no query counts
	{4, 2, 40, 8, 4, 9, 5, 0, 12, 10}, // a block in the middle
	{2, 2, 33, 16, 16, 6, 0, 30, 20, 13},
	{1, 1, 70, 8, 32, 20, 0, 0, 69, 1},
	{1, 1, 65, 8, 3, 20, 0, 0, 0, 64},
}

func (c testCase) String() string {
	return fmt.Sprintf("H%dkv%dN%dD%d group %d keep %d padding %d from %d rows %d+%d", c.heads, c.kvHeads, c.n, c.dim, c.group, c.keep, c.padding, c.from, c.first, c.rows)
}

// attention is random, with padding on the left.
func (c testCase) attention(r *rand.Rand) *Attention {
	a := &Attention{Heads: c.heads, KVHeads: c.kvHeads, Len: c.n, HeadDim: c.dim, Scale: 1 / math.Sqrt(float64(c.dim)), From: c.from, First: c.first, Rows: c.rows}
	for range c.heads * a.queries() * c.dim {
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
func (c testCase) table(r *rand.Rand, heads int) *columns.Table {
	t := &columns.Table{Heads: heads, Len: c.n, Group: c.group, First: c.first, Queries: c.rows}
	for range heads * t.Groups() {
		t.Bits = append(t.Bits, ref.Bitmap(c.n, r.Perm(c.n)[:c.keep])...)
	}
	return t
}

// naive is Measure from whole matrices of probabilities, in type F.
func naive[F ref.Float](a *Attention, t *columns.Table) (result []Fidelity) {
	n := a.Len
	p := probabilities[F](a)
	for h := range a.Heads {
		var f Fidelity
		queries := 0.0
		for i := a.First; i < a.First+a.queries(); i++ {
			if i < a.From || !a.valid(i) {
				continue
			}
			queries++
			row := p[(h*n+i)*n:][:n]
			var order []int
			kept := map[int]bool{}
			for j := range n {
				head := h % t.Heads
				words := t.Bits[(head*t.Groups()+(i-t.First)/t.Group)*((n+31)/32):]
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

// probabilities are those of all tokens as queries, [Heads, Len, Len]. Tokens that are none
// have zeros for a query.
func probabilities[F ref.Float](a *Attention) []F {
	q := make([]float32, a.Heads*a.Len*a.HeadDim)
	for h := range a.Heads {
		size := a.queries() * a.HeadDim
		copy(q[(h*a.Len+a.First)*a.HeadDim:], a.Q[h*size:][:size])
	}
	p, _ := ref.Probabilities[F](&kernel.Operands{
		Shape: kernel.Shape{Batch: 1, Heads: a.Heads, KVHeads: a.KVHeads, Len: a.Len, HeadDim: a.HeadDim},
		Q:     q, K: a.K, Valid: a.Valid, Scale: float32(a.Scale),
	}, nil, 0)
	return p
}

// TestMeasure compares recall and mass, of tables for each head and of shared ones, with
// values from whole matrices.
func TestMeasure(t *testing.T) {
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 0))
			a := c.attention(r)
			a.Scale = float64(float32(a.Scale))
			tables := []*columns.Table{c.table(r, c.heads), c.table(r, 1), {Heads: 1, Len: c.n, Group: 1, Bits: make([]uint32, c.n*kernel.Words(c.n))}}
			got := Measure(a, tables)
			for i, table := range tables {
				want, plain := naive[float64](a, table), naive[float32](a, table)
				for h := range want {
					if math.Abs(got[i][h].Recall-want[h].Recall) > 1e-12 {
						t.Errorf("table %d, head %d: recall %v, want %v", i, h, got[i][h].Recall, want[h].Recall)
					}
					off := 2*math.Abs(plain[h].Mass-want[h].Mass) + 16*tol.ULP
					if !(math.Abs(got[i][h].Mass-want[h].Mass) <= off) {
						t.Errorf("table %d, head %d: mass %v, want %v within %g", i, h, got[i][h].Mass, want[h].Mass, off)
					}
				}
			}
		})
	}
}

// TestMeasureLimits: columns of groups of one query have recall 1, all keys have recall and
// mass 1, and equal keys count in their order.
func TestMeasureLimits(t *testing.T) {
	for _, c := range cases {
		if max(c.padding, c.from) == c.n || c.rows > 0 { // nothing to measure, and not all tokens
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
			oracle := &columns.Table{Heads: c.heads, Len: c.n, Group: 1, Bits: make([]uint32, c.heads*c.n*kernel.Words(c.n))}
			team.TopKRows(oracle.Bits, scores, c.heads*c.n, c.n, keep, a.Valid)
			all := &columns.Table{Heads: 1, Len: c.n, Group: c.n, Bits: ref.Bitmap(c.n, rand.Perm(c.n))}
			for h, f := range Measure(a, []*columns.Table{oracle})[0] {
				if f.Recall != 1 {
					t.Errorf("head %d: the recall of each query's own columns is %v, want 1", h, f.Recall)
				}
			}
			for h, f := range Measure(a, []*columns.Table{all})[0] {
				if f.Recall != 1 || math.Abs(f.Mass-1) > 1e-12 {
					t.Errorf("head %d: all keys have recall %v and mass %v, want 1 and 1", h, f.Recall, f.Mass)
				}
			}
		})
	}
	same := &Attention{Heads: 1, KVHeads: 1, Len: 8, HeadDim: 1, Q: slices.Repeat([]float32{1}, 8), K: slices.Repeat([]float32{1}, 8), Scale: 1}
	kept := &columns.Table{Heads: 1, Len: 8, Group: 8, Bits: ref.Bitmap(8, []int{0, 1, 6, 7})}
	if got := Measure(same, []*columns.Table{kept})[0][0]; got != (Fidelity{0.5, 0.5}) {
		t.Errorf("of equal keys: %+v, want 0.5 and 0.5", got)
	}
}

// TestMeasureInBlocks: sequences of several blocks of queries, and any number of threads,
// give the same result.
func TestMeasureInBlocks(t *testing.T) {
	c := testCase{1, 1, 1100, 4, 32, 100, 7, 3, 0, 0}
	if c.n*c.n <= blockScores {
		t.Fatal("the case has one block only")
	}
	r := rand.New(rand.NewPCG(3, 0))
	a, table := c.attention(r), c.table(r, 1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	three := Measure(a, []*columns.Table{table})
	runtime.GOMAXPROCS(1)
	if diff := gocmp.Diff(Measure(a, []*columns.Table{table}), three); diff != "" {
		t.Errorf("1 thread against 3:\n%s", diff)
	}
	want := naive[float64](a, table)[0]
	if got := three[0][0]; math.Abs(got.Recall-want.Recall) > 1e-12 || math.Abs(got.Mass-want.Mass) > 1e-6 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestMeasureNaN: a NaN in the input gives NaN, and no panic.
func TestMeasureNaN(t *testing.T) {
	c := testCase{2, 1, 33, 4, 8, 5, 0, 0, 0, 0}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		r := rand.New(rand.NewPCG(4, 0))
		a, table := c.attention(r), c.table(r, 2)
		a.K[3] = bad
		for h, f := range Measure(a, []*columns.Table{table})[0] {
			if !math.IsNaN(f.Mass) {
				t.Errorf("%v among the keys: head %d has mass %v, want NaN", bad, h, f.Mass)
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
				rows := a.queries()
				if m.First != c.first || m.RowCells > most || m.RowCells*m.RowSide < rows || (m.RowCells-1)*m.RowSide >= rows {
					t.Fatalf("%d cells of %d for %d queries from %d on, at most %d", m.RowCells, m.RowSide, rows, m.First, most)
				}
				if want := Measure(a, []*columns.Table{table})[0][head]; m.Fidelity != want {
					t.Errorf("fidelity %+v, want %+v", m.Fidelity, want)
				}
				p := probabilities[float64](a)[head*c.n*c.n:]
				kept, highest := make([]int, len(m.Pairs)), make([]float64, len(m.Pairs))
				var sum Pairs
				for i := c.first; i < c.first+rows; i++ {
					for j := range c.n {
						cell := (i-c.first)/m.RowSide*m.Cells + j/m.Side
						if i < a.From || !a.valid(i) || !a.valid(j) {
							continue
						}
						sum.All++
						kept[cell] += int(table.Row(head, (i-c.first)/table.Group)[j/32] >> (j % 32) & 1)
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
