package inspect

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"testing"
)

func decoded(t *testing.T, draw func(*bytes.Buffer) error) image.Image {
	t.Helper()
	var file bytes.Buffer
	if err := draw(&file); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&file)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestDrawMap: pictures of any length decode, grow with their maps, and show in
// each cell its own colours, the last row and column included.
func TestDrawMap(t *testing.T) {
	for _, c := range []testCase{
		{1, 1, 1, 4, 32, 1, 0, 0, 0, 0},
		{1, 1, 9, 4, 4, 3, 2, 0, 0, 0},
		{2, 1, 70, 8, 16, 14, 0, 0, 0, 0},
		{1, 1, 640, 8, 32, 100, 0, 0, 0, 0}, // two pairs on a cell's side
		{1, 1, 70, 8, 4, 14, 0, 0, 50, 8},   // a block
		{1, 1, 900, 8, 32, 100, 0, 0, 300, 600},
	} {
		t.Run(c.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 0))
			a, table := c.attention(r), c.table(r, 1)
			m := NewMap(a, 0, table, MostCells)
			for _, prompt := range []int{0, c.n / 2} {
				img := decoded(t, func(w *bytes.Buffer) error {
					return DrawMap(w, m, Caption{Title: "title", Detail: "detail", Prompt: prompt})
				})
				zoom := 640 / m.Cells
				side := m.Cells * zoom
				tall := zoom // height of a cell
				if c.rows > 0 {
					tall = max(zoom, side/3/m.RowCells)
				}
				height := m.RowCells * tall
				u := float64(side) / 480
				px := func(x float64) int { return int(math.Round(x * u)) }
				left, top := px(70), px(96)
				right := left + side + px(36)
				if got, want := img.Bounds().Size(), (image.Point{right + side + px(24), top + height + px(142)}); got != want {
					t.Fatalf("the picture is %v, want %v", got, want)
				}
				if prompt != 0 { // lines lie over cells
					continue
				}
				low := math.Floor(math.Log10(0.01 / float64(c.n)))
				for i := range m.RowCells {
					for j := range m.Cells {
						if i == 0 || j == 0 || i == m.RowCells-1 || j == m.Cells-1 {
							if zoom < 4 {
								continue // the frame lies over the cell
							}
						}
						cell := i*m.Cells + j
						x, y := j*zoom+zoom/2, i*tall+tall/2
						same(t, "attention", img.At(left+x, top+y), shade(1-math.Log10(m.Attention[cell])/low))
						same(t, "kept", img.At(right+x, top+y), m.Pairs[cell].colour())
					}
				}
			}
		})
	}
}

