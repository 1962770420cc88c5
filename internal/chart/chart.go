// Package chart draws lines through measured points.
package chart

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/pulsecol/pulsecol/internal/outfile"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a picture of lines, with a legend to the right.
type Chart struct {
	Title, X, Y string // text above the plot and along its axes
	Lines       []Line
	LogX        bool                 // the x axis is logarithmic, with ticks at the points
	TickX       func(float64) string // the text of such a tick; nil is the number
	FromZero    bool                 // the y axis begins at 0
	LogY        bool                 // the y axis is logarithmic, with ticks at powers of ten
}

// Line is points, joined, and its name in the legend.
type Line struct {
	Label  string
	Points []Point
	Style  Style
}

// Point is a measurement. Its error bar reaches from Y-Below to Y+Above; a line
// without errors has no bars.
type Point struct{ X, Y, Below, Above float64 }

// Style is the look of a line and its points.
type Style struct {
	Color  color.Color
	Dashes []vg.Length
	Glyph  draw.GlyphDrawer // nil: no points
}

// Reference is the style of the line that others are compared with.
var Reference = Style{color.Black, []vg.Length{vg.Points(1), vg.Points(3)}, nil}

// palette are colours that people with any kind of colour vision can distinguish (Okabe and
// Ito), without black, which is the reference's.
var palette = []color.Color{
	color.RGBA{0, 114, 178, 255},   // blue
	color.RGBA{213, 94, 0, 255},    // vermilion
	color.RGBA{0, 158, 115, 255},   // green
	color.RGBA{204, 121, 167, 255}, // purple
	color.RGBA{230, 159, 0, 255},   // orange
	color.RGBA{86, 180, 233, 255},  // sky blue
}

var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.CrossGlyph{},
}

var dashes = [][]vg.Length{nil, {vg.Points(6), vg.Points(2)}, {vg.Points(2), vg.Points(2)}, {vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}}

// StyleOf returns the style of line i. Styles differ in more than colour, so that lines that
// coincide are all visible.
func StyleOf(i int) Style { return StyleAs(i, i) }

// StyleAs is StyleOf for lines in two directions: equal colours and points for
// equal i, equal dashes for equal j.
func StyleAs(i, j int) Style {
	return Style{palette[i%len(palette)], dashes[j%len(dashes)], glyphs[i%len(glyphs)]}
}

// Sizes of a picture. Its legend is to the right of the plot and as wide as its text.
const (
	plotWidth  = 14 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
	pictureDPI = 144 // of a PNG
)

// WriteFile draws the chart, which has points, into a file ending in .png or .svg,
// which appears complete or not at all.
func (c *Chart) WriteFile(file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	legend := plot.NewLegend()
	legendWidth := vg.Length(0)
	legend.Left, legend.Top = true, true
	legend.ThumbnailWidth, legend.Padding = vg.Points(32), vg.Points(4)
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
	}
	p.Add(plotter.NewGrid())

	var at []float64 // where there are points
	for _, l := range c.Lines {
		if err := c.check(&l); err != nil {
			return err
		}
		legendWidth = max(legendWidth, legend.ThumbnailWidth+legend.TextStyle.Width("  "+l.Label))
		if err := l.add(p, &legend); err != nil {
			return err
		}
		for _, q := range l.Points {
			at = append(at, q.X)
		}
	}
	if len(at) == 0 {
		return fmt.Errorf("chart: %q has no points", c.Title)
	}
	from, to := slices.Min(at), slices.Max(at)

	c.scaleY(&p.Y)
	if c.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(ticksAt(at, c.TickX))
		p.X.Min, p.X.Max = from/1.1, to*1.1
	} else {
		p.X.Tick.Marker = plot.TickerFunc(roundTicks)
		p.X.Min, p.X.Max = from-2, to+2
	}
	return save(file, p, &legend, legendWidth)
}

// Numbers of a chart. Axes of larger ones have no ticks that a float64 tells apart.
const (
	mostShown  = 1e12
	leastShown = 1e-12 // of a logarithmic axis
)

// check reports a point of l that the chart cannot show.
func (c *Chart) check(l *Line) error {
	shown := func(v float64, log bool) bool { return math.Abs(v) <= mostShown && (!log || v >= leastShown) }
	for _, q := range l.Points {
		if !shown(q.X, c.LogX) || !shown(q.Y, c.LogY) || !shown(q.Y-q.Below, c.LogY) || !shown(q.Y+q.Above, c.LogY) {
			return fmt.Errorf("chart: %q has a point at %g with the value %g: want at most %g, and at least %g on logarithmic axes", l.Label, q.X, q.Y, mostShown, leastShown)
		}
	}
	return nil
}

