package kernel

import "github.com/pulsecol/pulsecol/internal/quant"

// codePanel is a panel of quantized weights, see codeProducts.
type codePanel struct{ codes, scales, minima []float32 }

// codePanel is room for a panel of n inputs.
func (s *scratch) codePanel(f quant.Form, n int) codePanel {
	s.codePanels = sized(&s.codePanels, codePanelSize(f, n))
	return newCodePanel(f, s.codePanels, n)
}

// codePanelSize is the number of words of a panel of n inputs.
func codePanelSize(f quant.Form, n int) int {
	size := n/4 + n/f.Group
	if f.Minima {
		size += n / quant.MinimumGroup
	}
	return size * lanes
}

// newCodePanel divides words of the size of a panel of n inputs.
func newCodePanel(f quant.Form, words []float32, n int) (p codePanel) {
	codes, scales := n/4*lanes, n/f.Group*lanes
	p.codes, p.scales, p.minima = words[:codes], words[codes:][:scales], words[codes+scales:codePanelSize(f, n)]
	return p
}

// packCodes takes apart rows [first, first+count), columns [col, col+n), count <= lanes,
// of a quantized matrix. Columns are whole blocks. Scales and minima of unused lanes become zeros.
func (m *Matrix) packCodes(p codePanel, s *scratch, first, count, col, n int) {
	f := m.DType.Form()
	groups, mins := n/f.Group, len(p.minima)/lanes
	s.codes = sized(&s.codes, lanes*n)
	s.codeScales = sized(&s.codeScales, count*(groups+mins))
	scales, minima := s.codeScales[:count*groups], s.codeScales[count*groups:]
	// What is read next: the columns that follow, or the first ones of the next panel.
	ahead := m.DType.Bytes(n)
	if col+n == m.Cols {
		ahead = m.DType.Bytes(lanes*m.Cols - col)
	}
	active.codes.unpack(m.DType, s.codes, scales, minima, m.Data[m.DType.Bytes(first*m.Cols+col):], count, m.DType.Bytes(m.Cols), n/m.DType.Block(), ahead)
	// Lanes to the next unit get codes of another matrix: their scale is 0.
	active.packF32(p.codes, lanes, s.codes, n/4, roundUp(count, rowUnit), n/4)
	if count < lanes {
		clear(p.scales)
		clear(p.minima)
	}
	transpose(p.scales, lanes, scales, groups, count, groups, unscaled[:groups])
	if f.Minima {
		transpose(p.minima, lanes, minima, mins, count, mins, unscaled[:mins])
	}
}

// unscaled are the factors of a transposition that changes no value.
var unscaled = func() (x [linearDepth]float32) {
	for i := range x {
		x[i] = 1
	}
	return x
}()