// TestDrawMapTwice: the same map gives the same file.
func TestDrawMapTwice(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	c := testCase{1, 1, 1100, 4, 32, 200, 0, 0, 0, 0}
	m := NewMap(c.attention(r), 0, c.table(r, 1), 550)
	var one, two bytes.Buffer
	for _, w := range []*bytes.Buffer{&one, &two} {
		if err := DrawMap(w, m, Caption{Prompt: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two files of one map differ")
	}
}

func same(t *testing.T, what string, got color.Color, want color.RGBA) {
	t.Helper()
	if got := color.RGBAModel.Convert(got).(color.RGBA); got != want {
		t.Fatalf("%s: colour %v, want %v", what, got, want)
	}
}

// TestColours: a cell of one pair has the colour of the legend; shades get
// lighter all the way, and ends are the ends of the colour map.
func TestColours(t *testing.T) {
	for want, p := range map[color.RGBA]Pairs{
		neither: {All: 1}, keptOnly: {All: 1, Kept: 1}, hit: {All: 1, Kept: 1, Hit: 1}, miss: {All: 1, Miss: 1},
	} {
		if got := p.colour(); got != want {
			t.Errorf("%+v has colour %v, want %v", p, got, want)
		}
	}
	if got := (Pairs{}).colour(); got != neither {
		t.Errorf("a cell of padding has colour %v, want %v", got, neither)
	}
	if got, want := (Pairs{All: 4, Kept: 2, Hit: 2}).colour(), blend(neither, hit, 0.5); got != want {
		t.Errorf("half kept has colour %v, want %v", got, want)
	}
	last := -1.0
	for i := range shades {
		c := shade(float64(i) / (shades - 1))
		light := 0.2126*math.Pow(float64(c.R)/255, 2.2) + 0.7152*math.Pow(float64(c.G)/255, 2.2) + 0.0722*math.Pow(float64(c.B)/255, 2.2)
		if light <= last {
			t.Errorf("shade %d is not lighter than the one before", i)
		}
		last = light
	}
	for x, want := range map[float64]color.RGBA{-1: viridis[0], 0: viridis[0], 1: viridis[len(viridis)-1], 2: viridis[len(viridis)-1], math.Inf(-1): viridis[0]} {
		if got := shade(x); got != want {
			t.Errorf("shade(%v) is %v, want %v", x, got, want)
		}
	}
}

// TestDrawSteps: series with gaps, without values and of one step; more series than hues.
func TestDrawSteps(t *testing.T) {
	nan := Fidelity{math.NaN(), math.NaN()}
	var many []Series
	for i := range 9 {
		many = append(many, Series{Name: fmt.Sprint(i), Steps: []Fidelity{{0.1 * float64(i), 1}, {0.5, 0.5}}, Refreshes: []int{2}})
	}
	for name, series := range map[string][]Series{
		"none":     nil,
		"one step": {{Name: "a", Steps: []Fidelity{{0.2, 0.3}}, Refreshes: []int{1}}},
		"all kept": {{Name: "a", Steps: []Fidelity{{1, 1}, {1, 1}}}},
		"no keys":  {{Name: "a", Steps: []Fidelity{nan, nan}}},
		"gap":      {{Name: "a", Steps: []Fidelity{nan, {0.5, 0.9}, {0.4, 0.8}}, Refreshes: []int{2}}, {Name: "b", Steps: []Fidelity{{0, 0}, {0, 0}, {0, 0}}}},
		"many":     many,
	} {
		img := decoded(t, func(w *bytes.Buffer) error { return DrawSteps(w, name, series) })
		if got := img.Bounds().Size(); got != (image.Point{1100, 600}) {
			t.Errorf("%s: the picture is %v", name, got)
		}
		for i, s := range series {
			if name == "many" && i != 0 { // others may be drawn over
				continue
			}
			if len(s.Refreshes) > 0 && !shows(img, hues[i]) {
				t.Errorf("%s: nothing in the colour of series %s", name, s.Name)
			}
		}
	}
}

// TestDrawStepsCoinciding: of two methods with the same fidelity in every step, both lines show.
func TestDrawStepsCoinciding(t *testing.T) {
	flat := make([]Fidelity, 32)
	for i := range flat {
		flat[i] = Fidelity{0.5, 0.9}
	}
	for i := range hues {
		for j := range i {
			series := make([]Series, len(hues))
			series[i].Steps, series[j].Steps = flat, flat
			img := decoded(t, func(w *bytes.Buffer) error { return DrawSteps(w, "", series) })
			for _, k := range []int{i, j} {
				if !showsNearly(img, hues[k]) {
					t.Errorf("series %d and %d: nothing in the colour of %d", i, j, k)
				}
			}
		}
	}
}

// TestStepPlotRange: axes of shares go from 0 to 100 %, so that heights are comparable.
func TestStepPlotRange(t *testing.T) {
	p, err := stepPlot("", []Series{{Steps: []Fidelity{{0.6, 0.9}, {0.7, 0.95}}}}, func(f Fidelity) float64 { return 100 * f.Mass })
	if err != nil {
		t.Fatal(err)
	}
	if p.Y.Min != 0 || p.Y.Max != 100 {
		t.Errorf("the axis goes from %v to %v, want 0 to 100", p.Y.Min, p.Y.Max)
	}
}

// showsNearly is shows for lines that begin between two pixels, whose colours are mixtures.
func showsNearly(img image.Image, want color.RGBA) bool {
	far := func(x, y uint8) bool { return math.Abs(float64(x)-float64(y)) > 48 }
	for y := 70; y < 480; y++ { // inside the frame of recall: no text is there
		for x := 80; x < 520; x++ {
			got := color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)
			if !far(got.R, want.R) && !far(got.G, want.G) && !far(got.B, want.B) {
				return true
			}
		}
	}
	return false
}

func shows(img image.Image, want color.RGBA) bool {
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y-80; y++ { // above the legend
		for x := b.Min.X; x < b.Max.X; x++ {
			if color.RGBAModel.Convert(img.At(x, y)) == want {
				return true
			}
		}
	}
	return false
}

func TestRoundTicks(t *testing.T) {
	for _, c := range []struct {
		least, most int
		want        []int
	}{
		{0, 1, []int{0, 1}}, {1, 1, []int{1}}, {1, 32, []int{1, 5, 10, 15, 20, 25, 30}}, {0, 800, []int{0, 200, 400, 600, 800}},
		{30, 60, []int{30, 35, 40, 45, 50, 55, 60}}, {0, 288, []int{0, 50, 100, 150, 200, 250}}, {1, 128, []int{1, 20, 40, 60, 80, 100, 120}},
	} {
		got := roundTicks(c.least, c.most)
		labels := fmt.Sprint(c.want)
		var text []string
		for _, tick := range got {
			text = append(text, tick.Label)
		}
		if fmt.Sprint(text) != labels {
			t.Errorf("from %d to %d: %v, want %v", c.least, c.most, text, labels)
		}
	}
}
