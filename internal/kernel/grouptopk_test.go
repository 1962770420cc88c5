package kernel_test

import (
	"math"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
)

// keysOf lists the set bits of a bitmap.
func keysOf(bitmap []uint32) []int {
	keys := []int{}
	for i, word := range bitmap {
		for ; word != 0; word &= word - 1 {
			keys = append(keys, 32*i+bits.TrailingZeros32(word))
		}
	}
	return keys
}

func TestTopK(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	negativeZero := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		name   string
		scores []float32
		k      int
		want   []int
	}{
		{"nothing to select from", nil, 3, []int{}},
		{"k = 0", []float32{1, 2}, 0, []int{}},
		{"k < 0", []float32{1, 2}, -1, []int{}},
		{"one", []float32{5}, 1, []int{0}},
		{"k = n", []float32{1, 2, 3}, 3, []int{0, 1, 2}},
		{"k > n", []float32{1, 2, 3}, 9, []int{0, 1, 2}},
		{"k > n = 2^k", []float32{1, 2, 3}, math.MaxInt, []int{0, 1, 2}},
		{"largest", []float32{1, 3, 2, 5, 4}, 2, []int{3, 4}},
		{"ties to the smaller index", []float32{2, 7, 7, 7, 1}, 2, []int{1, 2}},
		{"all equal", []float32{1, 1, 1, 1}, 3, []int{0, 1, 2}},
		{"zeros of both signs are equal", []float32{0, negativeZero, 0}, 2, []int{0, 1}},
		{"negative", []float32{-3, -1, -2}, 2, []int{1, 2}},
		{"infinities", []float32{-inf, inf, 0, -inf}, 3, []int{0, 1, 2}},
		{"NaN last", []float32{nan, -inf, nan, 3}, 3, []int{0, 1, 3}},
		{"neighbouring floats", []float32{1, math.Nextafter32(1, 2), math.Nextafter32(1, 0)}, 1, []int{1}},
		{"subnormal", []float32{0, math.SmallestNonzeroFloat32, 0}, 1, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bitmap := make([]uint32, kernel.Words(len(c.scores)))
			for i := range bitmap {
				bitmap[i] = math.MaxUint32 // must be overwritten
			}
			kernel.TopK(bitmap, c.scores, c.k)
			if got := keysOf(bitmap); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// scoresWithTies draws scores from few values, among them special ones, or from
// all float32.
func scoresWithTies(t *rapid.T, n int) []float32 {
	few := rapid.SampledFrom([]float32{0, 1, 1, 2, -1, 0.25, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))})
	all := rapid.Map(rapid.Uint32(), math.Float32frombits)
	return rapid.SliceOfN(rapid.OneOf(few, all), n, n).Draw(t, "scores")
}

func validMask(t *rapid.T, n int) []float32 {
	if rapid.Bool().Draw(t, "no mask") {
		return nil
	}
	return rapid.SliceOfN(rapid.SampledFrom([]float32{0, 1}), n, n).Draw(t, "valid")
}

// sideBySide concatenates each row of a with the same row of b.
func sideBySide(a, b []float32, rows int) (both []float32) {
	for r := range rows {
		both = append(both, a[r*len(a)/rows:(r+1)*len(a)/rows]...)
		both = append(both, b[r*len(b)/rows:(r+1)*len(b)/rows]...)
	}
	return both
}

// TestSelectionsMatchSorting compares the three selections with their definitions.
func TestSelectionsMatchSorting(t *testing.T) {
	kernel.ForEachISA(t, func(t *testing.T) { rapid.Check(t, checkSelections) })
}

func checkSelections(t *rapid.T) {
	rows := rapid.IntRange(1, 3).Draw(t, "rows")
	n := rapid.IntRange(1, 100).Draw(t, "n")
	scores := scoresWithTies(t, rows*n)
	valid := validMask(t, n)
	k := rapid.IntRange(-1, n+1).Draw(t, "k")
	block := rapid.SampledFrom([]int{1, 2, 7, 32, 1000}).Draw(t, "block")
	blocks := (n + block - 1) / block
	last := rapid.IntRange(0, blocks).Draw(t, "last")
	prompt := min(n, last*block)
	genScores := scoresWithTies(t, rows*(n-prompt))
	genQuota := rapid.IntRange(0, blocks).Draw(t, "genQuota")

	words := kernel.Words(n)
	check := func(what string, bitmap []uint32, want func(row []float32, r int) []int) {
		t.Helper()
		for r := range rows {
			keys := want(scores[r*n:][:n], r)
			slices.Sort(keys)
			if got := keysOf(bitmap[r*words:][:words]); !slices.Equal(got, append([]int{}, keys...)) {
				t.Fatalf("%s row %d: got %v, want %v", what, r, got, keys)
			}
		}
	}
	bitmap := make([]uint32, rows*words)
	team.TopKRows(bitmap, scores, rows, n, k, valid)
	check("TopKRows", bitmap, func(row []float32, r int) []int { return ref.TopK(row, valid, k) })
	team.BlockTopKRows(bitmap, scores, rows, n, block, k, valid)
	check("BlockTopKRows", bitmap, func(row []float32, r int) []int { return ref.BlockTopK(row, valid, block, k) })
	team.SparseDRows(bitmap, sideBySide(scores, genScores, rows), rows, n, block, last, k, genQuota)
	check("SparseDRows", bitmap, func(row []float32, r int) []int {
		return ref.SparseD(row, genScores[r*(n-prompt):][:n-prompt], block, last, k, genQuota)
	})
}

