package main

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/pulsecol/pulsecol/internal/chart"
	"github.com/pulsecol/pulsecol/internal/eval"
)

// drawPictures draws the pictures of records that no command of pulsecol draws, and prints
// their names.
func drawPictures(root string, b *bench) error {
	t := table{bench: b}
	picture := sparsityChart(&t)
	if t.err != nil {
		return t.err
	}
	const name = "docs/img/sparsity.png"
	fmt.Println(name)
	return picture.WriteFile(filepath.Join(root, name))
}

// sparsityChart is the share of chains of names that the small Dream-type model finds under
// each method, over the share of query-key pairs that its sparse steps drop.
func sparsityChart(t *table) *chart.Chart {
	const model, task = "dream", "tracking@1024"
	c := &chart.Chart{X: "query-key pairs dropped in sparse steps (%)", Y: "score (%), with 95 % intervals"}
	from, to, samples := math.Inf(1), math.Inf(-1), 0
	point := func(r record) chart.Point {
		samples = int(r.number("samples"))
		score := eval.Mean{Mean: r.number("score") / 100, N: samples}
		low, high := score.Interval()
		return chart.Point{X: 100 * (1 - r.number("kept")), Y: 100 * score.Mean, Below: 100 * (score.Mean - low), Above: 100 * (high - score.Mean)}
	}
	var lines []chart.Line
	for _, m := range methods {
		r := t.answer(model, task, m.method, m.sparsity)
		switch {
		case r == nil:
			t.fail(fmt.Errorf("no %s at sparsity %v", m.method, m.sparsity))
			return nil
		case m.method == "full":
			continue
		}
		p := point(r)
		from, to = min(from, p.X), max(to, p.X)
		last := len(lines) - 1
		if m.sparsity == 0.9 {
			lines[last].Points = append(lines[last].Points, p)
			continue
		}
		lines = append(lines, chart.Line{Label: m.line(), Points: []chart.Point{p}, Style: chart.StyleOf(len(lines))})
	}
	left := point(t.answer(model, task, "full", 0))
	right := left
	left.X, right.X = from, to
	c.Lines = append([]chart.Line{{Label: "full attention", Points: []chart.Point{left, right}, Style: chart.Reference}}, lines...)
	c.Title = fmt.Sprintf("chains of names in 1,024 tokens\nthe small Dream type, %d samples a point", samples)
	return c
}