// scaleY sets the range and the ticks of the y axis. Points and the caps of their bars do not
// touch the frame.
func (c *Chart) scaleY(y *plot.Axis) {
	if c.LogY {
		y.Min, y.Max = y.Min/1.25, y.Max*1.25
		y.Scale, y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
		return
	}
	margin := max(1, 0.04*(y.Max-y.Min))
	y.Min, y.Max = y.Min-margin, y.Max+margin
	if c.FromZero {
		y.Min = 0
	}
	y.Tick.Marker = plot.TickerFunc(roundTicks)
}

// add adds a line with its error bars to a plot and its legend.
func (l *Line) add(p *plot.Plot, legend *plot.Legend) error {
	curve, marks, err := plotter.NewLinePoints(withErrors(l.Points))
	if err != nil {
		return err
	}
	curve.Color, marks.Color = l.Style.Color, l.Style.Color
	curve.Width, marks.Radius = vg.Points(1.5), vg.Points(3)
	curve.Dashes = l.Style.Dashes
	p.Add(curve)
	if slices.ContainsFunc(l.Points, func(q Point) bool { return q.Below != 0 || q.Above != 0 }) {
		bars, err := plotter.NewYErrorBars(withErrors(l.Points))
		if err != nil {
			return err
		}
		bars.Color, bars.Width = l.Style.Color, vg.Points(1)
		p.Add(bars)
	}
	if l.Style.Glyph == nil {
		legend.Add(l.Label, curve)
		return nil
	}
	marks.Shape = l.Style.Glyph
	p.Add(marks)
	legend.Add(l.Label, curve, marks)
	return nil
}

// maxTicks are the most that an axis has.
const maxTicks = 10

// roundTicks puts ticks at multiples of a round number.
func roundTicks(low, high float64) []plot.Tick {
	step := 1.0
	for i := 0; (high-low)/step > maxTicks; i++ {
		step *= []float64{2, 2.5, 2}[i%3] // 1, 2, 5, 10, 20, ...
	}
	var ticks []plot.Tick
	for x := math.Ceil(low/step) * step; x <= high; x += step {
		ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%.0f", x+0)}) // -0 becomes 0
	}
	return ticks
}

// decades puts ticks at powers of ten, and unlabelled ones at their multiples.
func decades(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for digit := 1.0; digit < 10; digit++ {
			if x := digit * power; x >= low && x <= high {
				label := ""
				if digit == 1 {
					label = strconv.FormatFloat(x, 'g', 6, 64)
				}
				ticks = append(ticks, plot.Tick{Value: x, Label: label})
			}
		}
	}
	return ticks
}

// ticksAt puts a tick at every different value.
func ticksAt(values []float64, label func(float64) string) []plot.Tick {
	if label == nil {
		label = func(x float64) string { return fmt.Sprintf("%.3g", x) }
	}
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	var ticks []plot.Tick
	for _, x := range values {
		ticks = append(ticks, plot.Tick{Value: x, Label: label(x)})
	}
	return ticks
}

// save writes a plot with its legend to the right.
func save(file string, p *plot.Plot, legend *plot.Legend, legendWidth vg.Length) error {
	const gap = 8 // points
	width := plotWidth + legendWidth + vg.Points(2*gap)
	var canvas vg.CanvasWriterTo
	if filepath.Ext(file) == ".svg" {
		canvas = vgsvg.New(width, plotHeight)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, plotHeight), vgimg.UseDPI(pictureDPI))}
	}
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	p.Draw(draw.Crop(c, vg.Points(gap), plotWidth-width, vg.Points(gap), -vg.Points(gap)))
	legend.Draw(draw.Crop(c, plotWidth+vg.Points(gap), 0, 0, -vg.Points(4*gap)))
	return outfile.Write(file, func(w io.Writer) error {
		_, err := canvas.WriteTo(w)
		return err
	})
}

// withErrors are points as the plotters take them.
type withErrors []Point

func (p withErrors) Len() int                         { return len(p) }
func (p withErrors) XY(i int) (x, y float64)          { return p[i].X, p[i].Y }
func (p withErrors) YError(i int) (low, high float64) { return p[i].Below, p[i].Above }
