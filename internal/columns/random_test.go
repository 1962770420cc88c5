package columns_test

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/pulsecol/pulsecol/internal/columns"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

// TestRandom counts the keys of each group, and those that all groups of a block have.
func TestRandom(t *testing.T) {
	for _, c := range []struct {
		n, group, keep int
		share          float64
	}{
		{1, 32, 1, 0.5},
		{33, 1, 33, 0.5}, // every key
		{300, 32, 60, 0},
		{300, 32, 60, 0.83},
		{300, 32, 60, 1},
		{517, 48, 51, 0.5}, // blocks of two groups, the last of one
		{517, 128, 51, 0.5},
		{517, math.MaxInt, 51, 0.5},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			table := columns.Random(c.n, c.group, c.keep, c.share)
			w, groups := kernel.Words(c.n), kernel.Groups(c.n, c.group)
			if len(table) != w*groups {
				t.Fatalf("%d words, want %d of %d groups", len(table), w*groups, groups)
			}
			if !slices.Equal(table, columns.Random(c.n, c.group, c.keep, c.share)) {
				t.Error("another table from the same arguments")
			}
			want := int(math.Round(c.share * float64(c.keep)))
			chance := float64(c.keep-want) / float64(c.n-want) // of a key that a group does not share
			var extra, expected, others float64
			for first := 0; first < groups; first += columns.Block(c.group) {
				block := table[first*w : min(groups, first+columns.Block(c.group))*w]
				all := slices.Repeat([]uint32{math.MaxUint32}, w)
				for row := range slices.Chunk(block, w) {
					if got := count(row); got != c.keep {
						t.Errorf("a group keeps %d keys, want %d", got, c.keep)
					}
					for i, word := range row {
						all[i] &= word
					}
					if rest := c.n % 32; rest != 0 && row[w-1]>>rest != 0 {
						t.Error("keys beyond the last")
					}
				}
				got := count(all)
				if got < want {
					t.Errorf("groups from %d on have %d keys in common, want at least %d", first, got, want)
				}
				p := math.Pow(chance, float64(len(block)/w)) // that all groups have one by chance
				extra, expected, others = extra+float64(got-want), expected+p*float64(c.n-want), others+p*(1-p)*float64(c.n-want)
			}
			if math.Abs(extra-expected) > 5*math.Sqrt(others) {
				t.Errorf("%v keys in common by chance, want about %.1f", extra, expected)
			}
		})
	}
}

// TestRandomSpreads: every key is kept about as often as any other, shared or not.
func TestRandomSpreads(t *testing.T) {
	const n, group, keep = 4096, 2, 410
	times := make([]int, 64) // of each 64th part of the keys
	for row := range slices.Chunk(columns.Random(n, group, keep, 0.5), n/32) {
		for i, word := range row {
			times[i/2] += bits.OnesCount32(word)
		}
	}
	// The shared half are the same draws for the 64 groups of a block.
	mean := float64(keep * n / group / 64)
	for part, got := range times {
		if off := float64(got) - mean; math.Abs(off) > 6*math.Sqrt(mean*(64+1)/2) {
			t.Errorf("keys of part %d are kept %d times, want about %.0f", part, got, mean)
		}
	}
}

func count(words []uint32) (keys int) {
	for _, word := range words {
		keys += bits.OnesCount32(word)
	}
	return keys
}
