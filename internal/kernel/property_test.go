package kernel_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"pgregory.net/rapid"
)

// drawOperands draws a small attention call.
func drawOperands(t *rapid.T) *kernel.Operands {
	kvHeads := rapid.IntRange(1, 2).Draw(t, "kv heads")
	s := kernel.Shape{
		Batch:   rapid.IntRange(1, 2).Draw(t, "batch"),
		Heads:   kvHeads * rapid.SampledFrom([]int{1, 2, 7}).Draw(t, "heads per kv head"),
		KVHeads: kvHeads,
		Len:     rapid.IntRange(1, 70).Draw(t, "length"),
		HeadDim: rapid.SampledFrom([]int{1, 4, 8, 20, 32}).Draw(t, "head dim"),
	}
	a := operands(attncase.Rand(rapid.Uint64().Draw(t, "seed")), s)
	rapid.SampledFrom([]attncase.Padding{nil, attncase.Left, attncase.Scattered}).Draw(t, "padding").Apply(a)
	return a
}

// closeTo compares two float32 results of the same mathematics.
func closeTo(t *rapid.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !(math.Abs(float64(got[i]-want[i])) <= 1e-5) {
			t.Fatalf("%s[%d] = %g, want %g", what, i, got[i], want[i])
		}
	}
}

// TestProperties checks properties of attention with any values.
func TestProperties(t *testing.T) {
	kernel.ForEachISA(t, func(t *testing.T) { rapid.Check(t, checkProperties) })
}

func checkProperties(t *rapid.T) {
	a := drawOperands(t)
	dense := make([]float32, len(a.Q))
	team.Dense(dense, nil, a)
	n, dim := a.Len, a.HeadDim
	group := rapid.SampledFrom([]int{1, 3, 16, 32, n, n + 1}).Draw(t, "group")
	groups := kernel.Groups(n, group)

	// Keys have no order: permuting them with their values and padding changes
	// nothing.
	permuted := *a
	permuted.K, permuted.V, permuted.Valid = clone(a.K), clone(a.V), clone(a.Valid)
	order := rapid.Permutation(indices(n)).Draw(t, "order")
	for b := range a.Batch {
		for i, j := range order {
			for h := range a.KVHeads {
				head := b*a.KVHeads + h
				copy(permuted.K[(head*n+i)*dim:][:dim], a.K[(head*n+j)*dim:])
				copy(permuted.V[(head*n+i)*dim:][:dim], a.V[(head*n+j)*dim:])
			}
			if a.Valid != nil {
				permuted.Valid[b*n+i] = a.Valid[b*n+j]
			}
		}
	}
	out := make([]float32, len(a.Q))
	team.Dense(out, nil, &permuted)
	closeTo(t, "permuted keys", out, dense)

	// Grouped-query attention equals attention with repeated key/value heads.
	repeated := *a
	repeated.KVHeads = a.Heads
	repeated.K, repeated.V = repeatHeads(a, a.K), repeatHeads(a, a.V)
	team.Dense(out, nil, &repeated)
	closeTo(t, "repeated heads", out, dense)

	// DenseScores gives the dense output, and scores that sum to 1 in groups with a
	// query that is not padding.
	rows := a.Batch * a.Heads * groups
	scores := make([]float32, rows*n)
	team.DenseScores(out, scores, a, group)
	closeTo(t, "output with scores", out, dense)
	for r := range rows {
		valid := a.Valid
		if valid != nil {
			valid = valid[r/(a.Heads*groups)*n:][:n]
		}
		sum, want := 0.0, 0.0
		for j, s := range scores[r*n:][:n] {
			sum += float64(s)
			padded := valid != nil && valid[j] == 0
			if !padded && j/group == r%groups {
				want = 1
			}
			if padded && s != 0 {
				t.Fatalf("padded key %d has score %g", j, s)
			}
		}
		if math.Abs(sum-want) > 1e-5 {
			t.Fatalf("scores of row %d sum to %g, want %g", r, sum, want)
		}
	}

	// Keeping as many keys as there are is dense attention, and so is its
	// gradient.
	words := kernel.Words(n)
	table := &kernel.Table{Bits: make([]uint32, rows*words), Group: group, Reach: -1}
	team.TopKRows(table.Bits, scores, rows, n, n, nil)
	team.ColumnSparse(out, nil, a, table)
	closeTo(t, "all columns", out, dense)
	grads := func(t *kernel.Table) (g [3][]float32) {
		g = [3][]float32{make([]float32, len(a.Q)), make([]float32, len(a.K)), make([]float32, len(a.V))}
		team.AttentionGrad(g[0], g[1], g[2], a.Q, a, t)
		return g
	}
	wantGrad, gotGrad := grads(nil), grads(table)
	for i := range wantGrad {
		largest := float32(1)
		for _, x := range wantGrad[i] {
			largest = max(largest, x, -x)
		}
		for j := range wantGrad[i] {
			wantGrad[i][j] /= largest
			gotGrad[i][j] /= largest
		}
		closeTo(t, "gradient with all columns", gotGrad[i], wantGrad[i])
	}

	// A group of all queries is one shared set of columns.
	team.Scores(scores[:a.Batch*a.Heads*n], n, a, n, 0)
	k := rapid.IntRange(1, n).Draw(t, "k")
	one := &kernel.Table{Bits: make([]uint32, a.Batch*a.Heads*words), Group: n, Reach: -1}
	team.TopKRows(one.Bits, scores[:a.Batch*a.Heads*n], a.Batch*a.Heads, n, k, nil)
	many := &kernel.Table{Bits: make([]uint32, rows*words), Group: group, Reach: -1}
	for r := range rows {
		copy(many.Bits[r*words:][:words], one.Bits[r/groups*words:])
	}
	team.ColumnSparse(dense, nil, a, one)
	team.ColumnSparse(out, nil, a, many)
	closeTo(t, "one set in many groups", out, dense)
}

