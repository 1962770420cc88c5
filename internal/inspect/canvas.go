package inspect

import (
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	stdfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

var (
	ink   = color.RGBA{0x22, 0x22, 0x22, 0xff}
	faint = color.RGBA{0x6b, 0x6b, 0x6b, 0xff}
)

// picture is an image to draw on with text, lines and cells, in pixels from the
// upper left corner.
type picture struct {
	vgdraw.Canvas
	img    *image.RGBA
	height float64
	fills  map[color.RGBA]bool // colours of what was filled
}

// newPicture returns a white picture. At 72 dots per inch a point, gonum's unit,
// is a pixel. vgimg always draws on an RGBA image.
func newPicture(width, height int) *picture {
	c := vgimg.NewWith(vgimg.UseWH(vg.Length(width), vg.Length(height)), vgimg.UseDPI(72))
	return &picture{vgdraw.New(c), c.Image().(*image.RGBA), float64(height), map[color.RGBA]bool{}}
}

// part is the canvas of a rectangle of the picture.
func (p *picture) part(x, y, width, height float64) vgdraw.Canvas {
	c := p.Canvas
	c.Min = vg.Point{X: vg.Length(x), Y: vg.Length(p.height - y - height)}
	c.Max = vg.Point{X: vg.Length(x + width), Y: vg.Length(p.height - y)}
	return c
}

// style is that of text of a size.
func style(size float64, clr color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans"}
	return text.Style{Font: font.From(f, vg.Length(size)), Color: clr, Handler: plot.DefaultTextHandler}
}

func bold(s text.Style) text.Style {
	s.Font.Weight = stdfont.WeightBold
	return s
}

// text writes s with its base line at y, the share align of its width left of x.
func (p *picture) text(s text.Style, x, y, align float64, what string) {
	s.XAlign = vgdraw.XAlignment(-align)
	p.FillText(s, vg.Point{X: vg.Length(x), Y: vg.Length(p.height-y) - s.FontExtents().Descent}, what)
}

// upward writes s from bottom to top, centred at y, with its base line at x.
func (p *picture) upward(s text.Style, x, y float64, what string) {
	s.Rotation, s.XAlign = math.Pi/2, vgdraw.XCenter
	p.FillText(s, vg.Point{X: vg.Length(x) + s.FontExtents().Descent, Y: vg.Length(p.height - y)}, what)
}

func (p *picture) line(x0, y0, x1, y1, width float64, clr color.Color, dashes ...vg.Length) {
	p.StrokeLine2(vgdraw.LineStyle{Color: clr, Width: vg.Length(width), Dashes: dashes},
		vg.Length(x0), vg.Length(p.height-y0), vg.Length(x1), vg.Length(p.height-y1))
}

// fill paints the pixels of a rectangle.
func (p *picture) fill(x, y, width, height int, clr color.RGBA) {
	p.fills[clr] = true
	draw.Draw(p.img, image.Rect(x, y, x+width, y+height), image.NewUniform(clr), image.Point{}, draw.Src)
}

// encodeIndexed writes a picture in which everything but what was filled is grey.
// Pixels that index a palette take half the space of colours.
func (p *picture) encodeIndexed(w io.Writer) error {
	greys := 256 - len(p.fills)
	if greys < 16 {
		return p.encode(w)
	}
	// Colours that are neighbours in a map are so in the palette: it compresses better.
	var palette color.Palette
	for _, clr := range slices.SortedFunc(maps.Keys(p.fills), byLightness) {
		palette = append(palette, clr)
	}
	for i := range greys {
		palette = append(palette, color.RGBAModel.Convert(color.Gray{uint8(255 * i / (greys - 1))}))
	}
	indexed := image.NewPaletted(p.img.Bounds(), palette)
	known := map[color.RGBA]uint8{}
	for y := range indexed.Rect.Dy() {
		for x := range indexed.Rect.Dx() {
			clr := p.img.RGBAAt(x, y)
			index, ok := known[clr]
			if !ok {
				index = uint8(palette.Index(clr))
				known[clr] = index
			}
			indexed.SetColorIndex(x, y, index)
		}
	}
	return png.Encode(w, indexed)
}

func byLightness(a, b color.RGBA) int {
	light := func(c color.RGBA) int { return 3*int(c.R) + 6*int(c.G) + int(c.B) }
	return cmp.Or(cmp.Compare(light(a), light(b)), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G))
}

func (p *picture) encode(w io.Writer) error {
	return png.Encode(w, p.img)
}

// roundTicks labels least and the round numbers from there to most, nine at most.
func roundTicks(least, most int) (t plot.ConstantTicks) {
	by := 1
	for i := 0; (most-least)/by >= 8; i++ {
		by = by * []int{2, 5, 10}[i%3] / []int{1, 2, 5}[i%3] // 1, 2, 5, 10, 20, ...
	}
	for v := least - least%by; v <= most; v += by {
		v := max(v, least)
		t = append(t, plot.Tick{Value: float64(v), Label: strconv.Itoa(v)})
	}
	return t
}

// viridis is matplotlib's colour map at equal distances: its lightness rises
// evenly, also for the colour-blind.
var viridis = []color.RGBA{
	{0x44, 0x01, 0x54, 0xff}, {0x48, 0x28, 0x78, 0xff}, {0x3e, 0x49, 0x89, 0xff}, {0x31, 0x68, 0x8e, 0xff}, {0x26, 0x82, 0x8e, 0xff},
	{0x1f, 0x9e, 0x89, 0xff}, {0x35, 0xb7, 0x79, 0xff}, {0x6e, 0xce, 0x58, 0xff}, {0xb5, 0xde, 0x2b, 0xff}, {0xfd, 0xe7, 0x25, 0xff},
}

// shades is the number of colours of a heat map. More could not be distinguished by eye
// and make larger files.
const shades = 32

// shade is the colour of x in [0, 1].
func shade(x float64) color.RGBA {
	x = math.Round(min(max(x, 0), 1)*(shades-1)) / (shades - 1) * float64(len(viridis)-1)
	i := min(int(x), len(viridis)-2)
	return blend(viridis[i], viridis[i+1], x-float64(i))
}

// blend is the share of b in a mixture with a.
func blend(a, b color.RGBA, share float64) color.RGBA {
	mix := func(x, y uint8) uint8 { return uint8(math.Round(float64(x) + share*(float64(y)-float64(x)))) }
	return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 0xff}
}
