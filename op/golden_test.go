package op_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pulsecol/pulsecol/internal/golden"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/tol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/tensor"
)

// TestGoldenAttention runs every operator of column-sparse attention on a tape
// machine against the reference outputs.
func TestGoldenAttention(t *testing.T) {
	golden.Attentions(t, func(t *testing.T, c *golden.Attention) {
		a := c.Operands()
		in := qkv(a)
		p := op.AttentionParams{Group: c.GroupSize, Selection: op.Selection{Sparsity: c.Sparsity}}

		full := run(t, must(op.NewDenseAttn("golden", 0, false))(t), in...)
		plain, _ := ref.Attention[float32](a, nil)
		tol.ClosePlain(t, float32s(full), plain, c.Float32s("dense"))

		scores := run(t, must(op.NewScoreCollect("golden", p))(t), in...)
		want, plainScores := c.Float32s("scores"), ref.Scores[float32](a, c.GroupSize, 0)
		tol.ClosePlain(t, float32s(scores), plainScores, want)

		columns := run(t, must(op.NewGroupTopK("golden", c.Len, p))(t), scores)
		index := c.Index()
		checkSets(t, keySets(uint32s(columns), c.Len), index, c.Keep, want, 2*tol.Bound(plainScores, want))

		bits := make([]uint32, 0, columns.Shape().TotalSize())
		for row := range slices.Chunk(index, c.Keep) {
			keys := make([]int, c.Keep)
			for i, j := range row {
				keys[i] = int(j)
			}
			bits = append(bits, ref.Bitmap(c.Len, keys)...)
		}
		sparse := run(t, must(op.NewColumnSparseAttn("golden", p))(t), append(in, dense(bits, columns.Shape()...))...)
		plain, _ = ref.Attention[float32](a, &kernel.Table{Bits: bits, Group: c.GroupSize, Reach: -1})
		tol.ClosePlain(t, float32s(sparse), plain, c.Float32s("sparse"))
	})
}

// checkSets compares the kept keys of each row with index. They may differ in
// keys whose scores are closer together than gap, which rounding may swap.
func checkSets(t *testing.T, got [][]int, index []int32, keep int, scores []float32, gap float64) {
	t.Helper()
	n := len(scores) / len(got)
	for r, keys := range got {
		if len(keys) != keep {
			t.Fatalf("row %d keeps %d keys, want %d", r, len(keys), keep)
		}
		var extra, missing []int
		for j := range n {
			_, ours := slices.BinarySearch(keys, j)
			theirs := slices.Contains(index[r*keep:(r+1)*keep], int32(j))
			if ours && !theirs {
				extra = append(extra, j)
			} else if theirs && !ours {
				missing = append(missing, j)
			}
		}
		for i := range extra {
			a, b := float64(scores[r*n+extra[i]]), float64(scores[r*n+missing[i]])
			if math.Abs(a-b) > gap {
				t.Errorf("row %d keeps key %d with score %g, the reference key %d with %g", r, extra[i], a, missing[i], b)
			}
		}
	}
}

