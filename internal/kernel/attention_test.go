package kernel_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// operands draws inputs whose scores have a standard deviation of about 2, which
// makes some weights large and many small.
func operands(r *rand.Rand, s kernel.Shape) *kernel.Operands { return attncase.Operands(r, s, 2) }

// attentionCases are the cases on which the reference with its gradients takes less
// than a tenth of a second for a table. Larger ones have shapes of GPU tiles.
func attentionCases() (cases []attncase.Case) {
	for _, c := range attncase.Cases {
		if c.Cost() <= 21e5 {
			cases = append(cases, c)
		}
	}
	return cases
}

// tables are those of a case, few for longer ones: the reference is slow.
func tables(c attncase.Case, r *rand.Rand) map[string]*kernel.Table {
	all := c.Tables(r)
	if c.Len > 60 {
		maps.DeleteFunc(all, func(name string, _ *kernel.Table) bool { return name != "random" && name != "streaming" })
	}
	return all
}

// results are the values of an operation by name.
type results map[string]struct {
	plain []float32
	want  []float64
}

func (r results) add(name string, plain []float32, want []float64) {
	r[name] = struct {
		plain []float32
		want  []float64
	}{plain, want}
}

// attentionResults computes what every operation must give for a case.
func attentionResults(a *kernel.Operands, group int, dout []float32, tables map[string]*kernel.Table) results {
	r := results{}
	add := func(name string, t *kernel.Table) {
		plainOut, plainLSE := ref.Attention[float32](a, t)
		out, lse := ref.Attention[float64](a, t)
		r.add(name+" out", plainOut, out)
		r.add(name+" lse", plainLSE, lse)
		pq, pk, pv := ref.AttentionGrad[float32](dout, a, t)
		dq, dk, dv := ref.AttentionGrad[float64](dout, a, t)
		r.add(name+" dq", pq, dq)
		r.add(name+" dk", pk, dk)
		r.add(name+" dv", pv, dv)
		if t != nil {
			r.add(name+" kept mass", ref.KeptMass[float32](a, t), ref.KeptMass[float64](a, t))
		}
	}
	add("dense", nil)
	for name, t := range tables {
		add(name, t)
	}
	r.add("scores", ref.Scores[float32](a, group, 0), ref.Scores[float64](a, group, 0))
	lo := a.Len / 3
	r.add("scores from lo", ref.Scores[float32](a, group, lo), ref.Scores[float64](a, group, lo))
	return r
}

func TestAttention(t *testing.T) {
	for i, c := range attentionCases() {
		t.Run(c.Name, func(t *testing.T) {
			r := attncase.Rand(uint64(i))
			a := operands(r, c.Shape)
			c.Padding.Apply(a)
			dout := attncase.Normal(r, len(a.Q), 1)
			tables := tables(c, r)
			want := attentionResults(a, c.Group, dout, tables)
			kernel.ForEachISA(t, func(t *testing.T) {
				check := func(name string, got []float32) {
					t.Helper()
					compare(t, name, got, want[name].plain, want[name].want)
				}
				queries := a.Batch * a.Heads * a.Len
				grad := func(name string, table *kernel.Table) {
					dq, checkDQ := guarded(t, len(a.Q))
					dk, checkDK := guarded(t, len(a.K))
					dv, checkDV := guarded(t, len(a.V))
					team.AttentionGrad(dq, dk, dv, dout, a, table)
					check(name+" dq", dq)
					check(name+" dk", dk)
					check(name+" dv", dv)
					checkDQ()
					checkDK()
					checkDV()
				}

				out, checkOut := guarded(t, len(a.Q))
				lse, checkLSE := guarded(t, queries)
				team.Dense(out, lse, a)
				check("dense out", out)
				check("dense lse", lse)
				grad("dense", nil)

				groups := kernel.Groups(a.Len, c.Group)
				scores, checkScores := guarded(t, a.Batch*a.Heads*groups*a.Len)
				team.DenseScores(out, scores, a, c.Group)
				check("dense out", out)
				check("scores", scores)
				team.Scores(scores, a.Len, a, c.Group, 0)
				check("scores", scores)
				lo := a.Len / 3
				// Adjacent, after the first lo columns of another matrix.
				team.Scores(scores[lo:], a.Len, a, c.Group, lo)
				var part []float32
				for r := range a.Batch * a.Heads * groups {
					part = append(part, scores[r*a.Len+lo:(r+1)*a.Len]...)
				}
				check("scores from lo", part)

				mass, checkMass := guarded(t, a.Batch*a.Heads*groups)
				for name, table := range tables {
					team.ColumnSparse(out, lse, a, table)
					check(name+" out", out)
					check(name+" lse", lse)
					grad(name, table)
					team.KeptMass(mass, a, table)
					check(name+" kept mass", mass)
				}
				checkMass()
				checkOut()
				checkLSE()
				checkScores()
			})
		})
	}
}

