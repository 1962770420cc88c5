package inspect

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot/vg"
)

// MostCells is the largest number of cells on a side of a heat map: one pixel each.
const MostCells = 512

// Caption is the text of a heat map.
type Caption struct {
	Title  string
	Detail string // a line below the title
	Prompt int    // tokens of the prompt; the rest of the sequence is generated
}

// promptEnds reports whether the prompt ends within n tokens.
func (c *Caption) promptEnds(n int) bool { return c.Prompt > 0 && c.Prompt < n }

// The colours of what is kept.
var (
	neither  = color.RGBA{0xff, 0xff, 0xff, 0xff}
	keptOnly = color.RGBA{0xb9, 0xd4, 0xec, 0xff}
	hit      = color.RGBA{0x0b, 0x50, 0x96, 0xff}
	miss     = color.RGBA{0xe6, 0x6a, 0x00, 0xff}
)

// DrawMap writes a PNG with two maps of the same query-key pairs. The left one shows the
// attention probabilities on a logarithmic scale, in each cell the highest. The right one
// shows the kept keys, and for each query the k keys with the highest probabilities; the
// colour of a cell is the mean over its pairs.
func DrawMap(w io.Writer, m *Map, c Caption) error {
	zoom := max(1, 640/m.Cells) // width of a cell in pixels
	side := zoom * m.Cells
	rowZoom := max(zoom, side/3/m.RowCells) // its height: few queries make a band
	height := rowZoom * m.RowCells
	u := float64(side) / 480 // scale of fonts and margins
	px := func(x float64) int { return int(math.Round(x * u)) }

	left, top, gap := px(70), px(96), px(36)
	right := left + side + gap
	p := newPicture(right+side+px(24), top+height+px(142))
	p.text(bold(style(19*u, ink)), float64(left), 28*u, 0, c.Title)
	p.text(style(15*u, ink), float64(left), 51*u, 0, c.Detail)

	// The scale ends a hundredth of equal attention to all keys, or just below.
	low := math.Floor(math.Log10(0.01 / float64(m.Len)))
	for i := range m.RowCells {
		for j := range m.Cells {
			cell := i*m.Cells + j
			p.fill(left+j*zoom, top+i*rowZoom, zoom, rowZoom, shade(1-math.Log10(m.Attention[cell])/low))
			p.fill(right+j*zoom, top+i*rowZoom, zoom, rowZoom, m.Pairs[cell].colour())
		}
	}
	p.axes(left, top, side, height, u, m, c, "attention probability")
	p.axes(right, top, side, height, u, m, c, "keys kept, and each query's own top k")
	p.upward(style(15*u, ink), 20*u, float64(top)+float64(height)/2, "query position")
	for _, t := range roundTicks(m.First, m.First+m.Rows) {
		p.text(style(13*u, ink), float64(left)-8*u, float64(top)+m.down(t.Value)*float64(height)+5*u, 1, t.Label)
	}
	p.scale(left, top+height+px(76), side, low, u, m, c)
	p.legend(right, top+height+px(76), side, u, m)
	return p.encodeIndexed(w)
}

// down is the place of a query's position as a share of the map's height.
func (m *Map) down(position float64) float64 { return (position - float64(m.First)) / float64(m.Rows) }

// colour is the mean colour of the pairs of a cell.
func (c Pairs) colour() color.RGBA {
	if c.All == 0 {
		return neither
	}
	share := func(n int) float64 { return float64(n) / float64(c.All) }
	mix := func(channel func(color.RGBA) uint8) uint8 {
		x := share(c.All-c.Kept-c.Miss)*float64(channel(neither)) + share(c.Kept-c.Hit)*float64(channel(keptOnly)) +
			share(c.Hit)*float64(channel(hit)) + share(c.Miss)*float64(channel(miss))
		return uint8(math.Round(x))
	}
	return color.RGBA{
		mix(func(c color.RGBA) uint8 { return c.R }), mix(func(c color.RGBA) uint8 { return c.G }),
		mix(func(c color.RGBA) uint8 { return c.B }), 0xff,
	}
}

