package kernel

import (
	"fmt"

	"github.com/pulsecol/pulsecol/internal/quant"
)

// DType is the element type of a weight matrix.
type DType = quant.DType

// The element types of weight matrices; internal/quant describes them.
const (
	F32    = quant.F32
	BF16   = quant.BF16
	F16    = quant.F16
	Q8_0   = quant.Q8_0
	Q4_0   = quant.Q4_0
	Q4_1   = quant.Q4_1
	Q5_0   = quant.Q5_0
	Q5_1   = quant.Q5_1
	Q4_K   = quant.Q4_K
	Q5_K   = quant.Q5_K
	Q6_K   = quant.Q6_K
	IQ4_NL = quant.IQ4_NL
	IQ4_XS = quant.IQ4_XS
)

// Matrix is a weight matrix [Rows, Cols], Rows being the outputs of a layer, in
// row-major little-endian elements, or blocks of them. Data may be a view of a mapped
// file: it is never written and need not be aligned.
type Matrix struct {
	Rows, Cols int
	DType      DType
	Data       []byte
	Precision  Precision // of products with the matrix, see Linear
}

// NewMatrix checks that data has the size of a [rows, cols] matrix of type t.
func NewMatrix(rows, cols int, t DType, data []byte) (Matrix, error) {
	m := Matrix{Rows: rows, Cols: cols, DType: t, Data: data}
	switch {
	case rows <= 0 || cols <= 0:
		return Matrix{}, fmt.Errorf("kernel: matrix [%d %d]: sizes must be positive", rows, cols)
	case !t.OfWeights():
		return Matrix{}, fmt.Errorf("kernel: matrix [%d %d]: element type %v, must be one of %v", rows, cols, t, quant.WeightTypes())
	case cols%t.Block() != 0:
		return Matrix{}, fmt.Errorf("kernel: matrix [%d %d]: rows must have a multiple of the %d elements of a block of %v", rows, cols, t.Block(), t)
	case !fits(t.BlockBytes(), rows, cols/t.Block()):
		return Matrix{}, fmt.Errorf("kernel: matrix [%d %d] of %v overflows an int", rows, cols, t)
	case len(data) != rows*t.Bytes(cols):
		return Matrix{}, fmt.Errorf("kernel: matrix [%d %d] of %v needs %d bytes, got %d", rows, cols, t, rows*t.Bytes(cols), len(data))
	}
	return m, nil
}

// check panics unless the matrix is one that NewMatrix makes.
func (m *Matrix) check(fn string) {
	if _, err := NewMatrix(m.Rows, m.Cols, m.DType, m.Data); err != nil {
		panic(fmt.Sprintf("%v (in %s)", err, fn))
	}
}

// Row writes row i as float32 to dst [Cols].
func (m *Matrix) Row(dst []float32, i int) {
	if i < 0 || i >= m.Rows {
		panic(fmt.Sprintf("kernel: Matrix.Row: row is %d, must be in [0, %d)", i, m.Rows))
	}
	checkLen("Matrix.Row", "dst", len(dst), m.Cols)
	m.decode(dst, i, 0)
}

// decode writes len(dst) elements of row i from column col on.
func (m *Matrix) decode(dst []float32, i, col int) {
	size := m.DType.Bytes(m.Cols)
	m.DType.Decode(dst, m.Data[i*size:][:size], col)
}

// from is the data from element (i, col) on, of a type without blocks.
func (m *Matrix) from(i, col int) []byte {
	return m.Data[m.DType.Bytes(i*m.Cols+col):]
}

// pack writes rows [first, first+count), columns [col, col+n), count <= lanes,
// as the lanes of dst [n, lanes]. Unused lanes become zeros.
func (m *Matrix) pack(dst []float32, s *scratch, first, count, col, n int) {
	if m.DType.Quantized() {
		p := s.codePanel(m.DType.Form(), n)
		m.packCodes(p, s, first, count, col, n)
		active.codes.expand(m.DType.Form(), dst, p.codes, p.scales, p.minima, n)
		return
	}
	line := sized(&s.column, n)
	if count < lanes {
		clear(dst[:n*lanes])
	}
	units, unitCols := count/rowUnit*rowUnit, n/rowUnit*rowUnit
	switch {
	case units == 0 || unitCols == 0:
	case m.DType == F32:
		active.packF32(dst, lanes, m.from(first, col), m.Cols, units, unitCols)
	case m.DType == BF16:
		active.packBF16(dst, lanes, m.from(first, col), m.Cols, units, unitCols)
	default:
		units = 0
	}
	for i := range count {
		done := 0
		if i < units {
			done = unitCols
		}
		line := line[:n-done]
		m.decode(line, first+i, col+done)
		for j, x := range line {
			dst[(done+j)*lanes+i] = x
		}
	}
}

// Embed looks up embeddings: dst [len(ids), Cols] gets row ids[i] of w as row i.
// It panics on an id that is not a row.
func (t *Team) Embed(dst []float32, ids []int32, w *Matrix) {
	w.check("Embed")
	checkLen("Embed", "dst", len(dst), len(ids)*w.Cols)
	s := rowSpans(len(ids), w.Cols)
	run(t, &t.embed, s.tasks(), embedJob{dst, ids, w, s})
}

type embedJob struct {
	dst []float32
	ids []int32
	w   *Matrix
	spans
}

func (j *embedJob) run(_ *scratch, task int) {
	lo, hi := j.bounds(task)
	for i := lo; i < hi; i++ {
		j.w.Row(j.dst[i*j.w.Cols:][:j.w.Cols], int(j.ids[i]))
	}
}
