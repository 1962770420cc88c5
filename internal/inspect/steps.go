package inspect

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is the fidelity of one method over the steps of a generation.
type Series struct {
	Name      string
	Density   float64    // share of query-key pairs kept, for the legend
	Steps     []Fidelity // of step 1, 2, ...; NaN where the method has not selected keys yet
	Refreshes []int      // steps to mark, from 1
}

// hues are those of Okabe and Ito, which the colour-blind can distinguish.
var hues = []color.RGBA{
	{0x00, 0x00, 0x00, 0xff}, {0x00, 0x72, 0xb2, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x00, 0x9e, 0x73, 0xff},
	{0xe6, 0x9f, 0x00, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xd5, 0x5e, 0x00, 0xff},
}

// dashes distinguish lines in print.
var dashes = [][]vg.Length{{2, 3}, nil, nil, {8, 3, 2, 3}, nil, {5, 2}, {8, 3}}

// widths of lines: where a narrow one coincides with a wide one, the edges of the wide one show.
var widths = []vg.Length{2, 2, 8, 2, 5, 2, 2}

// DrawSteps writes a PNG with recall on the left and mass on the right, a line
// for each series, refreshes marked.
func DrawSteps(w io.Writer, title string, series []Series) error {
	const width, height, top, bottom, margin = 1100, 600, 50, 66, 20
	p := newPicture(width, height)
	p.text(bold(style(18, ink)), margin, 30, 0, title)
	recall, err := stepPlot("recall of each query's own top k, %", series, func(f Fidelity) float64 { return 100 * f.Recall })
	if err != nil {
		return err
	}
	mass, err := stepPlot("attention mass of what is kept, %", series, func(f Fidelity) float64 { return 100 * f.Mass })
	if err != nil {
		return err
	}
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: 30}
	for i, c := range plot.Align([][]*plot.Plot{{recall, mass}}, tiles, p.part(margin, top, width-2*margin, height-top-bottom))[0] {
		[]*plot.Plot{recall, mass}[i].Draw(c)
	}
	p.names(margin, height-40, width-2*margin, series)
	return p.encode(w)
}

// names is the legend of all series, in one row.
func (p *picture) names(x, y, width float64, series []Series) {
	each := width / float64(max(1, len(series)))
	for i, s := range series {
		l := lineStyle(i)
		at := x + float64(i)*each
		p.line(at, y, at+28, y, float64(l.Width), l.Color, l.Dashes...)
		p.text(style(14, ink), at+33, y+5, 0, fmt.Sprintf("%s %.0f %%", s.Name, 100*s.Density))
	}
	p.text(style(13, faint), x, y+28, 0, "In per cent: the share of pairs kept. Dots: refreshes. A line starts with the first choice of keys; until then the method is full attention.")
}

func lineStyle(i int) draw.LineStyle {
	return draw.LineStyle{Color: hues[i%len(hues)], Width: widths[i%len(widths)], Dashes: dashes[i%len(dashes)]}
}

// stepPlot is the plot of one measure.
func stepPlot(title string, series []Series, measure func(Fidelity) float64) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.Title.TextStyle.Font, p.Title.Padding = title, style(15, ink).Font, 8
	p.X.Label.Text, p.X.Label.TextStyle.Font = "denoising step", style(15, ink).Font
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.Label.Font, a.LineStyle.Color, a.Padding = style(13, ink).Font, ink, 0
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = nil, color.RGBA{0xd4, 0xd4, 0xd4, 0xff}
	p.Add(grid)
	steps := 1
	for _, i := range drawingOrder(len(series)) {
		s := series[i]
		var line, dots plotter.XYs
		for t, f := range s.Steps {
			if y := measure(f); !math.IsNaN(y) {
				line = append(line, plotter.XY{X: float64(t + 1), Y: y})
			}
		}
		for _, t := range s.Refreshes {
			dots = append(dots, plotter.XY{X: float64(t), Y: measure(s.Steps[t-1])})
		}
		steps = max(steps, len(s.Steps))
		if len(line) == 0 {
			continue
		}
		l, err := plotter.NewLine(line)
		if err != nil {
			return nil, err
		}
		l.LineStyle = lineStyle(i)
		p.Add(l)
		if len(dots) == 0 {
			continue
		}
		d, err := plotter.NewScatter(dots)
		if err != nil {
			return nil, err
		}
		d.GlyphStyle = draw.GlyphStyle{Color: hues[i%len(hues)], Radius: l.Width/2 + 2.5, Shape: draw.CircleGlyph{}}
		p.Add(d)
	}
	p.X.Min, p.X.Max = 1, float64(max(2, steps))
	p.Y.Min, p.Y.Max = 0, 100 // the whole range, so that heights are comparable
	p.X.Tick.Marker, p.Y.Tick.Marker = roundTicks(1, steps), roundTicks(0, 100)
	return p, nil
}

// drawingOrder returns the indices of n series so that each shows where it coincides with
// another: solid lines before dashed ones, wide ones first.
func drawingOrder(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = n - 1 - i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := lineStyle(i), lineStyle(j)
		return cmp.Or(cmp.Compare(min(1, len(a.Dashes)), min(1, len(b.Dashes))), cmp.Compare(b.Width, a.Width))
	})
	return order
}
