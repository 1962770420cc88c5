package columns

import (
	"math"
	"math/rand/v2"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Random returns a synthetic column table of one head for n tokens, [Groups(n, group),
// Words(n)]: keep keys for each group, 1 <= keep <= n. round(share*keep) of them, 0 <=
// share <= 1, are the same in all groups of a block; the others are drawn for each group
// from the keys that are left, so that some are in another group by chance. The same
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
	others := n - Count(row)
	// Each key in turn is drawn with the probability that makes the number exact.
	for j := 0; count > 0; j++ {
		if Has(row, j) {
			continue
		}
		if r.IntN(others) < count {
			Set(row, j)
			count--
		}
		others--
	}
}
