package kernel_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pulsecol/pulsecol/internal/attncase"
	"github.com/pulsecol/pulsecol/internal/bf16"
	"github.com/pulsecol/pulsecol/internal/kernel"
	"github.com/pulsecol/pulsecol/internal/kernel/ref"
	"github.com/pulsecol/pulsecol/internal/quant"
	"github.com/pulsecol/pulsecol/internal/tol"
)

// scaleOffsets are where the blocks of a type have binary16 numbers; the other bytes may
// be any.
var scaleOffsets = map[kernel.DType][]int{
	kernel.Q8_0: {0}, kernel.Q4_0: {0}, kernel.Q4_1: {0, 2}, kernel.Q5_0: {0}, kernel.Q5_1: {0, 2},
	kernel.Q4_K: {0, 2}, kernel.Q5_K: {0, 2}, kernel.Q6_K: {208}, kernel.IQ4_NL: {0}, kernel.IQ4_XS: {0},
}

// randomBlocks returns a matrix of random bits with scales around 0.01.
func randomBlocks(t testing.TB, rows, cols int, d kernel.DType, r *rand.Rand) kernel.Matrix {
	t.Helper()
	data := make([]byte, rows*d.Bytes(cols)+1)[1:] // files do not align their tensors
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for at := 0; at < len(data); at += d.BlockBytes() {
		for _, offset := range scaleOffsets[d] {
			scale := 0.02 * (r.Float32() - 0.5)
			binary.LittleEndian.PutUint16(data[at+offset:], bf16.HalfFromFloat32(scale))
		}
	}
	m, err := kernel.NewMatrix(rows, cols, d, data)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// eachQuantized runs f for every type with blocks, at ragged sizes.
func eachQuantized(t *testing.T, f func(t *testing.T, w *kernel.Matrix, rows int, r *rand.Rand)) {
	count := 0
	for _, d := range quant.WeightTypes() {
		if !d.Quantized() {
			continue
		}
		count++
		t.Run(d.String(), func(t *testing.T) {
			for _, s := range []struct{ rows, blocks, out int }{
				{1, 1, 1}, {3, 3, 33}, {8, 9, 32}, {9, 2, 40}, {33, 1, 130}, {200, 5, 7}, {130, 11, 64}, {2, 20, 300},
			} {
				blocks := s.blocks
				if d.Block() == 256 {
					blocks = (blocks + 3) / 4
				}
				r := attncase.Rand(uint64(s.rows*blocks + s.out))
				w := randomBlocks(t, s.out, blocks*d.Block(), d, r)
				t.Run(fmt.Sprintf("%dx%dx%d", s.rows, w.Cols, w.Rows), func(t *testing.T) { f(t, &w, s.rows, r) })
			}
		})
	}
	if count != len(scaleOffsets) {
		t.Errorf("%d types, want %d", count, len(scaleOffsets))
	}
}

func TestLinearQuantized(t *testing.T) {
	eachQuantized(t, func(t *testing.T, w *kernel.Matrix, rows int, r *rand.Rand) {
		file := string(w.Data)
		x, bias := attncase.Normal(r, rows*w.Cols, 1), attncase.Normal(r, w.Rows, 1)
		plain, want := ref.Linear[float32](x, rows, w, bias), ref.Linear[float64](x, rows, w, bias)
		floats := decoded(t, w)
		kernel.ForEachISA(t, func(t *testing.T) {
			y, intact := guarded(t, rows*w.Rows)
			team.Linear(y, x, rows, w, bias)
			compare(t, w.DType.String(), y, plain, want)
			intact()
			// The sums are those of the same weights as float32.
			exactly := make([]float32, len(y))
			team.Linear(exactly, x, rows, &floats, bias)
			tol.SameBits(t, "as float32", y, exactly)
		})
		if string(w.Data) != file {
			t.Fatal("Linear wrote to the weights")
		}
	})
}

// decoded returns the weights as float32.
func decoded(t *testing.T, w *kernel.Matrix) kernel.Matrix {
	values := make([]float32, w.Rows*w.Cols)
	for i := range w.Rows {
		w.Row(values[i*w.Cols:][:w.Cols], i)
	}
	return newMatrix(t, w.Rows, w.Cols, kernel.F32, values)
}

func TestLinearQuantizedPrecision(t *testing.T) {
	eachPrecision(t, func(t *testing.T, p kernel.Precision) {
		eachQuantized(t, func(t *testing.T, w *kernel.Matrix, rows int, r *rand.Rand) {
			x := attncase.Normal(r, rows*w.Cols, 1)
			floats := decoded(t, w)
			w.Precision, floats.Precision = p, p
			kernel.ForEachISA(t, func(t *testing.T) {
				y, intact := guarded(t, rows*w.Rows)
				team.Linear(y, x, rows, w, nil)
				intact()
				want := make([]float32, len(y))
				team.Linear(want, x, rows, &floats, nil)
				tol.SameBits(t, w.DType.String(), y, want)
			})
		})
	})
}

func TestEmbedQuantized(t *testing.T) {
	for _, d := range quant.WeightTypes() {
		if !d.Quantized() {
			continue
		}
		const tokens = 40
		r := attncase.Rand(3)
		w := randomBlocks(t, tokens, 512, d, r)
		floats := decoded(t, &w)
		ids := []int32{39, 0, 7, 7, 21}
		got, want := make([]float32, len(ids)*512), make([]float32, len(ids)*512)
		team.Embed(got, ids, &w)
		team.Embed(want, ids, &floats)
		tol.SameBits(t, d.String(), got, want)
	}
}