func indices(n int) []int {
	x := make([]int, n)
	for i := range x {
		x[i] = i
	}
	return x
}

func repeatHeads(a *kernel.Operands, x []float32) (repeated []float32) {
	size := a.Len * a.HeadDim
	for head := range a.Batch * a.Heads {
		kv := head / a.Heads * a.KVHeads
		kv += head % a.Heads / (a.Heads / a.KVHeads)
		repeated = append(repeated, x[kv*size:][:size]...)
	}
	return repeated
}

// TestWorkerCount checks that results have the same bits for any number of
// workers.
func TestWorkerCount(t *testing.T) {
	a := operands(attncase.Rand(9), kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 300, HeadDim: 16})
	attncase.Padding(attncase.Scattered).Apply(a)
	const group = 32
	rows, words := 2*4*kernel.Groups(a.Len, group), kernel.Words(a.Len)
	w := newMatrix(t, 300, 64, kernel.BF16, attncase.Normal(attncase.Rand(10), 300*64, 1))
	run := func(team *kernel.Team) map[string][]float32 {
		out, lse, scores := make([]float32, len(a.Q)), make([]float32, 2*4*a.Len), make([]float32, rows*a.Len)
		r := map[string][]float32{"out": out, "lse": lse, "scores": scores}
		team.DenseScores(out, scores, a, group)
		table := &kernel.Table{Bits: make([]uint32, rows*words), Group: group, Reach: -1}
		for b := range a.Batch {
			half := rows / a.Batch
			team.TopKRows(table.Bits[b*half*words:][:half*words], scores[b*half*a.Len:][:half*a.Len], half, a.Len, 30, a.Valid[b*a.Len:][:a.Len])
		}
		sparse, dq, dk, dv := make([]float32, len(a.Q)), make([]float32, len(a.Q)), make([]float32, len(a.K)), make([]float32, len(a.K))
		team.ColumnSparse(sparse, lse, a, table)
		team.AttentionGrad(dq, dk, dv, out, a, table)
		r["sparse"], r["dq"], r["dk"], r["dv"] = sparse, dq, dk, dv
		y := make([]float32, len(a.Q)/64*300)
		team.Linear(y, a.Q, len(a.Q)/64, &w, nil)
		r["linear"] = y
		return r
	}
	want := run(&kernel.Team{Workers: 1})
	saved := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(saved)
	for _, workers := range []int{0, 2, 7} {
		for name, x := range run(&kernel.Team{Workers: workers}) {
			tol.SameBits(t, name, x, want[name])
		}
	}
}

// fuzzAttention runs f on attention of any shape, with a table of columns.
func fuzzAttention(f *testing.F, run func(t *testing.T, r *rand.Rand, a *kernel.Operands, c attncase.Case, table *kernel.Table)) {
	f.Add(uint64(1), uint8(1), uint8(1), uint8(1), uint8(4), uint8(1), uint8(0), int8(-1))
	f.Add(uint64(2), uint8(2), uint8(7), uint8(129), uint8(16), uint8(32), uint8(1), int8(-1))
	f.Add(uint64(3), uint8(1), uint8(2), uint8(70), uint8(5), uint8(9), uint8(2), int8(6))
	f.Fuzz(func(t *testing.T, seed uint64, kvHeads, ratio, n, dim, group, pad uint8, reach int8) {
		s := kernel.Shape{Batch: 1, KVHeads: 1 + int(kvHeads)%2, Len: 1 + int(n), HeadDim: 1 + int(dim)%40}
		s.Heads = s.KVHeads * (1 + int(ratio)%4)
		r := attncase.Rand(seed)
		a := operands(r, s)
		[]attncase.Padding{nil, attncase.Left, attncase.Scattered, attncase.FirstRow}[pad%4].Apply(a)
		c := attncase.Case{Shape: s, Group: 1 + int(group)}
		table := c.Tables(r)["random"]
		table.Reach, table.Sinks = int(reach), int(pad)
		run(t, r, a, c, table)
	})
}

