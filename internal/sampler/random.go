package sampler

import "encoding/binary"

// purpose distinguishes the random decisions about one position at one step.
type purpose uint32

const (
	drawToken  purpose = iota // which token is proposed
	drawReveal                // whether the position is revealed (Dream's origin)
	drawRemask                // its confidence under random remasking
	drawPlace                 // its place in the order (Dream's alg_temp)
)

// stream seeds w's generator for one decision.
func (g *generation) stream(w *worker, why purpose, at Row) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], g.seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(g.steps+1))
	binary.LittleEndian.PutUint32(key[16:], uint32(at.Batch))
	binary.LittleEndian.PutUint32(key[20:], uint32(why))
	binary.LittleEndian.PutUint64(key[24:], uint64(at.Pos))
	w.rng.Seed(key)
}

// uniform draws from [0, 1), a multiple of 2^-53.
func (w *worker) uniform() float64 {
	return float64(w.rng.Uint64()>>11) * 0x1p-53
}

// gumbel turns u, uniform on [0, 1), into a standard Gumbel variate. It is -Inf at
// u = 0 and finite elsewhere, at most 36.8.
func gumbel(u float64) float64 {
	return -log(-log(u))
}