// TestWorkedExamples follows a matrix of scores by hand through the selections
// of PulseCol and SparseD: S[i][j] = (3i + 5j + ij) mod 7 for 8 tokens. The
// SparseD masks are those of its published code.
func TestWorkedExamples(t *testing.T) {
	logits := func(n int) *kernel.Operands {
		a := &kernel.Operands{Shape: kernel.Shape{Batch: 1, Heads: 1, KVHeads: 1, Len: n, HeadDim: 8},
			Q: make([]float32, n*8), K: make([]float32, n*8), V: make([]float32, n*8), Scale: 1}
		for i := range n {
			for j := range n {
				a.Q[i*8+j] = float32((3*i + 5*j + i*j) % 7)
			}
			a.K[i*8+i] = 1
		}
		return a
	}

	for _, c := range []struct {
		group, k int
		want     [][]int
	}{
		{4, 3, [][]int{{1, 4, 5}, {0, 1, 4}}},
		{2, 2, [][]int{{4, 5}, {3, 4}, {4, 6}, {2, 4}}},
	} {
		groups := kernel.Groups(8, c.group)
		scores := make([]float32, groups*8)
		team.Scores(scores, 8, logits(8), c.group, 0)
		bitmap := make([]uint32, groups)
		team.TopKRows(bitmap, scores, groups, 8, c.k, nil)
		for u, want := range c.want {
			if got := keysOf(bitmap[u : u+1]); !slices.Equal(got, want) {
				t.Errorf("PulseCol, group size %d, group %d: %v, want %v", c.group, u, got, want)
			}
		}
		if c.group == 4 {
			for i, want := range []float32{
				.0421, .0999, .0613, .0902, .4989, .1094, .0559, .0421,
				.0684, .0807, .0642, .0289, .5894, .0324, .0676, .0684,
			} {
				if math.Abs(float64(scores[i]-want)) > 5e-5 {
					t.Errorf("mean score %d is %.5f, want %.4f", i, scores[i], want)
				}
			}
		}
	}

	const block, last = 2, 2
	for _, c := range []struct {
		n, quota, genQuota int
		importance         []float32
		want               []string // query blocks x key blocks
	}{
		{8, 2, 1,
			[]float32{.0689, .0103, .3891, .0317, .0731, .1412, .2192, .0664, .0699, .0279, .2896, .1126, .0792, .0652, .3323, .0234},
			[]string{"1010", "0110", "0010", "1010"}},
		{8, 3, 2, nil, []string{"1011", "1111", "1011", "1111"}},
		{7, 3, 2,
			[]float32{.0694, .0104, .3959, .0243, .0822, .1510, .2300, .0368, .0811, .0326, .3203, .0661, .0225, .0611, .1660, .0004},
			[]string{"1011", "1111", "1011", "1111"}},
	} {
		a := logits(c.n)
		groups, generation := kernel.Groups(c.n, block), c.n-last*block
		scores, genScores := make([]float32, groups*c.n), make([]float32, groups*generation)
		team.Scores(scores, c.n, a, block, 0)
		team.Scores(genScores, c.n-last*block, a, block, last*block)
		for i, want := range c.importance {
			u, b := i/groups, i%groups
			queries := min((u+1)*block, c.n) - u*block
			sum := float32(0)
			for j := b * block; j < min((b+1)*block, c.n); j++ {
				sum += scores[u*c.n+j] * float32(queries) / (block * block)
			}
			if math.Abs(float64(sum-want)) > 6e-5 {
				t.Errorf("n = %d: importance of cell %d,%d is %.5f, want %.4f", c.n, u, b, sum, want)
			}
		}
		bitmap := make([]uint32, groups)
		team.SparseDRows(bitmap, sideBySide(scores, genScores, groups), groups, c.n, block, last, c.quota, c.genQuota)
		for u, row := range c.want {
			var want []int
			for j := range c.n {
				if row[j/block] == '1' {
					want = append(want, j)
				}
			}
			if got := keysOf(bitmap[u : u+1]); !slices.Equal(got, want) {
				t.Errorf("SparseD, n = %d, quota %d: query block %d keeps %v, want %v", c.n, c.quota, u, got, want)
			}
		}
	}
}