// FuzzISAs compares the instruction sets with the reference on any shape.
func FuzzISAs(f *testing.F) {
	fuzzAttention(f, func(t *testing.T, r *rand.Rand, a *kernel.Operands, c attncase.Case, table *kernel.Table) {
		s := a.Shape
		dout := attncase.Normal(r, len(a.Q), 1)
		want := attentionResults(a, c.Group, dout, map[string]*kernel.Table{"sparse": table})
		for _, name := range kernel.ISANames() {
			kernel.WithISA(name, func() {
				check := func(what string, got []float32) {
					t.Helper()
					compare(t, name+" "+what, got, want[what].plain, want[what].want)
				}
				out, lse := make([]float32, len(a.Q)), make([]float32, s.Heads*s.Len)
				team.Dense(out, lse, a)
				check("dense out", out)
				check("dense lse", lse)
				team.ColumnSparse(out, lse, a, table)
				check("sparse out", out)
				check("sparse lse", lse)
				scores := make([]float32, s.Heads*kernel.Groups(s.Len, c.Group)*s.Len)
				team.DenseScores(out, scores, a, c.Group)
				check("scores", scores)
				dq, dk, dv := make([]float32, len(a.Q)), make([]float32, len(a.K)), make([]float32, len(a.V))
				team.AttentionGrad(dq, dk, dv, dout, a, table)
				check("sparse dq", dq)
				check("sparse dk", dk)
				check("sparse dv", dv)
			})
		}
	})
}

// FuzzLayers compares the instruction sets on layers of any shape with the portable one, which
// the tests of layers hold to references.
func FuzzLayers(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(31), uint8(4), int32(7), float32(1))
	f.Add(uint64(2), uint8(1), uint8(64), uint8(16), int32(40000), float32(-90))
	f.Add(uint64(3), uint8(9), uint8(100), uint8(11), int32(-5), float32(math.Inf(1)))
	f.Fuzz(func(t *testing.T, seed uint64, rows, cols, half uint8, pos int32, special float32) {
		r := attncase.Rand(seed)
		n, features, dim := 1+int(rows)%12, 1+int(cols), 2+2*(int(half)%80)
		out := 1 + int(half)
		w := newMatrix(t, out, features, []kernel.DType{kernel.F32, kernel.BF16, kernel.F16}[seed%3], attncase.Normal(r, out*features, 1))
		x, y := attncase.Normal(r, n*features, 1), attncase.Normal(r, n*features, 1)
		x[len(x)/2] = special
		heads := attncase.Normal(r, n*2*dim, 1)
		positions := make([]int32, n)
		for i := range positions {
			positions[i] = pos + int32(i)
		}
		gate := kernel.Projection{Weight: newMatrix(t, len(x), 1, kernel.F32, x)}
		up := kernel.Projection{Weight: newMatrix(t, len(x), 1, kernel.F32, y)}
		layers := func() map[string][]float32 {
			got := map[string][]float32{
				"RMSNorm": make([]float32, len(x)), "SwiGLU": make([]float32, len(x)),
				"RoPE": make([]float32, len(heads)),
			}
			team.RMSNorm(got["RMSNorm"], x, y[:features], 1e-5)
			// Weights times 1 are the arguments of the activation.
			team.SwiGLU(got["SwiGLU"], []float32{1}, 1, gate, up)
			team.RoPE(got["RoPE"], heads, positions, 1, n, kernel.Heads{Count: 2, Dim: dim}, 1e4)
			for _, p := range []kernel.Precision{kernel.Float32, kernel.BFloat16, kernel.Int16} {
				rounded, name := w, "Linear "+p.String()
				rounded.Precision, got[name] = p, make([]float32, n*out)
				team.Linear(got[name], x, n, &rounded, nil)
			}
			return got
		}
		var want map[string][]float32
		kernel.WithISA("portable", func() { want = layers() })
		for _, name := range kernel.ISANames() {
			kernel.WithISA(name, func() {
				for what, got := range layers() {
					scale := float32(1)
					if strings.HasPrefix(what, "Linear") {
						scale = float32(features) // terms, added in another order
						if finite(float64(special)) {
							scale *= max(1, special, -special)
						}
					}
					same, wide := make([]float32, len(got)), make([]float64, len(got))
					for i, f := range want[what] {
						got[i] /= scale
						same[i], wide[i] = f/scale, float64(f/scale)
					}
					compare(t, name+" "+what, got, same, wide)
				}
			})
		}
	})
}

// FuzzTopK compares the selection with sorting on any bits.
func FuzzTopK(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 192, 127, 0, 0, 128, 63}, 1)
	f.Fuzz(func(t *testing.T, data []byte, k int) {
		scores := make([]float32, len(data)/4)
		for i := range scores {
			scores[i] = getFloat32(data[4*i:])
		}
		got := make([]uint32, kernel.Words(len(scores)))
		want := ref.Bitmap(len(scores), ref.TopK(scores, nil, k))
		for _, name := range kernel.ISANames() {
			kernel.WithISA(name, func() { kernel.TopK(got, scores, k) })
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s: TopK(%v, %d): word %d is %08x, want %08x", name, scores, k, i, got[i], want[i])
				}
			}
		}
	})
}