// TestQueryRange checks that the queries of a range get the bits that they get
// among all others, at every instruction set and precision, and that results far from the
// range do not change.
func TestQueryRange(t *testing.T) {
	const far = 512 // queries, as many as the largest tile has
	long := attncase.Case{Name: "several tiles", Shape: kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 1100, HeadDim: 4}, Group: 32}
	for i, c := range append(attentionCases(), long) {
		t.Run(c.Name, func(t *testing.T) {
			r := attncase.Rand(uint64(i))
			a := operands(r, c.Shape)
			c.Padding.Apply(a)
			tables := tables(c, r)
			tables["dense"] = nil
			n := a.Len
			kernel.ForEachISA(t, func(t *testing.T) {
				for _, precision := range []kernel.Precision{kernel.Float32, kernel.BFloat16, kernel.Int16} {
					for name, table := range tables {
						some := *a
						some.Precision = precision
						attend := func(out, lse []float32) {
							if table == nil {
								team.Dense(out, lse, &some)
							} else {
								team.ColumnSparse(out, lse, &some, table)
							}
						}
						out, lse := make([]float32, len(a.Q)), make([]float32, a.Batch*a.Heads*n)
						attend(out, lse)
						for _, span := range [][2]int{{0, 1}, {n - 1, n}, {n / 2, n/2 + 1}, {n / 3, n - n/3}, {0, n}} {
							some.From, some.To = span[0], span[1]
							what := fmt.Sprintf("%s, %v, queries %v", name, precision, span)
							part, partLSE := make([]float32, len(out)), make([]float32, len(lse))
							attncase.Fill(part, 17)
							attncase.Fill(partLSE, 17)
							attend(part, partLSE)
							for q := range partLSE {
								row, at := part[q*a.HeadDim:][:a.HeadDim], q%n
								switch {
								case at >= span[0] && at < span[1]:
									tol.SameBits(t, what, row, out[q*a.HeadDim:][:a.HeadDim])
									tol.SameBits(t, what+": lse", partLSE[q:q+1], lse[q:q+1])
								case at <= span[0]-far || at >= span[1]-1+far:
									if partLSE[q] != 17 || slices.ContainsFunc(row, func(x float32) bool { return x != 17 }) {
										t.Fatalf("%s: query %d was computed", what, at)
									}
								}
							}
						}
					}
				}
			})
		})
	}
}

// TestGradientsAskedFor checks that each gradient is the same without the others.
func TestGradientsAskedFor(t *testing.T) {
	a := operands(attncase.Rand(4), kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 40, HeadDim: 8})
	dout := attncase.Normal(attncase.Rand(5), len(a.Q), 1)
	size := []int{len(a.Q), len(a.K), len(a.V)}
	var want, got [3][]float32
	for i, n := range size {
		want[i] = make([]float32, n)
	}
	team.AttentionGrad(want[0], want[1], want[2], dout, a, nil)
	for i, n := range size {
		got = [3][]float32{}
		got[i] = make([]float32, n)
		team.AttentionGrad(got[0], got[1], got[2], dout, a, nil)
		tol.SameBits(t, "gradient "+[]string{"q", "k", "v"}[i], got[i], want[i])
	}
	team.AttentionGrad(nil, nil, nil, dout, a, nil)
}

