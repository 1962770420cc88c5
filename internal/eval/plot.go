package eval

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// axis is what pictures have along their x axis.
type axis struct {
	name  string // of the file
	label string
	at    func(*CellResult) float64 // where a cell stands; 0 where the axis does not apply
	log   bool                      // logarithmic, with ticks at the points
	drop  func(Method) Method       // without the settings that the axis is about: equal for all points of a line
}

var axes = []axis{
	{
		// What was measured, not what was asked for: whole blocks seldom come to that.
		name: "sparsity", label: "query-key pairs dropped in sparse steps (%)",
		at:   func(r *CellResult) float64 { return 100 * (1 - r.Kept) },
		drop: func(m Method) Method { m.Sparsity, m.Window = 0, 0; return m },
	},
	{
		// Also measured: several refreshes may fall into one step, and an adaptive
		// schedule may do with fewer.
		name: "refreshes", label: "refreshes in a generation", log: true,
		at:   func(r *CellResult) float64 { return r.Refreshes },
		drop: func(m Method) Method { m.Refreshes = 0; return m },
	},
	{
		name: "group-size", label: "queries in a group", log: true,
		at:   func(r *CellResult) float64 { return float64(r.GroupSize) },
		drop: func(m Method) Method { m.GroupSize = 0; return m },
	},
}

// Plot draws the scores against sparsity, refreshes and group size, each if some
// method was measured at two values of it or more: one picture for the average of the tasks
// and, if there are several, one for each. Files are named like
// "sparsity-average.png"; format is png or svg. It returns the files written.
func (t *Table) Plot(dir, format string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	var files []string
	for _, a := range axes {
		for _, p := range t.panels() {
			lines := t.lines(a, p)
			if !slices.ContainsFunc(lines, line.varies) {
				continue
			}
			file := filepath.Join(dir, fmt.Sprintf("%s-%s.%s", a.name, p.name, format))
			if err := drawLines(file, a, p.title, lines); err != nil {
				return files, fmt.Errorf("%s: %w", file, err)
			}
			files = append(files, file)
		}
	}
	return files, nil
}

// panel is the content of a picture: a task, or the average of several.
type panel struct {
	name, title string
	tasks       []string
}

func (t *Table) panels() []panel {
	var tasks []string
	var out []panel
	for _, task := range t.Tasks {
		if t.marked(task) {
			tasks = append(tasks, task)
			out = append(out, panel{task, task, []string{task}})
		}
	}
	if len(tasks) > 1 {
		out = append(out, panel{"average", fmt.Sprintf("average of %d tasks", len(tasks)), tasks})
	}
	return out
}

// line is the scores of a method along an axis.
type line struct {
	label  string
	level  bool // full attention: one score, wherever the others are
	points []point
}

type point struct{ x, mean, stderr float64 } // scores in per cent

func (l line) varies() bool { return !l.level && l.points[0].x != l.points[len(l.points)-1].x }

