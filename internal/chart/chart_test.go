package chart

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTicks(t *testing.T) {
	labels := func(low, high float64) (out []string) {
		for _, tick := range roundTicks(low, high) {
			out = append(out, tick.Label)
		}
		return out
	}
	if diff := cmp.Diff([]string{"0", "20", "40", "60", "80", "100"}, labels(-3, 101)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"96", "97", "98", "99", "100"}, labels(95.5, 100.5)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"0", "200", "400", "600", "800", "1000", "1200"}, labels(0, 1210)); diff != "" {
		t.Error(diff)
	}
	var powers []string
	for _, tick := range decades(0.07, 210) {
		if tick.Label != "" {
			powers = append(powers, tick.Label)
		}
	}
	if diff := cmp.Diff([]string{"0.1", "1", "10", "100"}, powers); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"1", "2", "9"}, func() (out []string) {
		for _, tick := range ticksAt([]float64{9, 1, 2, 1}, nil) {
			out = append(out, tick.Label)
		}
		return out
	}()); diff != "" {
		t.Error(diff)
	}
}

func TestWriteFile(t *testing.T) {
	c := Chart{
		Title: "speed", X: "tokens", Y: "TFLOP/s", LogX: true, FromZero: true, TickX: func(x float64) string { return "at " + strings.Repeat("I", int(x)) },
		Lines: []Line{
			{Label: "ours", Points: []Point{{X: 1, Y: 300}, {X: 4, Y: 600}}, Style: StyleOf(0)},
			{Label: "theirs", Points: []Point{{X: 1, Y: 250, Below: 10, Above: 10}, {X: 4, Y: 350, Below: 20, Above: 5}}, Style: Reference},
		},
	}
	dir := t.TempDir()
	svg, png := filepath.Join(dir, "c.svg"), filepath.Join(dir, "c.png")
	for _, file := range []string{svg, png} {
		if err := c.WriteFile(file); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">speed<", ">tokens<", ">TFLOP/s<", ">ours<", ">theirs<", ">at I<", ">at IIII<", ">0<", ">600<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
	if err := (&Chart{Title: "empty"}).WriteFile(filepath.Join(dir, "e.png")); err == nil || !strings.Contains(err.Error(), "no points") {
		t.Errorf("no points: %v", err)
	}
}

// TestNotShown: numbers that would stop the drawing, or never let it end, are errors.
func TestNotShown(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		chart Chart
		point Point
	}{
		{Chart{LogX: true}, Point{X: 0, Y: 1}}, {Chart{LogX: true}, Point{X: -1, Y: 1}}, {Chart{LogY: true}, Point{X: 1, Y: 0}},
		{Chart{LogY: true}, Point{X: 1, Y: 1, Below: 1}}, {Chart{}, Point{X: 1, Y: inf}}, {Chart{}, Point{X: nan, Y: 1}},
		{Chart{}, Point{X: 1e300, Y: 1}}, {Chart{}, Point{X: 1, Y: -1e300}}, {Chart{}, Point{X: 1, Y: 1, Above: inf}},
	} {
		c.chart.Lines = []Line{{Label: "line", Style: StyleOf(0), Points: []Point{c.point}}}
		file := filepath.Join(t.TempDir(), "c.png")
		if err := c.chart.WriteFile(file); err == nil || !strings.Contains(err.Error(), `"line" has a point at`) {
			t.Errorf("%+v of %+v: error %v", c.point, c.chart, err)
		}
	}
}