// TestNaN puts NaN and infinities into single elements and expects them in the results that
// depend on these, and in no other.
func TestNaN(t *testing.T) {
	s := attncase.SpecialShape
	for _, c := range attncase.Specials {
		t.Run(c.Name, func(t *testing.T) {
			a := operands(attncase.Rand(1), s)
			c.Set(a)
			const group = 8
			outPlain, lsePlain := ref.Attention[float32](a, nil)
			outWant, lseWant := ref.Attention[float64](a, nil)
			scoresPlain, scoresWant := ref.Scores[float32](a, group, 0), ref.Scores[float64](a, group, 0)
			kernel.ForEachISA(t, func(t *testing.T) {
				out, lse := make([]float32, len(a.Q)), make([]float32, 2*s.Len)
				team.Dense(out, lse, a)
				compare(t, "out", out, outPlain, outWant)
				compare(t, "lse", lse, lsePlain, lseWant)
				scores := make([]float32, 2*kernel.Groups(s.Len, group)*s.Len)
				team.DenseScores(out, scores, a, group)
				compare(t, "out", out, outPlain, outWant)
				compare(t, "scores", scores, scoresPlain, scoresWant)
			})
		})
	}
}

// TestPaddingIsNotRead fills padding positions with NaN: none of it may reach
// the queries that are not padding.
func TestPaddingIsNotRead(t *testing.T) {
	s := kernel.Shape{Batch: 2, Heads: 2, KVHeads: 1, Len: 70, HeadDim: 16}
	for name, pad := range map[string]attncase.Padding{"left": attncase.Left, "scattered": attncase.Scattered} {
		t.Run(name, func(t *testing.T) {
			clean := operands(attncase.Rand(2), s)
			pad.Apply(clean)
			dirty := *clean
			dirty.K, dirty.V = clone(clean.K), clone(clean.V)
			for b := range s.Batch {
				for i := range s.Len {
					if clean.Valid[b*s.Len+i] == 0 {
						attncase.Fill(dirty.K[(b*s.Len+i)*s.HeadDim:][:s.HeadDim], float32(math.NaN()))
						attncase.Fill(dirty.V[(b*s.Len+i)*s.HeadDim:][:s.HeadDim], float32(math.NaN()))
					}
				}
			}
			kernel.ForEachISA(t, func(t *testing.T) {
				want, got := make([]float32, len(clean.Q)), make([]float32, len(clean.Q))
				team.Dense(want, nil, clean)
				team.Dense(got, nil, &dirty)
				tol.SameBits(t, "Dense", got, want)
			})
		})
	}
}

func clone(x []float32) []float32 { return append([]float32(nil), x...) }

func TestShapeValidate(t *testing.T) {
	good := kernel.Shape{Batch: 1, Heads: 4, KVHeads: 2, Len: 8, HeadDim: 16}
	if err := good.Validate(); err != nil {
		t.Errorf("%+v: %v", good, err)
	}
	for want, change := range map[string]func(s *kernel.Shape){
		"batch is 0":     func(s *kernel.Shape) { s.Batch = 0 },
		"kv heads is -1": func(s *kernel.Shape) { s.KVHeads = -1 },
		"length is 0":    func(s *kernel.Shape) { s.Len = 0 },
		"4 heads are not a multiple of 3 kv head": func(s *kernel.Shape) { s.KVHeads = 3 },
		"overflow": func(s *kernel.Shape) { s.Batch, s.HeadDim = math.MaxInt32, math.MaxInt32 },
	} {
		s := good
		change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", s, err, want)
		}
	}
}

