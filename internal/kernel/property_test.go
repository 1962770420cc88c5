package kernel_test

import (
	"math"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
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
	a := operands(newRand(rapid.Uint64().Draw(t, "seed")), s)
	rapid.SampledFrom([]padding{nil, leftPadding, scatteredPadding}).Draw(t, "padding").apply(a)
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

// TestProperties checks what must hold for any attention, whatever its values.
func TestProperties(t *testing.T) {
	kernel.ForEachLevel(t, func(t *testing.T) { rapid.Check(t, checkProperties) })
}

func checkProperties(t *rapid.T) {
	a := drawOperands(t)
	dense := make([]float32, len(a.Q))
	kernel.Dense(dense, nil, a)
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
	kernel.Dense(out, nil, &permuted)
	closeTo(t, "permuted keys", out, dense)

	// Grouped-query attention equals attention with repeated key/value heads.
	repeated := *a
	repeated.KVHeads = a.Heads
	repeated.K, repeated.V = repeatHeads(a, a.K), repeatHeads(a, a.V)
	kernel.Dense(out, nil, &repeated)
	closeTo(t, "repeated heads", out, dense)

	// DenseScores gives the dense output, and scores that sum to 1 where there
	// is a key.
	rows := a.Batch * a.Heads * groups
	scores := make([]float32, rows*n)
	kernel.DenseScores(out, scores, a, group)
	closeTo(t, "output with scores", out, dense)
	for r := range rows {
		valid := a.Valid
		if valid != nil {
			valid = valid[r/(a.Heads*groups)*n:][:n]
		}
		sum, want := 0.0, 0.0
		for j, s := range scores[r*n:][:n] {
			sum += float64(s)
			if valid == nil || valid[j] != 0 {
				want = 1
			} else if s != 0 {
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
	kernel.TopKRows(table.Bits, scores, rows, n, func(int) int { return n }, nil)
	kernel.ColumnSparse(out, nil, a, table)
	closeTo(t, "all columns", out, dense)
	grads := func(t *kernel.Table) (g [3][]float32) {
		g = [3][]float32{make([]float32, len(a.Q)), make([]float32, len(a.K)), make([]float32, len(a.V))}
		kernel.AttentionGrad(g[0], g[1], g[2], a.Q, a, t)
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
	kernel.Scores(scores[:a.Batch*a.Heads*n], a, n, 0)
	k := rapid.IntRange(1, n).Draw(t, "k")
	one := &kernel.Table{Bits: make([]uint32, a.Batch*a.Heads*words), Group: n, Reach: -1}
	kernel.TopKRows(one.Bits, scores[:a.Batch*a.Heads*n], a.Batch*a.Heads, n, func(int) int { return k }, nil)
	many := &kernel.Table{Bits: make([]uint32, rows*words), Group: group, Reach: -1}
	for r := range rows {
		copy(many.Bits[r*words:][:words], one.Bits[r/groups*words:])
	}
	kernel.ColumnSparse(dense, nil, a, one)
	kernel.ColumnSparse(out, nil, a, many)
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
	a := operands(newRand(9), kernel.Shape{Batch: 2, Heads: 4, KVHeads: 2, Len: 300, HeadDim: 16})
	padding(scatteredPadding).apply(a)
	const group = 32
	rows, words := 2*4*kernel.Groups(a.Len, group), kernel.Words(a.Len)
	w := newMatrix(t, 300, 64, kernel.BF16, normal(newRand(10), 300*64, 1))
	run := func() map[string][]float32 {
		out, lse, scores := make([]float32, len(a.Q)), make([]float32, 2*4*a.Len), make([]float32, rows*a.Len)
		r := map[string][]float32{"out": out, "lse": lse, "scores": scores}
		kernel.DenseScores(out, scores, a, group)
		table := &kernel.Table{Bits: make([]uint32, rows*words), Group: group, Reach: -1}
		kernel.TopKRows(table.Bits, scores, rows, a.Len, func(int) int { return 30 }, func(row int) []float32 {
			return a.Valid[row/(rows/2)*a.Len:][:a.Len]
		})
		sparse, dq, dk, dv := make([]float32, len(a.Q)), make([]float32, len(a.Q)), make([]float32, len(a.K)), make([]float32, len(a.K))
		kernel.ColumnSparse(sparse, lse, a, table)
		kernel.AttentionGrad(dq, dk, dv, out, a, table)
		r["sparse"], r["dq"], r["dk"], r["dv"] = sparse, dq, dk, dv
		y := make([]float32, len(a.Q)/64*300)
		kernel.Linear(y, a.Q, len(a.Q)/64, &w, nil)
		r["linear"] = y
		return r
	}
	saved := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(saved)
	want := run()
	for _, workers := range []int{2, 7} {
		runtime.GOMAXPROCS(workers)
		for name, x := range run() {
			sameBits(t, name, x, want[name])
		}
	}
}

// TestPanicReachesCaller checks that a panic in a worker can be recovered by the
// caller, and that the package goes on working.
func TestPanicReachesCaller(t *testing.T) {
	const rows, n = 50, 10
	bitmap, scores := make([]uint32, rows), make([]float32, rows*n)
	for _, workers := range []int{1, 4} {
		saved := runtime.GOMAXPROCS(workers)
		func() {
			defer runtime.GOMAXPROCS(saved)
			defer func() {
				if r, _ := recover().(string); !strings.Contains(r, "no k for row") {
					t.Errorf("%d workers: recovered %q", workers, r)
				}
			}()
			kernel.TopKRows(bitmap, scores, rows, n, func(row int) int {
				if row == 20 {
					panic("no k for row 20")
				}
				return 1
			}, nil)
		}()
	}
	kernel.TopKRows(bitmap, scores, rows, n, func(int) int { return 1 }, nil)
}

// TestSteadyState checks that repeated calls live on scratch memory they have.
func TestSteadyState(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they hold")
	}
	a := operands(newRand(11), kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 200, HeadDim: 32})
	out, scores := make([]float32, len(a.Q)), make([]float32, 2*7*200)
	table := &kernel.Table{Bits: make([]uint32, 2*7*7), Group: 32, Reach: -1}
	saved := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(saved)
	perRun := testing.AllocsPerRun(20, func() {
		kernel.DenseScores(out, scores, a, 32)
		kernel.TopKRows(table.Bits, scores, 14, 200, func(int) int { return 20 }, nil)
		kernel.ColumnSparse(out, nil, a, table)
	})
	if perRun > 10 {
		t.Errorf("%.0f allocations a step, want a handful", perRun)
	}
}

// FuzzLevels compares the levels with the reference on any shape.
func FuzzLevels(f *testing.F) {
	f.Add(uint64(1), uint8(1), uint8(1), uint8(1), uint8(4), uint8(1), uint8(0), int8(-1))
	f.Add(uint64(2), uint8(2), uint8(7), uint8(129), uint8(16), uint8(32), uint8(1), int8(-1))
	f.Add(uint64(3), uint8(1), uint8(2), uint8(70), uint8(5), uint8(9), uint8(2), int8(6))
	f.Fuzz(func(t *testing.T, seed uint64, kvHeads, ratio, n, dim, group, pad uint8, reach int8) {
		s := kernel.Shape{Batch: 1, KVHeads: 1 + int(kvHeads)%2, Len: 1 + int(n), HeadDim: 1 + int(dim)%40}
		s.Heads = s.KVHeads * (1 + int(ratio)%4)
		r := newRand(seed)
		a := operands(r, s)
		[]padding{nil, leftPadding, scatteredPadding, firstRowPadding}[pad%4].apply(a)
		c := attentionCase{shape: s, group: 1 + int(group)}
		table := c.tables(r)["random"]
		table.Reach, table.Sinks = int(reach), int(pad)
		dout := normal(r, len(a.Q), 1)
		want := attentionResults(a, c.group, dout, map[string]*kernel.Table{"sparse": table})
		for _, name := range kernel.LevelNames() {
			kernel.WithLevel(name, func() {
				check := func(what string, got []float32) {
					t.Helper()
					compare(t, name+" "+what, got, want[what].plain, want[what].want)
				}
				out, lse := make([]float32, len(a.Q)), make([]float32, s.Heads*s.Len)
				kernel.Dense(out, lse, a)
				check("dense out", out)
				check("dense lse", lse)
				kernel.ColumnSparse(out, lse, a, table)
				check("sparse out", out)
				check("sparse lse", lse)
				scores := make([]float32, s.Heads*kernel.Groups(s.Len, c.group)*s.Len)
				kernel.DenseScores(out, scores, a, c.group)
				check("scores", scores)
				dq, dk, dv := make([]float32, len(a.Q)), make([]float32, len(a.K)), make([]float32, len(a.V))
				kernel.AttentionGrad(dq, dk, dv, dout, a, table)
				check("sparse dq", dq)
				check("sparse dk", dk)
				check("sparse dv", dv)
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
		kernel.TopK(got, scores, k)
		want := ref.Bitmap(len(scores), ref.TopK(scores, nil, k))
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("TopK(%v, %d): word %d is %08x, want %08x", scores, k, i, got[i], want[i])
			}
		}
	})
}
