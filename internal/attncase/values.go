package attncase

import (
	"math"
	"math/rand/v2"

	"github.com/pulsecol/pulsecol/internal/kernel"
)

// Operands draws normally distributed inputs. deviation is the standard deviation of the
// queries, and about that of the scores.
func Operands(r *rand.Rand, s kernel.Shape, deviation float64) *kernel.Operands {
	return &kernel.Operands{
		Shape: s,
		Q:     Normal(r, s.Batch*s.Heads*s.Queries()*s.HeadDim, deviation),
		K:     Normal(r, s.Batch*s.KVHeads*s.Len*s.HeadDim, 1),
		V:     Normal(r, s.Batch*s.KVHeads*s.Len*s.HeadDim, 1),
		Scale: float32(1 / math.Sqrt(float64(s.HeadDim))),
	}
}

// Seeded is Operands of deviation 1 from a generator with the given seed.
func Seeded(seed uint64, s kernel.Shape) *kernel.Operands { return Operands(Rand(seed), s, 1) }

// Rand returns a generator with the given seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// Normal returns n normally distributed numbers of the given standard deviation.
func Normal(r *rand.Rand, n int, deviation float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * deviation)
	}
	return x
}

// PadLeft marks the first pad[b] positions of each batch row b as padding.
func PadLeft(a *kernel.Operands, pad ...int) {
	a.Valid = make([]float32, a.Batch*a.Len)
	for b := range a.Batch {
		for i := range a.Len {
			if i >= pad[b] {
				a.Valid[b*a.Len+i] = 1
			}
		}
	}
}

// Special is a change of random operands of SpecialShape: NaN, infinities, numbers at
// the ends of the range.
type Special struct {
	Name string
	Set  func(a *kernel.Operands)
}

// SpecialShape has room for what Specials change: 40 or more tokens, and features that
// fill neither a vector nor a pair.
var SpecialShape = kernel.Shape{Batch: 1, Heads: 2, KVHeads: 1, Len: 41, HeadDim: 9}

// Specials are operands on which NaN and infinities must reach what depends on them, and
// nothing else.
var Specials = []Special{
	{"NaN query", func(a *kernel.Operands) { a.Q[3*a.HeadDim+1] = nan }},
	{"NaN query with payload", func(a *kernel.Operands) { a.Q[3*a.HeadDim+1] = math.Float32frombits(0x7fc00123) }},
	{"NaN key", func(a *kernel.Operands) { a.K[5*a.HeadDim] = nan }},
	{"signalling NaN key", func(a *kernel.Operands) { a.K[5*a.HeadDim] = math.Float32frombits(0x7f800001) }},
	{"NaN value", func(a *kernel.Operands) { a.V[7*a.HeadDim+2] = nan }},
	{"NaN in the last value", func(a *kernel.Operands) { a.V[a.Len*a.HeadDim-1] = nan }},
	{"infinite value", func(a *kernel.Operands) { a.V[(a.Len-1)*a.HeadDim+2] = -inf }},
	{"+Inf score", func(a *kernel.Operands) { a.K[5*a.HeadDim] = inf; Fill(a.Q, 1) }},
	{"-Inf scores of one key", func(a *kernel.Operands) { a.K[5*a.HeadDim] = -inf; Fill(a.Q, 1) }},
	{"-Inf scores everywhere", func(a *kernel.Operands) { Fill(a.K, -inf); Fill(a.Q, 1) }},
	{"huge scores", func(a *kernel.Operands) { multiply(a.Q, 1e18); multiply(a.K, 1e18) }},
	{"subnormal query and key", func(a *kernel.Operands) { Fill(a.Q[:10*a.HeadDim], 1e-40); Fill(a.K[:10*a.HeadDim], -1e-40) }},
}

var nan, inf = float32(math.NaN()), float32(math.Inf(1))

// Fill sets all elements of x.
func Fill(x []float32, f float32) {
	for i := range x {
		x[i] = f
	}
}

func multiply(x []float32, f float32) {
	for i := range x {
		x[i] *= f
	}
}

// Rise multiplies the keys by 1 to 11, later ones by more: their scores outgrow the
// range of weights that are relative to the first tile's maximum.
func Rise(a *kernel.Operands) {
	for i := range a.K {
		a.K[i] *= 1 + 10*float32(i/a.HeadDim%a.Len)/float32(a.Len)
	}
}

// Tables are column tables for the case by name: random ones, every key, no key in some
// groups, tables that batch rows or heads share, and static patterns.
func (c Case) Tables(r *rand.Rand) map[string]*kernel.Table {
	groups, words := kernel.Groups(c.Queries(), c.Group), kernel.Words(c.Len)
	random := func(rows int, share float64) []uint32 {
		bits := make([]uint32, rows*groups*words)
		for row := range rows * groups {
			if share < 1 && row%4 == 3 {
				continue // an empty set
			}
			for j := range c.Len {
				if r.Float64() < share {
					bits[row*words+j/32] |= 1 << (j % 32)
				}
			}
		}
		return bits
	}
	return map[string]*kernel.Table{
		"random":       {Bits: random(c.Batch*c.Heads, 0.3), Group: c.Group, Reach: -1},
		"all":          {Bits: random(c.Batch*c.Heads, 1), Group: c.Group, Reach: -1},
		"shared heads": {Bits: random(c.Batch, 0.5), Group: c.Group, SharedHeads: true, Reach: -1},
		"shared batch": {Bits: random(c.Heads, 0.5), Group: c.Group, SharedBatch: true, Reach: -1},
		"window":       {Bits: random(1, 1), Group: c.Group, SharedBatch: true, SharedHeads: true, Reach: 3},
		"streaming":    {Bits: random(1, 1), Group: c.Group, SharedBatch: true, SharedHeads: true, Reach: 9, Sinks: 2},
		"thin window":  {Bits: random(1, 0.4), Group: c.Group, SharedBatch: true, SharedHeads: true, Reach: 0, Sinks: 1},
		"wide window":  {Bits: random(1, 1), Group: c.Group, SharedBatch: true, SharedHeads: true, Reach: math.MaxInt},
	}
}
