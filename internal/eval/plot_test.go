package eval

import (
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sweep returns methods that differ in sparsity, refreshes and group size, and
// their records.
func sweep() (methods []Method, records []Record) {
	methods = append(methods, full, window)
	for _, sparsity := range []float64{0.5, 0.8, 0.9} {
		for _, group := range []int{8, 32} {
			m := pulse
			m.Sparsity, m.GroupSize = sparsity, group
			methods = append(methods, m)
		}
	}
	for _, m := range methods {
		records = append(records, scored("a", m, 1, 0, 1)...)
		records = append(records, scored("b", m, 1, 1, 1)...)
		records = append(records, scored("humaneval", m, math.NaN())...)
	}
	return methods, records
}

// TestPlot: one picture for each axis that varies and each marked task.
func TestPlot(t *testing.T) {
	methods, records := sweep()
	table := NewTable([]string{"a", "b", "humaneval"}, methods, records)
	dir := filepath.Join(t.TempDir(), "new", "folder")
	files, err := table.Plot(dir, "svg", "the model")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	want := []string{
		"sparsity-a.svg", "sparsity-b.svg", "sparsity-average.svg",
		"group-size-a.svg", "group-size-b.svg", "group-size-average.svg",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files: %s", diff)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "sparsity-average.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"pulsecol (group 8)", "pulsecol (group 32)", ">full<", "average of 2 tasks", ">the model, 3 samples a point<", "95 % intervals", "query-key pairs dropped", "score (%)"} {
		if !strings.Contains(string(svg), text) {
			t.Errorf("no %q in the picture", text)
		}
	}
	if strings.Contains(string(svg), "NaN") {
		t.Error("NaN in the picture")
	}
}

// TestPlotOfCaches: full attention with a cache is a line apart from full attention.
func TestPlotOfCaches(t *testing.T) {
	methods, records := sweep()
	for _, m := range methods {
		if m.Name == Full || m.Name == PulseCol {
			m.Cache, m.PrefillEvery = "dual", 1
			methods = append(methods, m)
			records = append(records, scored("a", m, 1, 0, 0)...)
		}
	}
	lines := NewTable([]string{"a"}, methods, records).lines(axes[0], panel{"a", "a", []string{"a"}})
	var labels []string
	for _, l := range lines {
		labels = append(labels, l.label)
		if level := strings.HasPrefix(l.label, Full); l.level != level {
			t.Errorf("%s: level %v, want %v", l.label, l.level, level)
		}
	}
	want := []string{"full", "pulsecol (group 8)", "pulsecol (group 32)", "full (dual cache)", "pulsecol (dual cache, group 8)", "pulsecol (dual cache, group 32)"}
	if diff := cmp.Diff(want, labels); diff != "" {
		t.Fatal(diff)
	}
	styles := map[string]bool{}
	for _, l := range styled(lines) {
		styles[fmt.Sprint(l.Style)] = true
	}
	if len(styles) != len(lines) {
		t.Errorf("%d lines have %d styles", len(lines), len(styles))
	}
}

func TestPlotPNG(t *testing.T) {
	methods, records := sweep()
	files, err := NewTable([]string{"a"}, methods, records).Plot(t.TempDir(), "png", "the model")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() < 800 || b.Dy() < 400 {
		t.Errorf("%v", b)
	}
}

// TestLines: the positions of points, and their lines.
func TestLines(t *testing.T) {
	methods, records := sweep()
	table := NewTable([]string{"a"}, methods, records)
	lines := table.lines(axes[0], panel{"a", "a", []string{"a"}})
	var labels []string
	for _, l := range lines {
		labels = append(labels, l.label)
	}
	// The window keeps all pairs in these records, so it has no place.
	if diff := cmp.Diff([]string{"full", "pulsecol (group 8)", "pulsecol (group 32)"}, labels); diff != "" {
		t.Fatal(diff)
	}
	if !lines[0].level || lines[1].level {
		t.Error("full attention alone is the same everywhere")
	}
	for i, want := range []float64{50, 80, 90} {
		p := lines[2].points[i]
		if !near(p.X, want) || !near(p.Y, 200.0/3) || math.Abs(p.Below-45.90) > 0.01 || math.Abs(p.Above-27.18) > 0.01 {
			t.Errorf("point %d is %+v", i, p)
		}
	}
	all := panel{"average", "", []string{"b", "a"}}
	both := NewTable([]string{"a", "b"}, methods, records).lines(axes[0], all)[0].points[0]
	if !near(both.Y, 500.0/6) || math.Abs(both.Below-math.Hypot(45.90, 56.15)/2) > 0.01 || math.Abs(both.Above-27.18/2) > 0.01 {
		t.Errorf("average is %+v", both)
	}
	if lines := table.lines(axes[1], panel{"a", "a", []string{"a"}}); slices.ContainsFunc(lines, line.varies) {
		t.Error("the refreshes do not vary")
	}
}