// TestGoldenSparseD compares whole-sequence block masks with SparseD's own mask
// function. That function ranks all blocks of the keys it is given, which is one
// of the two passes of the model's code: the pass over the generation, when all
// of the sequence is generated.
func TestGoldenSparseD(t *testing.T) {
	var cases []struct {
		Case      int
		Heads     int
		Len       int     `json:"seq_len"`
		HeadDim   int     `json:"head_dim"`
		Block     int     `json:"block_size"`
		KeepRatio float64 `json:"keep_ratio"`
		Kept      int     `json:"blocks_kept_per_query_block"`
	}
	set := golden.Open(t, "sparsed/blockmask")
	set.JSON(&cases)
	if len(cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range cases {
		t.Run(fmt.Sprint("case", c.Case), func(t *testing.T) {
			q, shape := set.Float32s(fmt.Sprintf("case%d.q", c.Case))
			k, _ := set.Float32s(fmt.Sprintf("case%d.k", c.Case))
			mask, _ := set.Int32s(fmt.Sprintf("case%d.block_mask", c.Case))
			p := op.AttentionParams{Group: c.Block, Selection: op.Selection{
				Kind: op.SelectSparseD, Sparsity: 1 - c.KeepRatio, Block: c.Block, Generation: c.Len,
			}}
			scores := run(t, must(op.NewScoreCollect("sparsed", p))(t), dense(q, shape...), dense(k, shape...), dense(k, shape...))
			columns := run(t, must(op.NewGroupTopK("sparsed", c.Len, p))(t), scores)

			blocks := kernel.Groups(c.Len, c.Block)
			var want, got [][]int
			for row := range slices.Chunk(mask, blocks) {
				var kept []int
				for b, x := range row {
					if x != 0 {
						kept = append(kept, b)
					}
				}
				if len(kept) != c.Kept {
					t.Fatalf("the reference keeps blocks %v, want %d of them", kept, c.Kept)
				}
				want = append(want, kept)
			}
			for _, keys := range keySets(uint32s(columns), c.Len) {
				got = append(got, wholeBlocks(t, keys, c.Len, c.Block))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kept blocks (-want +got):\n%s", diff)
			}
		})
	}
}

// wholeBlocks lists the blocks that keys consists of.
func wholeBlocks(t *testing.T, keys []int, n, block int) []int {
	t.Helper()
	var blocks []int
	for i := 0; i < len(keys); {
		b := keys[i] / block
		blocks = append(blocks, b)
		for j := b * block; j < min((b+1)*block, n); j++ {
			if i == len(keys) || keys[i] != j {
				t.Fatalf("keys %v hold only a part of block %d", keys, b)
			}
			i++
		}
	}
	return blocks
}

// workedLogits are the logits (3i+5j+ij) mod 7 of n queries and keys, as q and k
// of one head with scale 1: k is the identity.
func workedLogits(n int) (q, k *tensor.Dense) {
	logits, identity := make([]float32, n*n), make([]float32, n*n)
	for i := range n {
		for j := range n {
			logits[i*n+j] = float32((3*i + 5*j + i*j) % 7)
		}
		identity[i*n+i] = 1
	}
	return dense(logits, 1, 1, n, n), dense(identity, 1, 1, n, n)
}

// selectKeys runs ScoreCollect and GroupTopK on the worked logits.
func selectKeys(t *testing.T, n int, p op.AttentionParams) (scores *tensor.Dense, sets [][]int) {
	t.Helper()
	p.Scale = 1
	q, k := workedLogits(n)
	scores = run(t, must(op.NewScoreCollect("worked", p))(t), q, k, k)
	columns := run(t, must(op.NewGroupTopK("worked", n, p))(t), scores)
	return scores, keySets(uint32s(columns), n)
}

// TestWorkedColumns is PulseCol by hand on eight tokens.
func TestWorkedColumns(t *testing.T) {
	scores, sets := selectKeys(t, 8, op.AttentionParams{Group: 4, Selection: op.Selection{Sparsity: 0.6}})
	want := []float32{
		.0421, .0999, .0613, .0902, .4989, .1094, .0559, .0421,
		.0684, .0807, .0642, .0289, .5894, .0324, .0676, .0684,
	}
	for i, s := range float32s(scores) {
		if math.Abs(float64(s-want[i])) > 0.00005+tol.ULP {
			t.Errorf("score %d is %v, want %v to four digits", i, s, want[i])
		}
	}
	// Keys 0 and 7 of the second group tie; the smaller index wins.
	if diff := cmp.Diff([][]int{{1, 4, 5}, {0, 1, 4}}, sets); diff != "" {
		t.Errorf("groups of 4, 3 keys (-want +got):\n%s", diff)
	}
	_, sets = selectKeys(t, 8, op.AttentionParams{Group: 2, Selection: op.Selection{Sparsity: 0.75}})
	if diff := cmp.Diff([][]int{{4, 5}, {3, 4}, {4, 6}, {2, 4}}, sets); diff != "" {
		t.Errorf("groups of 2, 2 keys (-want +got):\n%s", diff)
	}
}

// TestWorkedSparseD is SparseD's two-part selection by hand, with a whole and
// with a short last block.
func TestWorkedSparseD(t *testing.T) {
	for _, c := range []struct {
		n, generation int
		sparsity      float64
		pooled, gen   [][]float64 // mean attention in each cell, over all keys and over the generation's
		blocks        [][]int
	}{
		{
			n: 8, generation: 4, sparsity: 0.7,
			pooled: [][]float64{
				{.0689, .0103, .3891, .0317}, {.0731, .1412, .2192, .0664},
				{.0699, .0279, .2896, .1126}, {.0792, .0652, .3323, .0234},
			},
			gen:    [][]float64{{.4657, .0343}, {.3689, .1311}, {.3595, .1405}, {.4665, .0335}},
			blocks: [][]int{{0, 2}, {1, 2}, {2}, {0, 2}},
		},
		{n: 8, generation: 4, sparsity: 0.5, blocks: [][]int{{0, 2, 3}, {0, 1, 2, 3}, {0, 2, 3}, {0, 1, 2, 3}}},
		{
			n: 7, generation: 3, sparsity: 0.5,
			pooled: [][]float64{
				{.0694, .0104, .3959, .0243}, {.0822, .1510, .2300, .0368},
				{.0811, .0326, .3203, .0661}, {.0225, .0611, .1660, .0004},
			},
			blocks: [][]int{{0, 2, 3}, {0, 1, 2, 3}, {0, 2, 3}, {0, 1, 2, 3}},
		},
	} {
		t.Run(fmt.Sprintf("n%d-%v", c.n, c.sparsity), func(t *testing.T) {
			const block = 2
			scores, sets := selectKeys(t, c.n, op.AttentionParams{Group: block, Selection: op.Selection{
				Kind: op.SelectSparseD, Sparsity: c.sparsity, Block: block, Generation: c.generation,
			}})
			var got [][]int
			for _, keys := range sets {
				got = append(got, wholeBlocks(t, keys, c.n, block))
			}
			if diff := cmp.Diff(c.blocks, got); diff != "" {
				t.Errorf("kept blocks (-want +got):\n%s", diff)
			}
			// Scores are means over the queries there are; the reference divides
			// the sum of a cell by its full size.
			check := func(want [][]float64, first, length int) {
				for u, row := range want {
					queries := min(block, c.n-u*block)
					for b, w := range row {
						sum := 0.0
						for j := b * block; j < min((b+1)*block, length); j++ {
							sum += float64(float32s(scores)[u*scores.Shape()[3]+first+j])
						}
						if got := sum * float64(queries) / (block * block); math.Abs(got-w) > 0.00005+tol.ULP {
							t.Errorf("query block %d, key block %d: %.5f, want %.4f", u, b, got, w)
						}
					}
				}
			}
			check(c.pooled, 0, c.n)
			check(c.gen, c.n, c.n-2*block)
		})
	}
}
