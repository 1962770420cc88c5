package kernel_test

import (
	"fmt"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// TestFewQueries compares attention of some of a sequence's queries with the reference, as
// over a cache of keys and values: from its first, its last and middle ones.
func TestFewQueries(t *testing.T) {
	for i, c := range attentionCases() {
		n := c.Len
		for _, span := range [][2]int{{0, 1}, {n - 1, n}, {n / 3, n - n/3}, {n / 2, n}} {
			c.Rows = span[1] - span[0]
			t.Run(fmt.Sprintf("%s, rows %v", c.Name, span), func(t *testing.T) {
				r := attncase.Rand(uint64(i))
				a := operands(r, c.Shape)
				a.First = span[0]
				c.Padding.Apply(a)
				tables := tables(c, r)
				want := results{}
				out, lse := ref.Attention[float64](a, nil)
				plainOut, plainLSE := ref.Attention[float32](a, nil)
				want.add("dense out", plainOut, out)
				want.add("dense lse", plainLSE, lse)
				for name, table := range tables {
					out, lse := ref.Attention[float64](a, table)
					plainOut, plainLSE := ref.Attention[float32](a, table)
					want.add(name+" out", plainOut, out)
					want.add(name+" lse", plainLSE, lse)
					want.add(name+" kept mass", ref.KeptMass[float32](a, table), ref.KeptMass[float64](a, table))
				}
				want.add("scores", ref.Scores[float32](a, c.Group, 0), ref.Scores[float64](a, c.Group, 0))
				some := *a
				some.From, some.To = c.Rows/2, c.Rows
				want.add("scores of some", ref.Scores[float32](&some, c.Group, 0), ref.Scores[float64](&some, c.Group, 0))

				kernel.ForEachISA(t, func(t *testing.T) {
					check := func(name string, got []float32) {
						t.Helper()
						compare(t, name, got, want[name].plain, want[name].want)
					}
					out, checkOut := guarded(t, len(a.Q))
					lse, checkLSE := guarded(t, a.Batch*a.Heads*c.Rows)
					team.Dense(out, lse, a)
					check("dense out", out)
					check("dense lse", lse)

					groups := kernel.Groups(c.Rows, c.Group)
					scores, checkScores := guarded(t, a.Batch*a.Heads*groups*n)
					team.DenseScores(out, scores, a, c.Group)
					check("dense out", out)
					check("scores", scores)
					checkScores()
					groups = kernel.Groups(c.Rows-some.From, c.Group)
					scores, checkScores = guarded(t, a.Batch*a.Heads*groups*n)
					team.DenseScores(out, scores, &some, c.Group)
					check("dense out", out)
					check("scores of some", scores)
					checkScores()

					mass, checkMass := guarded(t, a.Batch*a.Heads*kernel.Groups(c.Rows, c.Group))
					for name, table := range tables {
						team.ColumnSparse(out, lse, a, table)
						check(name+" out", out)
						check(name+" lse", lse)
						team.KeptMass(mass, a, table)
						check(name+" kept mass", mass)
					}
					checkMass()
					checkOut()
					checkLSE()
				})
			})
		}
	}
}

// TestFewQueriesHaveTheBitsOfAll: a query gets the same bits with any other queries.
func TestFewQueriesHaveTheBitsOfAll(t *testing.T) {
	for i, c := range attentionCases() {
		r := attncase.Rand(uint64(i))
		a := operands(r, c.Shape)
		c.Padding.Apply(a)
		n, dim := c.Len, c.HeadDim
		for _, precision := range []kernel.Precision{kernel.Float32, kernel.BFloat16, kernel.Int16} {
			a.Precision = precision
			all := make([]float32, len(a.Q))
			team.Dense(all, nil, a)
			for _, span := range [][2]int{{0, 1}, {n - 1, n}, {n / 3, n - n/3}} {
				some := *a
				some.First, some.Rows, some.Q = span[0], span[1]-span[0], nil
				var want []float32
				for head := range a.Batch * a.Heads {
					rows := [2]int{(head*n + span[0]) * dim, (head*n + span[1]) * dim}
					some.Q = append(some.Q, a.Q[rows[0]:rows[1]]...)
					want = append(want, all[rows[0]:rows[1]]...)
				}
				got := make([]float32, len(want))
				team.Dense(got, nil, &some)
				tol.SameBits(t, fmt.Sprintf("%s, %v, queries %v", c.Name, precision, span), got, want)
			}
		}
	}
}