// axes draws a map's frame, ticks, labels of the key axis, title, and the end of the prompt.
func (p *picture) axes(left, top, side, height int, u float64, m *Map, c Caption, title string) {
	x0, y0, size := float64(left), float64(top), float64(side)
	x1, y1 := x0+size, y0+float64(height)
	p.text(style(15*u, ink), x0, y0-12*u, 0, title)
	if c.promptEnds(m.Len) {
		end := float64(c.Prompt) / float64(m.Len) * size
		dash := []vg.Length{vg.Length(5 * u), vg.Length(4 * u)}
		p.line(x0+end, y0, x0+end, y1, 1.2*u, faint, dash...)
		if down := m.down(float64(c.Prompt)); down > 0 && down < 1 {
			y := y0 + down*float64(height)
			p.line(x0, y, x1, y, 1.2*u, faint, dash...)
		}
	}
	for _, l := range [][4]float64{{x0, y0, x1, y0}, {x0, y1, x1, y1}, {x0, y0, x0, y1}, {x1, y0, x1, y1}} {
		p.line(l[0], l[1], l[2], l[3], u, ink)
	}
	for _, t := range roundTicks(0, m.Len) {
		at := t.Value / float64(m.Len) * size
		p.line(x0+at, y1, x0+at, y1+5*u, u, ink)
		p.text(style(13*u, ink), x0+at, y1+20*u, 0.5, t.Label)
	}
	for _, t := range roundTicks(m.First, m.First+m.Rows) {
		y := y0 + m.down(t.Value)*float64(height)
		p.line(x0-5*u, y, x0, y, u, ink)
	}
	p.text(style(15*u, ink), x0+size/2, y1+42*u, 0.5, "key position")
}

// scale draws the legend of attention probabilities from 10^low to 1.
func (p *picture) scale(left, top, side int, low, u float64, m *Map, c Caption) {
	height := int(math.Round(16 * u))
	for x := range side {
		p.fill(left+x, top, 1, height, shade(float64(x)/float64(side-1)))
	}
	y := float64(top + height)
	for decade := low; decade <= 0; decade++ {
		at := float64(left) + float64(side)*(1-decade/low)
		p.line(at, y, at, y+5*u, u, ink)
		p.text(style(13*u, ink), at, y+19*u, 0.5, strconv.FormatFloat(math.Pow(10, decade), 'f', -1, 64))
	}
	note := "logarithmic"
	if m.Side*m.RowSide > 1 {
		note += fmt.Sprintf("; the highest of each %d × %d pairs", m.RowSide, m.Side)
	}
	if c.promptEnds(m.Len) {
		note += "; dashed: the prompt's end"
	}
	p.text(style(13*u, faint), float64(left), y+39*u, 0, note)
}

// legend draws the meaning of the colours of kept keys, and their shares.
func (p *picture) legend(left, top, side int, u float64, m *Map) {
	var sum Pairs
	for _, c := range m.Pairs {
		sum.All += c.All
		sum.Kept += c.Kept
	}
	box := int(math.Round(14 * u))
	for i, entry := range []struct {
		clr    color.RGBA
		text   string
		name   string
		number float64
	}{
		{hit, "kept, in the query's top k", "recall", m.Recall},
		{miss, "in the top k, not kept", "kept mass", m.Mass},
		{keptOnly, "kept, not in the top k", "kept pairs", float64(sum.Kept) / max(1, float64(sum.All))},
	} {
		y := top + int(math.Round(float64(i)*21*u))
		p.fill(left, y, box, box, entry.clr)
		base := float64(y) + 12*u
		p.text(style(14*u, ink), float64(left)+22*u, base, 0, entry.text)
		p.text(style(14*u, ink), float64(left+side)-140*u, base, 0, entry.name)
		p.text(style(14*u, ink), float64(left+side), base, 1, fmt.Sprintf("%.1f %%", 100*entry.number))
	}
}