// lines returns what a picture shows of the methods.
func (t *Table) lines(a axis, p panel) []line {
	part := &Table{Tasks: p.tasks, Methods: t.Methods, cells: t.cells}
	var keys []Method // of the lines, in the order of the table
	points := map[Method][]point{}
	for _, m := range t.Methods {
		score := part.Average(m, func(r *CellResult) Mean { return r.Score })
		x := 0.0
		for _, task := range p.tasks {
			x += a.at(t.Cell(task, m)) / float64(len(p.tasks))
		}
		if math.IsNaN(score.Mean) || x == 0 && m.Name != Full {
			continue
		}
		if math.IsNaN(score.StdErr) { // of a single sample
			score.StdErr = 0
		}
		key := a.drop(m)
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
		points[key] = append(points[key], point{x, 100 * score.Mean, 100 * score.StdErr})
	}
	var lines []line
	for i, label := range Labels(keys) {
		l := line{label: label, level: keys[i].Name == Full, points: points[keys[i]]}
		slices.SortFunc(l.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
		lines = append(lines, l)
	}
	return lines
}

// palette are colours that people with any kind of colour vision can tell apart
// (Okabe and Ito), black left out: it is full attention's.
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

// Sizes of a picture. Its legend stands beside the plot and is as wide as it needs.
const (
	plotWidth  = 14 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
	pictureDPI = 144 // of a PNG
)

// drawLines writes a picture.
func drawLines(file string, a axis, title string, lines []line) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, a.label, "score (%)"
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
	for _, l := range lines {
		for _, q := range l.points {
			if !l.level {
				at = append(at, q.x)
			}
		}
	}
	from, to := slices.Min(at), slices.Max(at)
	varying := 0
	for _, l := range lines {
		legendWidth = max(legendWidth, legend.ThumbnailWidth+legend.TextStyle.Width("  "+l.label))
		if l.level {
			score := l.points[0]
			err := addLine(p, &legend, l.label, []point{{from, score.mean, score.stderr}, {to, score.mean, score.stderr}}, fullStyle)
			if err != nil {
				return err
			}
			continue
		}
		if err := addLine(p, &legend, l.label, l.points, styleOf(varying)); err != nil {
			return err
		}
		varying++
	}

	// Points and the caps of their bars stay clear of the frame.
	margin := max(1, 0.04*(p.Y.Max-p.Y.Min))
	p.Y.Min, p.Y.Max = p.Y.Min-margin, p.Y.Max+margin
	p.Y.Tick.Marker = plot.TickerFunc(roundTicks)
	if a.log {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(ticksAt(at))
		p.X.Min, p.X.Max = from/1.1, to*1.1
	} else {
		p.X.Tick.Marker = plot.TickerFunc(roundTicks)
		p.X.Min, p.X.Max = from-2, to+2
	}
	return save(file, p, &legend, legendWidth)
}

// lineStyle is how a line and its points look.
type lineStyle struct {
	color  color.Color
	dashes []vg.Length
	glyph  draw.GlyphDrawer // nil: no points
}

var fullStyle = lineStyle{color.Black, []vg.Length{vg.Points(1), vg.Points(3)}, nil}

// styleOf tells lines apart by more than colour: where they coincide, all show.
func styleOf(i int) lineStyle {
	return lineStyle{palette[i%len(palette)], dashes[i%len(dashes)], glyphs[i%len(glyphs)]}
}

// addLine adds a line with its error bars to a plot and its legend.
func addLine(p *plot.Plot, legend *plot.Legend, label string, points []point, style lineStyle) error {
	curve, marks, err := plotter.NewLinePoints(withErrors(points))
	if err != nil {
		return err
	}
	bars, err := plotter.NewYErrorBars(withErrors(points))
	if err != nil {
		return err
	}
	curve.Color, marks.Color, bars.Color = style.color, style.color, style.color
	curve.Width, bars.Width, marks.Radius = vg.Points(1.5), vg.Points(1), vg.Points(3)
	curve.Dashes = style.dashes
	p.Add(curve, bars)
	if style.glyph == nil {
		legend.Add(label, curve)
		return nil
	}
	marks.Shape = style.glyph
	p.Add(marks)
	legend.Add(label, curve, marks)
	return nil
}

// roundTicks puts at most ten ticks at multiples of a round number.
func roundTicks(low, high float64) []plot.Tick {
	step := 1.0
	for _, s := range []float64{1, 2, 5, 10, 20} {
		if step = s; (high-low)/s <= 10 {
			break
		}
	}
	var ticks []plot.Tick
	for x := math.Ceil(low/step) * step; x <= high; x += step {
		ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%.0f", x+0)}) // -0 becomes 0
	}
	return ticks
}

// ticksAt puts a tick at every different value.
func ticksAt(values []float64) []plot.Tick {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	var ticks []plot.Tick
	for _, x := range values {
		ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%.3g", x)})
	}
	return ticks
}

// save writes a plot with its legend beside it.
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
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// withErrors are points as the plotters take them.
type withErrors []point

func (p withErrors) Len() int                         { return len(p) }
func (p withErrors) XY(i int) (x, y float64)          { return p[i].x, p[i].mean }
func (p withErrors) YError(i int) (low, high float64) { return p[i].stderr, p[i].stderr }
