// Package columns makes synthetic column tables, to measure attention on columns of which it
// is known how many neighbouring query groups have in common.
package columns

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Block is the number of neighbouring groups that share keys: as many as fit into 128
// queries, whose keys a GPU kernel fetches together, and at least one. Blocks are
// counted from the first group.
func Block(group int) int { return max(1, 128/group) }

// Random returns the column table of one head for n tokens, [Groups(n, group),
// Words(n)]: keep keys for each group, 1 <= keep <= n. Of them round(share*keep), 0 <=
// share <= 1, are the same in all groups of a block; the rest are the group's own,
// drawn from all others, so that some are in another group by chance. The same
// arguments give the same table.
func Random(n, group, keep int, share float64) []uint32 {
	r := rand.New(rand.NewPCG(2, uint64(n)))
	w, block, common := kernel.Words(n), Block(group), int(math.Round(share*float64(keep)))
	table := make([]uint32, kernel.Groups(n, group)*w)
	shared := make([]uint32, w)
	for u := range kernel.Groups(n, group) {
		if u%block == 0 {
			clear(shared)
			draw(r, shared, n, common)
		}
		row := table[u*w:][:w]
		copy(row, shared)
		draw(r, row, n, keep-common)
	}
	return table
}

// draw adds count keys of n to a row.
func draw(r *rand.Rand, row []uint32, n, count int) {
	others := n
	for _, word := range row {
		others -= bits.OnesCount32(word)
	}
	// Each of the others in turn, with the chance that makes the number right in the end.
	for j := 0; count > 0; j++ {
		bit := uint32(1) << (j % 32)
		if row[j/32]&bit != 0 {
			continue
		}
		if r.IntN(others) < count {
			row[j/32] |= bit
			count--
		}
		others--
	}
}