// TestContract checks that wrong lengths panic before anything is computed, with a message
// that names the function, the slice and both lengths.
func TestContract(t *testing.T) {
	s := kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 4, HeadDim: 2}
	a := operands(attncase.Rand(3), s)
	short := *a
	short.K = short.K[1:]
	table := &kernel.Table{Bits: make([]uint32, 2), Group: 2}
	span := func(from, to int) *kernel.Operands {
		some := *a
		some.From, some.To = from, to
		return &some
	}
	out := make([]float32, len(a.Q))
	projection := func(outputs int) kernel.Projection {
		return kernel.Projection{Weight: kernel.Matrix{Rows: outputs, Cols: 4, Data: make([]byte, 16*outputs)}}
	}
	two, four := projection(2), projection(4)
	for _, c := range []struct {
		want string
		call func()
	}{
		{"Dense: len(out) is 15, want 16", func() { team.Dense(out[1:], nil, a) }},
		{"Dense: len(lse) is 7, want 8", func() { team.Dense(out, make([]float32, 7), a) }},
		{"Dense: len(K) is 7, want 8", func() { team.Dense(out, nil, &short) }},
		{"Dense: queries [3, 5), must be some within [0, 4)", func() { team.Dense(out, nil, span(3, 5)) }},
		{"ColumnSparse: queries [2, 2)", func() { team.ColumnSparse(out, nil, span(2, 2), table) }},
		{"Dense: queries [-1, 2)", func() { team.Dense(out, nil, span(-1, 2)) }},
		{"DenseScores: len(scores) is 15, want 16", func() { team.DenseScores(out, out[1:], a, 2) }},
		{"DenseScores: group is 0", func() { team.DenseScores(out, out, a, 0) }},
		{"Scores: lo is 5", func() { team.Scores(out, 4, a, 2, 5) }},
		{"Scores: ld is 3, must be at least 4", func() { team.Scores(out, 3, a, 2, 0) }},
		{"Scores: len(scores) is 16, want 18", func() { team.Scores(out, 5, a, 2, 1) }},
		{"ColumnSparse: len(Table.Bits) is 2, want 4", func() { team.ColumnSparse(out, nil, a, table) }},
		{"KeptMass: len(Table.Bits) is 2, want 4", func() { team.KeptMass(out, a, table) }},
		{"AttentionGrad: len(dout) is 15, want 16", func() { team.AttentionGrad(nil, nil, nil, out[1:], a, nil) }},
		{"TopK: len(bits) is 2, want 1", func() { kernel.TopK(make([]uint32, 2), out, 1) }},
		{"TopKRows: len(valid) is 3, want 4", func() {
			team.TopKRows(make([]uint32, 4), out, 4, 4, 1, out[:3])
		}},
		{"BlockTopKRows: block is 0", func() {
			team.BlockTopKRows(make([]uint32, 4), out, 4, 4, 0, 1, nil)
		}},
		{"SparseDRows: last is 3, must be in [0, 2]", func() {
			team.SparseDRows(make([]uint32, 4), out, 4, 4, 2, 3, 1, 1)
		}},
		{"RMSNorm: len(x) is 16, want 15", func() { team.RMSNorm(out, out, make([]float32, 3), 0) }},
		{"RoPE: head dim is 1", func() { team.RoPE(out, out, make([]int32, 4), 1, 4, kernel.Heads{Count: 4, Dim: 1}, 1e4) }},
		{"SplitHeads: len(dst) is 15, want 16", func() { team.SplitHeads(out[1:], out, 1, 4, kernel.Heads{Count: 2, Dim: 2}) }},
		{"SplitHeads: 4 features have no heads 1 to 2 of dim 2", func() { team.SplitHeads(out, out, 1, 4, kernel.Heads{First: 1, Count: 2, Dim: 2}) }},
		{"SplitHeads: len(x) is 15, want 12", func() { team.SplitHeads(out, out[1:], 1, 4, kernel.Heads{Count: 1, Dim: 3}) }},
		{"SwiGLU: gate has 2 outputs, up 4", func() { team.SwiGLU(out[:2], out[:4], 1, two, four) }},
		{"SwiGLU: len(dst) is 3, want 2", func() { team.SwiGLU(out[:3], out[:4], 1, two, two) }},
		{"Linear: len(residual) is 5, want 6", func() { team.Linears(out[:6], out[:4], out[:5], 1, []kernel.Projection{two, four}) }},
		{"Add: len(b) is 15, want 16", func() { team.Add(out, out, out[1:]) }},
		{"matrix [2 4] of F32 needs 32 bytes, got 31", func() {
			team.Linear(out[:2], out[:4], 1, &kernel.Matrix{Rows: 2, Cols: 4, Data: make([]byte, 31)}, nil)
		}},
		{"row is 2, must be in [0, 2)", func() {
			team.Embed(out[:4], []int32{2}, &kernel.Matrix{Rows: 2, Cols: 4, Data: make([]byte, 32)})
		}},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panic with %q, want one with %q", got, c.want)
				}
			}()
			c.call()
		}()
	}
}
