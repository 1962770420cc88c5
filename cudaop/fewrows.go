//go:build cuda

package cudaop

import "math"

// A product of few rows takes as long as its weights take to read. On Hopper linear_sm90
// computes those of up to fewRows rows: its sums do not depend on the number of rows, and
// gate, up and SwiGLU are one kernel. For more rows cuBLASLt is as fast or faster
// (kernels/README.md).
const fewRows = 32

// fewKernels are the names of the kernels for up to so many rows, by their tiles.
var fewKernels = []struct {
	rows  int
	names map[int]string
}{
	{16, map[int]string{128: "linear_sm90_n16_t128", 192: "linear_sm90_n16_t192"}},
	{32, map[int]string{128: "linear_sm90_n32_t128", 192: "linear_sm90_n32_t192"}},
}

// isFew reports whether linear_sm90 computes a product. TMA needs rows and addresses that
// are multiples of 16 bytes.
func (c *call) isFew(p product) bool {
	return c.isHopper() && p.dt == bfloat16Dtype && p.n <= fewRows && p.in%8 == 0 && (p.x|p.w)%16 == 0
}

// multiplyFew queues a product of few rows. With gated, its weights and biases are those of
// p.out gates and as many ups, and the result is silu(gate) up.
func (c *call) multiplyFew(p product, gated bool) error {
	d := divide(p.in, p.out, gated, c.multiprocs)
	var name string
	for i := len(fewKernels) - 1; i >= 0 && p.n <= fewKernels[i].rows; i-- {
		name = fewKernels[i].names[d.tile]
	}
	k, err := c.kernel("linear_sm90", name)
	if err != nil {
		return err
	}
	all := p.out
	if gated {
		all *= 2
	}
	operands := []matrices{{p.w, 1, all, p.in}, {p.x, 1, p.n, p.in}}
	return k.launchClusters(operands, d.tiles, d.blocks, address(p.y), address(p.bias), address(p.residual),
		integer(p.n), integer(p.in), integer(p.out), flag(gated), elementType(p.to))
}

// division is how linear_sm90 divides a product: into tiles of so many features, and each
// among the blocks of a cluster.
type division struct{ tile, tiles, blocks int }

// divide returns the division that keeps most multiprocessors busy; of similar ones that with
// the smallest clusters and the largest tiles. It does not depend on the number of rows, so
// that a row gives the same bits whatever the others are.
func divide(in, out int, gated bool, multiprocs int) (d division) {
	const (
		mostBlocks = 4  // of a cluster
		step       = 64 // inputs: a block has at least as many
		gain       = 0.03
	)
	busiest := math.Inf(-1)
	for blocks := 1; blocks <= mostBlocks && (blocks-1)*step < in; blocks++ {
		for _, tile := range []int{192, 128} {
			features := tile
			if gated {
				features /= 2
			}
			tiles := (out + features - 1) / features
			rounds := (tiles*blocks + multiprocs - 1) / multiprocs
			busy := float64(tiles*blocks) / float64(rounds*multiprocs)
			if busy > busiest+gain {
				d, busiest = division{tile, tiles, blocks}, busy
			}
		}
	}
	return d
}
