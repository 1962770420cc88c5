package eval

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/pulsecol/pulsecol/internal/chart"
)

// axis is the x axis of a picture.
type axis struct {
	name  string // of the file
	label string
	at    func(*CellResult) float64 // position of a cell; 0 where the axis does not apply
	log   bool                      // logarithmic, with ticks at the points
	drop  func(Method) Method       // clears the axis's settings; equal for all points of a line
}

var axes = []axis{
	{
		// The measured share, because whole blocks seldom hit the requested one.
		name: "sparsity", label: "query-key pairs dropped in sparse steps (%)",
		at:   func(r *CellResult) float64 { return 100 * (1 - r.Kept) },
		drop: func(m Method) Method { m.Sparsity, m.Window = 0, 0; return m },
	},
	{
		// The measured number, because several refreshes may fall into one step and an
		// adaptive schedule may have fewer.
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

// Plot draws the scores of a model, with 95 % confidence intervals, against sparsity,
// refreshes and group size, each if some method was measured at two values of it or
// more: one picture for the average of the tasks and, if there are several, one for
// each. Files are named like "sparsity-average.png"; format is png or svg. It returns
// the files written; each appears complete or not at all.
func (t *Table) Plot(dir, format, model string) ([]string, error) {
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
			if err := drawLines(file, a, t.title(p, model), lines); err != nil {
				return files, err
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

// title returns the title of a picture.
func (t *Table) title(p panel, model string) string {
	part := &Table{p.tasks, t.Methods, t.cells}
	return fmt.Sprintf("%s\n%s, %s samples a point", p.title, model, part.samples())
}

// line is the scores of a method along an axis.
type line struct {
	label  string
	level  bool          // full attention: one score, drawn over the whole axis
	points []chart.Point // scores in per cent
}

func (l line) varies() bool { return !l.level && l.points[0].X != l.points[len(l.points)-1].X }

// lines returns the lines of a picture.
func (t *Table) lines(a axis, p panel) []line {
	var keys []Method // of the lines, in the order of the table
	points := map[Method][]chart.Point{}
	for _, m := range t.Methods {
		x := 0.0
		q := chart.Point{}
		for _, task := range p.tasks {
			r := t.Cell(task, m)
			x += a.at(r) / float64(len(p.tasks))
			low, high := r.Score.Interval()
			q.Y += r.Score.Mean
			q.Below, q.Above = math.Hypot(q.Below, r.Score.Mean-low), math.Hypot(q.Above, high-r.Score.Mean)
		}
		// An average of tasks has the interval that follows from theirs (MOVER; Zou and
		// Donner 2008).
		percent := 100 / float64(len(p.tasks))
		q = chart.Point{X: x, Y: percent * q.Y, Below: percent * q.Below, Above: percent * q.Above}
		if math.IsNaN(q.Y) || x == 0 && m.Name != Full {
			continue
		}
		key := a.drop(m)
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
		points[key] = append(points[key], q)
	}
	var lines []line
	for i, label := range Labels(keys) {
		l := line{label: label, level: keys[i].Name == Full, points: points[keys[i]]}
		slices.SortFunc(l.points, func(a, b chart.Point) int { return cmp.Compare(a.X, b.X) })
		lines = append(lines, l)
	}
	return lines
}

// drawLines writes a picture.
func drawLines(file string, a axis, title string, lines []line) error {
	c := chart.Chart{Title: title, X: a.label, Y: "score (%), with 95 % intervals", LogX: a.log}
	from, to := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		for _, q := range l.points {
			if !l.level {
				from, to = min(from, q.X), max(to, q.X)
			}
		}
	}
	for i, l := range lines {
		if l.level {
			left, right := l.points[0], l.points[0]
			left.X, right.X = from, to
			lines[i].points = []chart.Point{left, right}
		}
	}
	c.Lines = styled(lines)
	return c.WriteFile(file)
}

// styled returns lines with styles: the first of full attention is the reference.
func styled(lines []line) (out []chart.Line) {
	reference := slices.IndexFunc(lines, func(l line) bool { return l.level })
	next := 0
	for i, l := range lines {
		style := chart.Reference
		if i != reference {
			style = chart.StyleOf(next)
			next++
		}
		out = append(out, chart.Line{Label: l.label, Points: l.points, Style: style})
	}
	return out
}
