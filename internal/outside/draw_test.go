package outside_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/op"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// wholeRun is the number of generations of a whole run, 0 in the gate.
func wholeRun() int {
	n, _ := strconv.Atoi(os.Getenv("PULSECOL_OUTSIDE"))
	return n
}

// cases is the number of cases of a test: all of them in a whole run, a share in the gate.
func cases(all int) int {
	switch {
	case wholeRun() > 0:
		return all
	case testing.Short():
		return max(4, all/400)
	}
	return max(8, all/8)
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// pick is one of the values.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// drawValues are n numbers of one of several kinds: normal of many magnitudes, equal,
// zero, of few values.
func drawValues(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	size := pick(r, 0.1, 0.5, 1, 1, 1, 2, 4, 100, 1e4)
	switch r.IntN(12) {
	case 0:
		return x // zero
	case 1:
		for i := range x {
			x[i] = float32(r.IntN(3) - 1)
		}
	case 2:
		for i := range x {
			x[i] = float32(size)
		}
	default:
		for i := range x {
			x[i] = float32(size * r.NormFloat64())
		}
	}
	return x
}

// normal are n normally distributed numbers.
func normal(r *rand.Rand, n int, deviation float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(deviation * r.NormFloat64())
	}
	return x
}

func newTensor(x []float32, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))
}

// input is an input of a graph with a value, which the caller may change between steps.
func input(g *gorgonia.ExprGraph, name string, value any, shape ...int) *gorgonia.Node {
	t := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(value))
	return gorgonia.NewTensor(g, t.Dtype(), len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithValue(t))
}

// drawMask is a padding mask [batch, n] with a real key in every row, mostly padded on the
// left.
func drawMask(r *rand.Rand, batch, n int) []float32 {
	mask := make([]float32, batch*n)
	scattered := r.IntN(4) == 0
	for b := range batch {
		pad := r.IntN(n)
		for i := range n {
			if !scattered && i >= pad || scattered && r.IntN(3) > 0 || i == n-1 {
				mask[b*n+i] = 1
			}
		}
	}
	return mask
}

// drawWeight is a weight of random numbers in one of the storage types, which hold them
// exactly.
func drawWeight(t testing.TB, r *rand.Rand, rows, cols int) (op.Weight, *matrix) {
	m := &matrix{rows: rows, cols: cols, w: normal(r, rows*cols, 1/math.Sqrt(float64(cols)))}
	kind := pick(r, op.F32, op.BF16, op.F16)
	var data []byte
	for i, x := range m.w {
		bits := math.Float32bits(x)
		switch kind {
		case op.F32:
			data = binary.LittleEndian.AppendUint32(data, bits)
		case op.BF16:
			bits &^= 0xffff
			data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
		default: // binary16: 5 bits of exponent, 10 of fraction
			bits &^= 0x1fff
			if e := int(bits>>23&0xff) - 127; e < -14 || e > 15 {
				bits &= 1 << 31
				data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
			} else {
				data = binary.LittleEndian.AppendUint16(data, uint16(bits>>31<<15)|uint16(e+15)<<10|uint16(bits>>13&0x3ff))
			}
		}
		m.w[i] = math.Float32frombits(bits)
	}
	w := must(op.NewWeight(rows, cols, kind, data))(t)
	if r.IntN(2) == 0 {
		m.bias = normal(r, rows, 0.5)
	}
	return w, m
}

// drawTable is a table of random keys for a layer: none of its groups is empty.
func drawTable(t testing.TB, r *rand.Rand, batch, heads, n, group int) *pulsecol.ColumnTable {
	return must(pulsecol.NewColumnTable(pick(r, 1, batch), pick(r, 1, heads), n, group, func(b, h, u int) []int {
		keys := []int{r.IntN(n)}
		for j := range n {
			if r.IntN(3) == 0 {
				keys = append(keys, j)
			}
		}
		return keys
	}))(t)
}

// pattern is a pattern and the queries in its groups.
type pattern struct {
	pulsecol.Pattern
	group int // 0: the config's
	fixed bool
}

func drawPattern(t testing.TB, r *rand.Rand, s shape, layers int) pattern {
	group := pick(r, 1, 2, 3, 5, 8, 32, s.n, s.n+3)
	switch r.IntN(12) {
	case 0, 1:
		return pattern{Pattern: pulsecol.Blocks{Size: pick(r, 1, 2, 3, 7, 16, s.n+1)}, group: group}
	case 2, 3:
		return pattern{Pattern: pulsecol.SparseD{BlockSize: group, Generation: r.IntN(s.n + 3), ScoreScale: pick(r, 0, 0, 0.3, 1)}, group: group}
	case 4:
		return pattern{Pattern: pulsecol.SlidingWindow{Width: 1 + r.IntN(2*s.n)}, group: group, fixed: true}
	case 5:
		return pattern{Pattern: pulsecol.Streaming{Width: 1 + r.IntN(s.n), SinkFraction: percent(1 + r.IntN(100)).share()}, group: group, fixed: true}
	case 6:
		tables := make([]*pulsecol.ColumnTable, pick(r, 1, layers))
		for i := range tables {
			tables[i] = drawTable(t, r, s.batch, s.heads, s.n, group)
		}
		return pattern{Pattern: pulsecol.Fixed{Tables: tables}, group: group, fixed: true}
	}
	return pattern{Pattern: pulsecol.Columns{}, group: group}
}

// shape is the sizes of attention.
type shape struct{ batch, heads, kvHeads, n, dim int }

func (s shape) String() string {
	return fmt.Sprintf("%dx%d/%dx%dx%d", s.batch, s.heads, s.kvHeads, s.n, s.dim)
}

func drawShape(r *rand.Rand) shape {
	for {
		s := shape{batch: 1 + r.IntN(3), kvHeads: 1 + r.IntN(3), n: 1 + r.IntN(pick(r, 4, 20, 40, 80)), dim: 1 + r.IntN(40)}
		s.heads = s.kvHeads * pick(r, 1, 1, 2, 3, 4, 7)
		if r.IntN(6) == 0 {
			s.dim = pick(r, 64, 128)
		}
		if s.batch*s.heads*s.n*s.n*s.dim < 600_000 { // what the reference computes in milliseconds
			return s
		}
	}
}

func drawSparsity(r *rand.Rand, n int) float64 {
	return pick(r, 0, 0.5/float64(n), 0.25, 0.5, 0.7, 0.8, 0.9, 0.99, 1-1/float64(n)/2, math.Nextafter(1, 0), r.Float64())
}
