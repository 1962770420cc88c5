package exec

import (
	"fmt"
	"testing"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// TestKeep counts kept keys: max(1, ⌊(1-sparsity)·n⌋) in float64.
func TestKeep(t *testing.T) {
	for _, c := range []struct {
		sparsity float64
		n, want  int
	}{
		{0, 7, 7}, {0.5, 1, 1}, {0.5, 2, 1}, {0.5, 5, 2}, {0.9, 10, 1}, {0.99, 3, 1}, {0.3, 10, 7}, {0.8, 4096, 819},
		{0.8, 200, 39},  // 39.99… in float64, as in the reference outputs
		{1e-17, 10, 10}, // 1 - 1e-17 is 1
		{1e-9, 10, 9},
		{0.5, 0, 1}, // nothing but padding: the kernel finds no key to keep
	} {
		if got := (Selection{Sparsity: c.sparsity}).Keep(c.n); got != c.want {
			t.Errorf("sparsity %v of %d keys keeps %d, want %d", c.sparsity, c.n, got, c.want)
		}
	}
}

// TestSparseDQuotas has the quotas of the published sizes.
func TestSparseDQuotas(t *testing.T) {
	for _, c := range []struct {
		n, generation, block int
		kept                 float64
		quota, last, genPart int // blocks of the first pass, first generated block, blocks of the second pass
	}{
		{4096 + 128, 128, 128, 0.3, 10, 32, 1},
		{100 + 128, 128, 32, 0.5, 5, 4, 3},
		{8, 4, 2, 0.3, 2, 2, 1},
		{8, 4, 2, 0.5, 3, 2, 2},
		{256, 256, 32, 0.3, 3, 0, 3},
		{256, 1000, 32, 0.3, 3, 0, 3}, // more generated than there is
		{256, 0, 32, 0.3, 3, 7, 1},    // nothing generated: the last block
		{5, 2, 32, 0.1, 1, 0, 1},      // one short block
		{320, 32, 32, 0.2, 3, 9, 1},   // 10 * 0.2 is 2, though 1-0.8 is less than 0.2 in float64
	} {
		s := Selection{Kind: SelectSparseD, Sparsity: 1 - c.kept, Block: c.block, Generation: c.generation}
		blocks := kernel.Groups(c.n, c.block)
		last := s.GenerationBlock(c.n)
		if got := [3]int{s.Quota(blocks), last, s.Quota(blocks - last)}; got != [3]int{c.quota, c.last, c.genPart} {
			t.Errorf("%+v: quota, first generated block and its quota are %v", c, got)
		}
		if got, want := s.ScoreWidth(c.n), c.n+c.n-last*c.block; got != want {
			t.Errorf("%+v: %d scores in a row, want %d", c, got, want)
		}
	}
	if got := (Selection{Kind: SelectSparseD}).Quota(4); got != 4 {
		t.Errorf("with everything kept the quota of 4 blocks is %d, want 4", got)
	}
}

// TestGenerationBlock against its definition: the first block i that lies fully
// inside the generated tokens, n - i·block <= generation, or the last.
func TestGenerationBlock(t *testing.T) {
	for n := 1; n < 20; n++ {
		for block := 1; block < 8; block++ {
			for generation := range 22 {
				want := 0
				for want < kernel.Groups(n, block)-1 && n-want*block > generation {
					want++
				}
				s := Selection{Kind: SelectSparseD, Block: block, Generation: generation}
				if got := s.GenerationBlock(n); got != want {
					t.Fatalf("n %d, block %d, generation %d: %d, want %d", n, block, generation, got, want)
				}
			}
		}
	}
}

// TestStaticTable against its definition: a group holds every key that one of its
// queries keeps, and the density counts pairs.
func TestStaticTable(t *testing.T) {
	for _, n := range []int{1, 2, 31, 32, 33, 70} {
		for _, group := range []int{1, 3, 32, 100} {
			for _, reach := range []int{0, 1, 10, 1000} {
				for _, fraction := range []float64{0, 0.1, 0.5, 1} {
					s := Selection{Kind: SelectStatic, Reach: reach, SinkFraction: fraction}
					sinks := s.Sinks(n)
					keeps := func(i, j int) bool { return max(i-j, j-i) <= reach || j < sinks }
					words := make([]uint32, kernel.Groups(n, group)*kernel.Words(n))
					for i := range words {
						words[i] = 0xdeadbeef // whatever was there
					}
					s.fillStatic(words, 0, n, n, group)
					pairs := 0
					for u := range kernel.Groups(n, group) {
						for j := range 32 * kernel.Words(n) {
							want := false
							for i := u * group; i < min((u+1)*group, n) && j < n; i++ {
								if keeps(i, j) {
									want = true
									pairs++
								}
							}
							if got := words[u*kernel.Words(n)+j/32]>>(j%32)&1 != 0; got != want {
								t.Fatalf("n %d, group %d, reach %d, sinks %d: key %d of group %d is %v, want %v", n, group, reach, sinks, j, u, got, want)
							}
						}
					}
					if got, want := s.staticDensity(n), float64(pairs)/float64(n*n); got != want {
						t.Fatalf("n %d, reach %d, sinks %d: density %v, want %v", n, reach, sinks, got, want)
					}
				}
			}
		}
	}
}

// TestSinks: ⌈fraction·n⌉ of the decimal fraction that was written.
func TestSinks(t *testing.T) {
	for _, c := range []struct {
		fraction float64
		n, want  int
	}{{0, 5, 0}, {0.1, 5, 1}, {0.1, 10, 1}, {0.1, 30, 3}, {0.1, 31, 4}, {0.7, 10, 7}, {1, 5, 5}} {
		if got := (Selection{SinkFraction: c.fraction}).Sinks(c.n); got != c.want {
			t.Errorf("%v of %d: %d sinks, want %d", c.fraction, c.n, got, c.want)
		}
	}
}

func TestSelectionKindString(t *testing.T) {
	got := fmt.Sprint(SelectColumns, SelectBlocks, SelectSparseD, SelectStatic, SelectionKind(9))
	if want := "columns blocks sparsed static SelectionKind(9)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
